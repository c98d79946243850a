#include "text/piece_cache.h"

#include <cstring>
#include <utility>

namespace zinc::text {
namespace {

constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;

uint64_t load_bytes(const char* at, size_t count) {
  uint64_t word = 0;
  std::memcpy(&word, at, count);
  return word;
}

}  // namespace

PieceCache::Key PieceCache::key_of(std::string_view piece) {
  uint64_t hash = piece.size() * kMix;
  const auto take = [&](uint64_t word) {
    hash = (hash ^ word) * kMix;
    hash ^= hash >> 29;
  };
  size_t i = 0;
  for (; i + 8 <= piece.size(); i += 8) take(load_bytes(piece.data() + i, 8));
  if (i < piece.size()) take(load_bytes(piece.data() + i, piece.size() - i));
  return {piece, hash * kMix};
}

bool PieceCache::append_to(std::vector<int32_t>& ids, const Key& key) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = (key.hash >> 20) & mask; slots_[i].num_ids != 0; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.hash != key.hash || slot.text_bytes != key.piece.size() ||
        std::memcmp(texts_.data() + slot.text_begin, key.piece.data(), key.piece.size()) != 0) {
      continue;
    }
    if (slot.num_ids == 1) {
      ids.push_back(ids_[slot.ids_begin]);
    } else {
      const int32_t* first = ids_.data() + slot.ids_begin;
      ids.insert(ids.end(), first, first + slot.num_ids);
    }
    return true;
  }
  return false;
}

void PieceCache::keep(const Key& key, std::span<const int32_t> ids) {
  if (key.piece.size() > kMaxPieceBytes || ids.empty()) return;
  if (num_pieces_ == kMaxPieces) {
    slots_.assign(slots_.size(), Slot{});
    texts_.clear();
    ids_.clear();
    num_pieces_ = 0;
  }
  const size_t mask = slots_.size() - 1;
  size_t i = (key.hash >> 20) & mask;
  while (slots_[i].num_ids != 0) i = (i + 1) & mask;
  slots_[i] = {.hash = key.hash,
               .text_begin = static_cast<uint32_t>(texts_.size()),
               .ids_begin = static_cast<uint32_t>(ids_.size()),
               .num_ids = static_cast<uint32_t>(ids.size()),
               .text_bytes = static_cast<uint32_t>(key.piece.size())};
  texts_.insert(texts_.end(), key.piece.begin(), key.piece.end());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++num_pieces_;
}

std::unique_ptr<PieceCache> PieceCachePool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<PieceCache> cache = std::move(free_.back());
      free_.pop_back();
      return cache;
    }
  }
  return std::make_unique<PieceCache>();
}

void PieceCachePool::give_back(std::unique_ptr<PieceCache> cache) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < kMaxKept) free_.push_back(std::move(cache));
}

}  // namespace zinc::text
