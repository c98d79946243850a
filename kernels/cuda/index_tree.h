// kernels/cuda/index_tree.h: folds of a binary tree of indices, as Note [Order of sums] of
// kernels/reduce.h and Note [Chunk tree] of kernels/chunk_tree_sum.h prescribe: for width 1, 2, 4,
// ... the node at index i adds the node at i + width; an absent leaf is skipped.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {

inline constexpr int kTreeLevels = 40;

// A tree whose leaves come in order, in the memory of the caller: level l is at
// `partial[l * stride]`.
template <class T>
struct TreeOfParts {
  T* partial;
  int64_t stride = 1;
  int64_t count = 0;

  template <class Fold>
  __device__ __forceinline__ void push(T value, Fold fold) {
    int level = 0;
    for (; ((count >> level) & 1) != 0; ++level) value = fold(partial[level * stride], value);
    partial[level * stride] = value;
    ++count;
  }
  // The whole tree; `none` where nothing was pushed.
  template <class Fold>
  __device__ __forceinline__ T total(T none, Fold fold) const {
    T value = none;
    bool found = false;
    for (int level = 0; level < kTreeLevels; ++level) {
      if (((count >> level) & 1) == 0) continue;
      value = found ? fold(partial[level * stride], value) : partial[level * stride];
      found = true;
    }
    return value;
  }
};

// The tree over values[0 .. count) in shared memory, into values[0]: the threads with `index` 0, 1,
// ... work on it. All threads of the block call it, with the same count, behind a barrier; the
// result is behind one, too.
template <class T, class Fold>
__device__ __forceinline__ void fold_shared_tree(T* values, int index, int count, Fold fold) {
  for (int width = 1; width < count; width *= 2) {
    if (index % (2 * width) == 0 && index + width < count) {
      values[index] = fold(values[index], values[index + width]);
    }
    __syncthreads();
  }
}

}  // namespace zinc::kernels::cuda
