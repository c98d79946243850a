// comm/fault_line.h: how the failure of one rank reaches all of them.
//
// One fault line serves a world and every group that was split from it. It breaks once: the first
// reason stays. Whoever waits for a peer looks at it, so a break wakes all ranks.
#pragma once

#include <string>
#include <string_view>

namespace zinc::comm {

class FaultLine {
 public:
  FaultLine() = default;
  virtual ~FaultLine() = default;
  FaultLine(const FaultLine&) = delete;
  FaultLine& operator=(const FaultLine&) = delete;

  // `world_rank` is the rank that found the failure. Any thread.
  virtual void raise(int world_rank, std::string_view reason) noexcept = 0;
  virtual bool raised() const noexcept = 0;
  // "rank 2: <reason>"; empty while nothing was raised.
  virtual std::string text() const = 0;
};

}  // namespace zinc::comm
