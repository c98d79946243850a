#include "nn/sequence_ranks.h"

#include <algorithm>

#include "core/error.h"

namespace zinc::nn {

Tensor part_of_sequence(const SequenceRanks* ranks, const Tensor& whole) {
  if (ranks == nullptr) return whole;
  const int64_t T = whole.dim(1), size = ranks->size();
  if (T % size != 0) {
    throw ConfigError(str("zinc.mesh.sequence: ", size, " ranks cannot share sequences of ", T,
                          " tokens; take a length that ", size, " divides, or other ranks"));
  }
  return whole.narrow_view(1, ranks->rank() * (T / size), T / size).clone();
}

LocalHeads LocalHeads::of(std::string_view path, int64_t heads, int64_t kv_heads,
                          const TensorRanks* tensor, const SequenceRanks* sequence) {
  const int64_t slices = tensor == nullptr ? 1 : tensor->size();
  LocalHeads local{heads / slices, std::max<int64_t>(kv_heads / slices, 1), 0};
  if (tensor != nullptr) local.first = local.heads * tensor->rank();
  if (sequence == nullptr) return local;
  const int64_t size = sequence->size();
  if (local.heads % size != 0 || local.kv_heads % size != 0) {
    throw ConfigError(str(path, ": ", local.heads, " heads with ", local.kv_heads,
                          " heads of keys and values", slices > 1 ? " of a tensor rank" : "",
                          " cannot be shared by ", size,
                          " ranks; take a zinc.mesh.sequence that divides both"));
  }
  local.heads /= size;
  local.kv_heads /= size;
  local.first += local.heads * sequence->rank();
  return local;
}

}  // namespace zinc::nn
