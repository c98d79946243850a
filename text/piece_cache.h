// text/piece_cache.h: the ids of pieces that were encoded before. Text repeats its words, so
// that most pieces are found here.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace zinc::text {

// For one thread at a time. Bounded: when the cache is full it is emptied.
class PieceCache {
 public:
  static constexpr size_t kMaxPieceBytes = 64;  // longer pieces are not kept
  static constexpr size_t kMaxPieces = size_t{1} << 16;

  PieceCache() : slots_(2 * kMaxPieces) {}

  struct Key {
    std::string_view piece;
    uint64_t hash;
  };
  static Key key_of(std::string_view piece);

  // Appends the ids and says true, where the piece is known.
  bool append_to(std::vector<int32_t>& ids, const Key& key) const;
  void keep(const Key& key, std::span<const int32_t> ids);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text_begin = 0, ids_begin = 0;
    uint32_t num_ids = 0;  // 0: the slot is free
    uint32_t text_bytes = 0;
  };
  std::vector<Slot> slots_;
  std::vector<char> texts_;
  std::vector<int32_t> ids_;
  size_t num_pieces_ = 0;
};

// Lends a cache to each call that is under way.
class PieceCachePool {
 public:
  static constexpr size_t kMaxKept = 64;

  std::unique_ptr<PieceCache> take();
  void give_back(std::unique_ptr<PieceCache> cache);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PieceCache>> free_;
};

}  // namespace zinc::text
