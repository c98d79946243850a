// comm/shared/shared_lifeline.h: a lifeline in the memory of a world's segment.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/lifeline.h"
#include "comm/shared/segment.h"

namespace zinc::comm {

// How often a sleeping rank looks at its peers, its deadline and the lifeline, and beats.
inline constexpr std::chrono::milliseconds kPollInterval{20};

class SharedLifeline final : public Lifeline {
 public:
  // `segment` is the world's: its ranks are the world's.
  SharedLifeline(std::shared_ptr<Segment> segment, int world_rank)
      : segment_(std::move(segment)), world_rank_(world_rank) {}

  void raise(std::string_view reason) noexcept override;
  bool raised() const noexcept override { return segment_->fault().state.load() == 2; }
  std::string text() const override;
  void begin_waiting() noexcept override { me().blocked.fetch_add(1); }
  void end_waiting() noexcept override { me().blocked.fetch_sub(1); }
  void beat() noexcept override { me().pulse.fetch_add(1); }
  std::vector<int> waiting_among(const std::vector<int>& world_ranks,
                                 const std::function<bool()>& stop) override;

 private:
  RankRecord& me() const { return segment_->rank(world_rank_); }

  std::shared_ptr<Segment> segment_;
  int world_rank_;
};

}  // namespace zinc::comm
