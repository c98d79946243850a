#include "comm/shared/watch.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "core/error.h"

namespace zinc::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often a sleeping rank looks at the fault line, its peer and its deadline.
constexpr milliseconds kPollInterval{20};
constexpr int kGracePolls = 5;

// Marks the rank as waiting, for Watch::waiting_peers of the others.
class BlockedMark {
 public:
  explicit BlockedMark(RankRecord& record) : record_(record) { record_.blocked.fetch_add(1); }
  ~BlockedMark() { record_.blocked.fetch_sub(1); }
  BlockedMark(const BlockedMark&) = delete;
  BlockedMark& operator=(const BlockedMark&) = delete;

 private:
  RankRecord& record_;
};

bool has_ended(int32_t process) {
  return process != 0 && ::kill(process, 0) == -1 && errno == ESRCH;
}

}  // namespace

void Watch::fail(const std::string& why) const { throw CommError(concat(what_(), ": ", why)); }

void Watch::block(Bell& bell, int peer, const std::function<bool()>& ready) const {
  RankRecord& me = segment_.rank(transport_.rank());
  const BlockedMark mark(me);
  auto expires = Clock::now() + deadline_;
  while (true) {
    const uint32_t seen = bell.read();
    if (ready()) return;
    if (transport_.fault_line().raised()) throw_stopped(what_(), transport_.fault_line());
    check_peer(peer, ready);
    const auto now = Clock::now();
    if (now >= expires) return expire(ready);
    bell.sleep(seen, std::min<std::chrono::nanoseconds>(kPollInterval, expires - now));
    me.pulse.fetch_add(1);
  }
}

void Watch::check_peer(int peer, const std::function<bool()>& ready) const {
  const RankRecord& record = segment_.rank(peer);
  const bool departed = record.departed.load() != 0;
  if (!departed && !has_ended(record.process.load())) return;
  if (ready()) return;  // the last thing it did
  if (transport_.fault_line().raised()) throw_stopped(what_(), transport_.fault_line());
  fail(concat("rank ", transport_.world_rank(peer),
              departed ? " has left the group" : " is gone: its process has ended"));
}

// Those of `ranks` that are alive and wait for a peer themselves: not the cause.
std::vector<int> Watch::waiting_peers(const std::vector<int>& ranks,
                                      const std::function<bool()>& stop) const {
  std::vector<uint32_t> before;
  for (const int r : ranks) before.push_back(segment_.rank(r).pulse.load());
  RankRecord& me = segment_.rank(transport_.rank());
  for (int i = 0; i < kGracePolls && !stop(); ++i) {
    std::this_thread::sleep_for(kPollInterval);
    me.pulse.fetch_add(1);
  }
  std::vector<int> waiting;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankRecord& record = segment_.rank(ranks[i]);
    if (record.blocked.load() > 0 && record.pulse.load() != before[i]) waiting.push_back(ranks[i]);
  }
  return waiting;
}

void Watch::expire(const std::function<bool()>& ready) const {
  std::vector<int> suspects;
  for (int r = 0; r < transport_.size(); ++r) {
    if (r != transport_.rank() && behind_(r)) suspects.push_back(r);
  }
  const auto stop = [&] { return ready() || transport_.fault_line().raised(); };
  const std::vector<int> waiting = waiting_peers(suspects, stop);
  if (ready()) return;  // this rank was the one that was asleep
  if (transport_.fault_line().raised()) throw_stopped(what_(), transport_.fault_line());
  std::vector<int> missing;
  for (const int r : suspects) {
    if (std::ranges::find(waiting, r) == waiting.end()) missing.push_back(r);
  }
  if (missing.empty()) missing = suspects;
  for (int& r : missing) r = transport_.world_rank(r);
  fail(concat("no progress for ", describe(deadline_), ": waiting for ", name_ranks(missing)));
}

}  // namespace zinc::comm
