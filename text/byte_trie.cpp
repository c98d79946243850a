#include "text/byte_trie.h"

#include <utility>

namespace zinc::text {

void ByteTrie::grow() {
  const std::vector<Edge> old = std::exchange(edges_, std::vector<Edge>(edges_.size() * 2));
  for (const Edge& edge : old) {
    if (edge.node == 0) continue;
    edges_[slot(static_cast<uint32_t>(edge.key >> 8), static_cast<unsigned char>(edge.key))] = edge;
  }
}

void ByteTrie::insert(std::string_view word, int32_t value) {
  uint32_t node = 0;
  for (size_t i = 0; i < word.size(); ++i) {
    if (2 * (size_t{num_edges_} + 1) > edges_.size()) grow();
    const auto byte = static_cast<unsigned char>(word[i]);
    Edge& edge = edges_[slot(node, byte)];
    if (edge.node == 0) edge = {.key = uint64_t{node} << 8 | byte, .node = ++num_edges_};
    if (i + 1 == word.size() && edge.value == kNone) edge.value = value;
    node = edge.node;
  }
}

}  // namespace zinc::text
