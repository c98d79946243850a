// comm/shared/desks.h: one rank's use of the desks of a segment (Note [Desks] in segment.h).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "comm/call.h"
#include "comm/shared/segment.h"
#include "comm/shared/watch.h"

namespace zinc::comm {

struct DeskKey {
  uint64_t number = 0;
  uint64_t channel = 0;

  static DeskKey of_meeting(const Terms& terms) {
    return {.number = terms.meeting, .channel = std::numeric_limits<uint64_t>::max()};
  }
  // `destination` and `tag` are not negative.
  static DeskKey of_message(uint64_t sequence, int destination, int tag) {
    return {
        .number = sequence,
        .channel = uint64_t{static_cast<uint32_t>(destination)} << 32 | static_cast<uint32_t>(tag)};
  }
};

class Desks {
 public:
  Desks(std::shared_ptr<Segment> segment, int rank) : segment_(std::move(segment)), rank_(rank) {}

  // One of this rank's desks, until its destruction.
  class Lease {
   public:
    Lease(Desks& desks, const Watch& watch) : desks_(desks), index_(desks.claim(watch)) {}
    ~Lease() { desks_.release(index_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    int index() const { return index_; }

   private:
    Desks& desks_;
    int index_;
  };

  // Shows the desk to `only_reader`, or to all others where it is negative. `staged` chunks are in
  // its buffers already; readers in this process use `direct` instead.
  void post(int index, const DeskKey& key, const Terms& terms, uint64_t staged, const void* direct,
            int only_reader);

  // The desk on which `owner` offers `key`; null while there is none.
  struct Found {
    Desk* desk = nullptr;
    int index = -1;
  };
  Found find(int owner, const DeskKey& key) const;

  // True while a reader is inside this process's memory that the desk points at.
  bool being_read(int index) const;

 private:
  int claim(const Watch& watch);
  int try_claim();
  void release(int index);

  std::shared_ptr<Segment> segment_;
  int rank_;
  std::mutex mutex_;
  std::array<bool, kNumDesks> in_use_{};
  uint64_t last_ticket_ = 0;
};

}  // namespace zinc::comm
