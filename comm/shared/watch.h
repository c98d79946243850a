// comm/shared/watch.h: waiting for a peer that shares memory, with a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "comm/shared/segment.h"
#include "comm/transport.h"

namespace zinc::comm {

// The waits of one operation. Each may last `deadline`, so an operation that makes progress is
// never cut off. A wait throws CommError when the deadline passes, when the lifeline is raised,
// and when the peer left the group or its process ended.
class Watch {
 public:
  // `what` names the operation; `behind(r)` says whether rank r is short of what the operation
  // needs from it now. Both must outlive the watch.
  Watch(const Segment& segment, const Transport& transport, std::chrono::nanoseconds deadline,
        const std::function<std::string()>& what, const std::function<bool(int)>& behind)
      : segment_(segment),
        transport_(transport),
        deadline_(deadline),
        what_(what),
        behind_(behind) {}

  // Returns once ready() holds; `peer` rings `bell` whenever ready() may have become true.
  template <class Ready>
  void await(Bell& bell, int peer, const Ready& ready) const {
    for (int i = 0; i < kSpins; ++i) {
      if (ready()) return;
      pause();
    }
    block(bell, peer, std::cref(ready));
  }

  [[noreturn]] void fail(const std::string& why) const;
  const std::function<std::string()>& what() const { return what_; }

 private:
  // Some microseconds: a rank whose peer is at work on another core does not go to sleep.
  static constexpr int kSpins = 100;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  void block(Bell& bell, int peer, const std::function<bool()>& ready) const;
  void check_peer(int peer, const std::function<bool()>& ready) const;
  // Throws, unless `ready` comes true while it finds out which peers are to blame.
  void expire(const std::function<bool()>& ready) const;

  const Segment& segment_;
  const Transport& transport_;
  std::chrono::nanoseconds deadline_;
  const std::function<std::string()>& what_;
  const std::function<bool(int)>& behind_;
};

}  // namespace zinc::comm
