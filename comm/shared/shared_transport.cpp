#include "comm/shared/shared_transport.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "comm/shared/chunks.h"
#include "comm/shared/meeting.h"
#include "comm/shared/reading.h"
#include "core/error.h"

namespace zinc::comm {
namespace {

Terms shared_terms_of(const Message& message) {
  return {.sequence = message.sequence,
          .count = message.bytes,
          .operation = Operation::message,
          .dtype = DType::u8};
}

// A message's watch, and the objects that it refers to.
struct MessageWatch {
  MessageWatch(const Segment& segment, const Transport& transport, const Message& message)
      : what([&transport, &message] {
          return describe(message, transport.world_rank(message.peer));
        }),
        behind([&message](int r) { return r == message.peer; }),
        watch(segment, transport, message.deadline, what, behind) {}

  std::function<std::string()> what;
  std::function<bool(int)> behind;
  Watch watch;
};

}  // namespace

SharedTransport::SharedTransport(std::shared_ptr<Segment> segment, int rank,
                                 std::vector<int> world_ranks, std::shared_ptr<Lifeline> lifeline,
                                 MakeSegment make_segment)
    : Transport(rank, std::move(world_ranks), std::move(lifeline)),
      segment_(std::move(segment)),
      desks_(segment_, rank),
      make_segment_(std::move(make_segment)) {}

SharedTransport::~SharedTransport() {
  RankRecord& record = segment_->rank(rank());
  record.departed.store(1);
  record.posted.ring();
}

void SharedTransport::give_up(const char* reason, int desk) noexcept {
  lifeline().raise(reason);
  if (!direct()) return;
  // Peers that are copying from this rank's memory finish; no other begins.
  while (!lifeline().raised() || desks_.being_read(desk)) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void SharedTransport::exchange(const Call& call, const Exchange& exchange) {
  Meeting meeting(*this, *segment_, desks_, call, exchange);
  try {
    if (direct()) {
      meeting.run_direct();
    } else {
      meeting.run_staged();
    }
  } catch (const std::exception& failure) {
    give_up(failure.what(), meeting.desk());
    throw;
  }
  int64_t sent = 0;
  int64_t received = 0;
  for (size_t p = 0; p < exchange.to.size(); ++p) {
    if (p == static_cast<size_t>(rank())) continue;
    sent += exchange.to[p].bytes;
    received += exchange.from[p].bytes;
  }
  count_sent(sent);
  count_received(received);
}

void SharedTransport::send(const Message& message, const std::byte* data) {
  const MessageWatch waiting(*segment_, *this, message);
  const Desks::Lease lease(desks_, waiting.watch);
  try {
    if (direct()) {
      desks_.post(lease.index(), DeskKey::of_message(message.sequence, message.peer, message.tag),
                  shared_terms_of(message), 0, data, message.peer);
      const Progress& taken = segment_->taken(rank(), lease.index(), message.peer);
      waiting.watch.await(segment_->desk(rank(), lease.index()).taken_bell, message.peer,
                          [&] { return taken.chunks.load() == kAllTaken; });
    } else {
      send_staged(message, data, lease.index(), waiting.watch);
    }
  } catch (const std::exception& failure) {
    give_up(failure.what(), lease.index());
    throw;
  }
  count_sent(message.bytes);
}

void SharedTransport::send_staged(const Message& message, const std::byte* data, int index,
                                  const Watch& watch) {
  Desk& desk = segment_->desk(rank(), index);
  const Progress& taken = segment_->taken(rank(), index, message.peer);
  const int64_t chunk_bytes = segment_->shape().buffer_bytes;
  const uint64_t chunks = num_chunks(message.bytes, chunk_bytes);
  for (uint64_t k = 0; k < chunks; ++k) {
    if (k >= kNumBuffers) {
      watch.await(desk.taken_bell, message.peer,
                  [&] { return taken.chunks.load() + kNumBuffers > k; });
    }
    const int64_t length = chunk_length(message.bytes, chunk_bytes, k);
    if (length > 0) {
      copy_bytes(segment_->buffer(rank(), index, k), data + chunk_begin(chunk_bytes, k), length);
    }
    if (k == 0) {
      desks_.post(index, DeskKey::of_message(message.sequence, message.peer, message.tag),
                  shared_terms_of(message), 1, nullptr, message.peer);
    } else {
      desk.staged.store(k + 1);
      desk.staged_bell.ring();
    }
  }
}

void SharedTransport::receive(const Message& message, std::byte* data) {
  const MessageWatch waiting(*segment_, *this, message);
  try {
    const DeskKey key = DeskKey::of_message(message.sequence, rank(), message.tag);
    Desks::Found found;
    waiting.watch.await(segment_->rank(message.peer).posted, message.peer,
                        [&] { return (found = desks_.find(message.peer, key)).desk != nullptr; });
    if (found.desk->terms.count != message.bytes) {
      waiting.watch.fail(str("the message of rank ", world_rank(message.peer), " has ",
                             found.desk->terms.count, " bytes"));
    }
    if (direct()) {
      const Reading reading(segment_->taken(message.peer, found.index, rank()), *found.desk,
                            lifeline(), waiting.what);
      copy_bytes(data, found.desk->direct, message.bytes);
    } else {
      receive_staged(message, data, found, waiting.watch);
    }
  } catch (const std::exception& failure) {
    lifeline().raise(failure.what());
    throw;
  }
  count_received(message.bytes);
}

void SharedTransport::receive_staged(const Message& message, std::byte* data,
                                     const Desks::Found& found, const Watch& watch) {
  Progress& taken = segment_->taken(message.peer, found.index, rank());
  const int64_t chunk_bytes = segment_->shape().buffer_bytes;
  const uint64_t chunks = num_chunks(message.bytes, chunk_bytes);
  for (uint64_t k = 0; k < chunks; ++k) {
    watch.await(found.desk->staged_bell, message.peer,
                [&] { return found.desk->staged.load() > k; });
    const int64_t length = chunk_length(message.bytes, chunk_bytes, k);
    if (length > 0) {
      copy_bytes(data + chunk_begin(chunk_bytes, k), segment_->buffer(message.peer, found.index, k),
                 length);
    }
    taken.chunks.store(k + 1 == chunks ? kAllTaken : k + 1);
    found.desk->taken_bell.ring();
  }
}

std::shared_ptr<Transport> SharedTransport::split(const SplitPlan& plan, const Agree& agree) {
  std::shared_ptr<Segment> segment = make_segment_(plan, agree);
  if (segment == nullptr) return nullptr;
  return std::make_shared<SharedTransport>(std::move(segment), plan.index, world_ranks_of(plan),
                                           shared_lifeline(), make_segment_);
}

}  // namespace zinc::comm
