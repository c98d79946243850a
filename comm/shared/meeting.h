// comm/shared/meeting.h: one exchange of one rank, under way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/shared/desks.h"
#include "comm/shared/watch.h"
#include "comm/transport.h"

namespace zinc::comm {

class Meeting {
 public:
  // All arguments must outlive it. Takes one of the rank's desks.
  Meeting(const Transport& transport, Segment& segment, Desks& desks, const Call& call,
          const Exchange& exchange);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int desk() const { return lease_.index(); }
  void run_direct();
  void run_staged();

 private:
  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  Desk& mine() const { return segment_.desk(rank(), desk()); }
  Desk& theirs(int peer) const { return *found_[static_cast<size_t>(peer)].desk; }
  Progress& taken_from(int peer) const;
  const Outgoing& message_of(int peer) const;
  int64_t place_in_buffer(int from, int to) const;

  void post(uint64_t staged, const void* direct);
  void meet();
  void compare_sizes() const;
  bool is_behind(int peer) const;
  void await_taken(int peer);
  void await_staged(int peer, uint64_t chunks);
  void take_direct();
  void stage(uint64_t k);
  void consume(uint64_t k);

  const Transport& transport_;
  Segment& segment_;
  Desks& desks_;
  const Call& call_;
  const Exchange& exchange_;
  const std::function<std::string()> what_;
  const std::function<bool(int)> behind_;
  const Watch watch_;
  std::vector<Desks::Found> found_;        // by peer
  std::vector<const std::byte*> sources_;  // by rank
  const Desks::Lease lease_;
  int64_t chunk_bytes_ = 0;
  uint64_t needed_staged_ = 0;
  bool leaving_ = false;  // this rank has taken all its messages and waits for the others
};

}  // namespace zinc::comm
