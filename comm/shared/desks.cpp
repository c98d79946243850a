#include "comm/shared/desks.h"

namespace zinc::comm {

int Desks::try_claim() {
  const std::lock_guard lock(mutex_);
  for (int index = 0; index < kNumDesks; ++index) {
    bool free = !in_use_[static_cast<size_t>(index)];
    for (int reader = 0; free && reader < segment_->shape().size; ++reader) {
      free = segment_->taken(rank_, index, reader).chunks.load() == kAllTaken;
    }
    if (!free) continue;
    in_use_[static_cast<size_t>(index)] = true;
    return index;
  }
  return -1;
}

int Desks::claim(const Watch& watch) {
  int index = -1;
  const auto ready = [&] { return (index = try_claim()) >= 0; };
  // Any reader may free any desk, so there is no one bell to wait for; desks are short only where
  // more streams are busy than a context has.
  watch.await(segment_->desk(rank_, 0).taken_bell, rank_, ready);
  return index;
}

void Desks::release(int index) {
  const std::lock_guard lock(mutex_);
  in_use_[static_cast<size_t>(index)] = false;
}

void Desks::post(int index, const DeskKey& key, const Terms& terms, uint64_t staged,
                 const void* direct, int only_reader) {
  Desk& desk = segment_->desk(rank_, index);
  desk.ticket.store(0);
  desk.key_number.store(key.number);
  desk.key_channel.store(key.channel);
  desk.terms = terms;
  desk.direct = direct;
  desk.staged.store(staged);
  for (int reader = 0; reader < segment_->shape().size; ++reader) {
    const bool reads = reader != rank_ && (only_reader < 0 || reader == only_reader);
    segment_->taken(rank_, index, reader).chunks.store(reads ? 0 : kAllTaken);
  }
  uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = ++last_ticket_;
  }
  desk.ticket.store(ticket);
  segment_->rank(rank_).posted.ring();
}

Desks::Found Desks::find(int owner, const DeskKey& key) const {
  for (int index = 0; index < kNumDesks; ++index) {
    Desk& desk = segment_->desk(owner, index);
    const uint64_t ticket = desk.ticket.load();
    if (ticket == 0 || desk.key_number.load() != key.number ||
        desk.key_channel.load() != key.channel) {
      continue;
    }
    // Keys are never used twice, so a desk that shows ours all the while stays as it is until this
    // rank has taken everything.
    if (desk.ticket.load() == ticket) return {&desk, index};
  }
  return {};
}

bool Desks::being_read(int index) const {
  for (int reader = 0; reader < segment_->shape().size; ++reader) {
    if (segment_->taken(rank_, index, reader).chunks.load() == kReading) return true;
  }
  return false;
}

}  // namespace zinc::comm
