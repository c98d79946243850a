// comm/lifeline.h: how the ranks of a world tell each other that they have failed, and that they
// are alive and waiting.
//
// One lifeline serves a world and every group that was split from it. Each rank holds one end. The
// lifeline is raised once, and the first reason stays. Every rank that waits for a peer watches the
// lifeline, so raising it wakes all ranks.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::comm {

// Any thread may call anything.
class Lifeline {
 public:
  Lifeline() = default;
  virtual ~Lifeline() = default;
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Call when this rank has failed, or has found that another rank failed.
  virtual void raise(std::string_view reason) noexcept = 0;
  virtual bool raised() const noexcept = 0;
  // "rank 2: <reason>", with the rank that raised it; empty until then.
  virtual std::string text() const = 0;

  // Between begin_waiting() and end_waiting() an operation of this rank waits for a peer. It calls
  // beat() a few times per 100 ms.
  virtual void begin_waiting() noexcept = 0;
  virtual void end_waiting() noexcept = 0;
  virtual void beat() noexcept = 0;
  // The ranks of `world_ranks` that show that they are alive and waiting too. Takes some 100 ms.
  // Returns early when stop() is true.
  virtual std::vector<int> waiting_among(const std::vector<int>& world_ranks,
                                         const std::function<bool()>& stop) = 0;
};

// An operation that waits, for as long as it lives.
class WaitingMark {
 public:
  explicit WaitingMark(Lifeline& lifeline) : lifeline_(lifeline) { lifeline_.begin_waiting(); }
  ~WaitingMark() { lifeline_.end_waiting(); }
  WaitingMark(const WaitingMark&) = delete;
  WaitingMark& operator=(const WaitingMark&) = delete;

 private:
  Lifeline& lifeline_;
};

// The ranks of `suspects` (ranks of the world) that are not waiting themselves; all of them if each
// one is. Takes as long as waiting_among().
std::vector<int> missing_among(Lifeline& lifeline, const std::vector<int>& suspects,
                               const std::function<bool()>& stop);

}  // namespace zinc::comm
