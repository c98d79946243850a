#include "comm/shared/meeting.h"

#include <optional>

#include "comm/shared/chunks.h"
#include "comm/shared/reading.h"
#include "core/error.h"

namespace zinc::comm {

Meeting::Meeting(const Transport& transport, Segment& segment, Desks& desks, const Call& call,
                 const Exchange& exchange)
    : transport_(transport),
      segment_(segment),
      desks_(desks),
      call_(call),
      exchange_(exchange),
      what_([this] { return to_string(call_.terms); }),
      behind_([this](int peer) { return is_behind(peer); }),
      watch_(segment, transport, call.deadline, what_, behind_),
      found_(static_cast<size_t>(transport.size())),
      sources_(found_.size(), nullptr),
      lease_(desks, watch_) {}

void Meeting::run_direct() {
  post(0, &exchange_);
  meet();
  if (exchange_.take) {
    take_direct();
  } else {
    for (int p = 0; p < size(); ++p) {
      if (p == rank()) continue;
      const Reading reading(taken_from(p), theirs(p), transport_.lifeline(), what_);
      const Incoming& target = exchange_.from[static_cast<size_t>(p)];
      copy_bytes(target.data, message_of(p).data, target.bytes);
    }
  }
  for (int p = 0; p < size(); ++p) await_taken(p);
}

void Meeting::run_staged() {
  chunk_bytes_ = segment_.shape().buffer_bytes;
  if (!exchange_.same_to_all && size() > 2) chunk_bytes_ = chunk_bytes_ / (size() - 1) / 64 * 64;
  bug_check(chunk_bytes_ > 0, "meeting: the buffers are too small for ", size(), " ranks");
  const uint64_t chunks = num_chunks(exchange_.largest_bytes, chunk_bytes_);
  stage(0);
  post(1, nullptr);
  meet();
  for (uint64_t k = 0; k < chunks; ++k) {
    if (k > 0) {
      // The buffer of chunk k held chunk k - 2, which all peers have taken: they have staged chunk
      // k - 1 after that, and this rank has seen it.
      stage(k);
      mine().staged.store(k + 1);
      mine().staged_bell.ring();
    }
    for (int p = 0; p < size(); ++p) await_staged(p, k + 1);
    consume(k);
  }
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    taken_from(p).chunks.store(kAllTaken);
    theirs(p).taken_bell.ring();
  }
}

Progress& Meeting::taken_from(int peer) const {
  return segment_.taken(peer, found_[static_cast<size_t>(peer)].index, rank());
}

// The message that `peer`, a thread of this process, sends to this rank.
const Outgoing& Meeting::message_of(int peer) const {
  return static_cast<const Exchange*>(theirs(peer).direct)->to[static_cast<size_t>(rank())];
}

// The offset, in a buffer of rank `from`, of the chunks for rank `to`.
int64_t Meeting::place_in_buffer(int from, int to) const {
  return exchange_.same_to_all ? 0 : (to < from ? to : to - 1) * chunk_bytes_;
}

void Meeting::post(uint64_t staged, const void* direct) {
  for (int p = 0; p < size(); ++p) {
    segment_.taken(rank(), desk(), p).bytes = exchange_.to[static_cast<size_t>(p)].bytes;
  }
  desks_.post(desk(), DeskKey::of_meeting(call_.terms), call_.terms, staged, direct, -1);
}

// Returns once every rank has posted, all with the same terms and with what this rank expects.
void Meeting::meet() {
  const DeskKey key = DeskKey::of_meeting(call_.terms);
  std::vector<Terms> terms(found_.size(), call_.terms);
  bool agreed = true;
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    Desks::Found& found = found_[static_cast<size_t>(p)];
    watch_.await(segment_.rank(p).posted, p,
                 [&] { return (found = desks_.find(p, key)).desk != nullptr; });
    terms[static_cast<size_t>(p)] = found.desk->terms;
    agreed = agreed && found.desk->terms == call_.terms;
  }
  if (!agreed) throw_disagreement(terms, rank(), transport_.world_ranks());
  compare_sizes();
}

void Meeting::compare_sizes() const {
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    compare_size(call_.terms, transport_, p, taken_from(p).bytes,
                 exchange_.from[static_cast<size_t>(p)].bytes);
  }
}

bool Meeting::is_behind(int peer) const {
  const Desks::Found& found = found_[static_cast<size_t>(peer)];
  if (found.desk == nullptr) {
    return desks_.find(peer, DeskKey::of_meeting(call_.terms)).desk == nullptr;
  }
  if (leaving_) return segment_.taken(rank(), desk(), peer).chunks.load() != kAllTaken;
  return found.desk->staged.load() < needed_staged_;
}

void Meeting::await_taken(int peer) {
  if (peer == rank()) return;
  leaving_ = true;
  const Progress& taken = segment_.taken(rank(), desk(), peer);
  watch_.await(mine().taken_bell, peer, [&] { return taken.chunks.load() == kAllTaken; });
}

void Meeting::await_staged(int peer, uint64_t chunks) {
  if (peer == rank()) return;
  needed_staged_ = chunks;
  watch_.await(theirs(peer).staged_bell, peer,
               [&] { return theirs(peer).staged.load() >= chunks; });
}

void Meeting::take_direct() {
  std::vector<std::optional<Reading>> readings(found_.size());
  for (int p = 0; p < size(); ++p) {
    const auto place = static_cast<size_t>(p);
    if (p == rank()) {
      sources_[place] = exchange_.to[place].data;
      continue;
    }
    readings[place].emplace(taken_from(p), theirs(p), transport_.lifeline(), what_);
    sources_[place] = message_of(p).data;
  }
  const int64_t bytes = exchange_.from[static_cast<size_t>(rank())].bytes;
  if (bytes > 0) exchange_.take(0, bytes, sources_);
}

void Meeting::stage(uint64_t k) {
  std::byte* buffer = segment_.buffer(rank(), desk(), k);
  for (int p = 0; p < size(); ++p) {
    const Outgoing& message = exchange_.to[static_cast<size_t>(p)];
    const int64_t length = chunk_length(message.bytes, chunk_bytes_, k);
    if (p == rank() || length == 0) continue;
    copy_bytes(buffer + place_in_buffer(rank(), p), message.data + chunk_begin(chunk_bytes_, k),
               length);
    if (exchange_.same_to_all) return;
  }
}

void Meeting::consume(uint64_t k) {
  const int64_t first = chunk_begin(chunk_bytes_, k);
  for (int p = 0; p < size(); ++p) {
    const auto place = static_cast<size_t>(p);
    if (p == rank()) {
      const std::byte* own = exchange_.to[place].data;
      sources_[place] = own == nullptr ? nullptr : own + first;
      continue;
    }
    sources_[place] = segment_.buffer(p, found_[place].index, k) + place_in_buffer(p, rank());
    if (exchange_.take) continue;
    const Incoming& target = exchange_.from[place];
    const int64_t length = chunk_length(target.bytes, chunk_bytes_, k);
    if (length > 0) copy_bytes(target.data + first, sources_[place], length);
  }
  if (!exchange_.take) return;
  const int64_t mine = exchange_.from[static_cast<size_t>(rank())].bytes;
  const int64_t length = chunk_length(mine, chunk_bytes_, k);
  if (length > 0) exchange_.take(first, length, sources_);
}

}  // namespace zinc::comm
