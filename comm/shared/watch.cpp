#include "comm/shared/watch.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "comm/shared/shared_lifeline.h"
#include "core/error.h"

namespace zinc::comm {
namespace {

using Clock = std::chrono::steady_clock;

bool has_ended(int32_t process) {
  return process != 0 && ::kill(process, 0) == -1 && errno == ESRCH;
}

}  // namespace

void Watch::fail(const std::string& why) const { throw CommError(str(what_(), ": ", why)); }

void Watch::block(Bell& bell, int peer, const std::function<bool()>& ready) const {
  Lifeline& lifeline = transport_.lifeline();
  const WaitingMark mark(lifeline);
  const auto expires = Clock::now() + deadline_;
  while (true) {
    const uint32_t seen = bell.read();
    if (ready()) return;
    if (lifeline.raised()) throw_stopped(what_(), lifeline);
    check_peer(peer, ready);
    const auto now = Clock::now();
    if (now >= expires) return expire(ready);
    bell.sleep(seen, std::min<std::chrono::nanoseconds>(kPollInterval, expires - now));
    lifeline.beat();
  }
}

void Watch::check_peer(int peer, const std::function<bool()>& ready) const {
  const RankRecord& record = segment_.rank(peer);
  const bool departed = record.departed.load() != 0;
  if (!departed && !has_ended(record.process.load())) return;
  if (ready()) return;  // the last thing it did
  if (transport_.lifeline().raised()) throw_stopped(what_(), transport_.lifeline());
  fail(str("rank ", transport_.world_rank(peer),
           departed ? " has left the group" : " is gone: its process has ended"));
}

void Watch::expire(const std::function<bool()>& ready) const {
  std::vector<int> suspects;
  for (int r = 0; r < transport_.size(); ++r) {
    if (r != transport_.rank() && behind_(r)) suspects.push_back(transport_.world_rank(r));
  }
  const auto stop = [&] { return ready() || transport_.lifeline().raised(); };
  const std::vector<int> missing = missing_among(transport_.lifeline(), suspects, stop);
  if (ready()) return;  // this rank was the one that was asleep
  if (transport_.lifeline().raised()) throw_stopped(what_(), transport_.lifeline());
  fail(str("no progress for ", describe(deadline_), ": waiting for ", name_ranks(missing)));
}

}  // namespace zinc::comm
