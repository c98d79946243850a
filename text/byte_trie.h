// text/byte_trie.h: a set of byte strings, each with a number, that is asked for prefixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace zinc::text {

class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  ByteTrie() { edges_.resize(64); }

  // `value` >= 0. A word that is there already keeps its value.
  void insert(std::string_view word, int32_t value);
  bool empty() const { return num_edges_ == 0; }

  // Calls visit(length, value) for each word that `text` begins with, the shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit&& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const Edge& edge = edges_[slot(node, static_cast<unsigned char>(text[i]))];
      if (edge.node == 0) return;
      node = edge.node;
      if (edge.value != kNone) visit(i + 1, edge.value);
    }
  }

 private:
  // A node has the number of the edge that leads to it; 0 is the root.
  struct Edge {
    uint64_t key = 0;
    uint32_t node = 0;  // 0: the slot is free
    int32_t value = kNone;
  };
  size_t slot(uint32_t node, unsigned char byte) const {
    const uint64_t key = uint64_t{node} << 8 | byte;
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    size_t i = (hash >> 32) & (edges_.size() - 1);
    while (edges_[i].node != 0 && edges_[i].key != key) i = (i + 1) & (edges_.size() - 1);
    return i;
  }
  void grow();

  std::vector<Edge> edges_;  // open addressing, a power of two, at most half full
  uint32_t num_edges_ = 0;
};

}  // namespace zinc::text
