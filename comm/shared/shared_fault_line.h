// comm/shared/shared_fault_line.h: a fault line in the memory of a segment.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "comm/fault_line.h"
#include "comm/shared/segment.h"

namespace zinc::comm {

class SharedFaultLine final : public FaultLine {
 public:
  explicit SharedFaultLine(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}

  void raise(int world_rank, std::string_view reason) noexcept override;
  bool raised() const noexcept override { return segment_->fault().state.load() == 2; }
  std::string text() const override;

 private:
  std::shared_ptr<Segment> segment_;
};

}  // namespace zinc::comm
