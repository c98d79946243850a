#include "kernels/tree_sum.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"

namespace zinc::kernels::cpu {
namespace {

constexpr int64_t kBlock = 512;      // elements whose partial sums stay in the first-level cache
constexpr int64_t kGrain = 1 << 15;  // elements of a thread's turn
constexpr int kLevels = 11;          // 2^10 arrays

// Note [Binary counter]
// Arrays are taken in order. Bit l of the number taken so far says that `partial[l]` holds the sum
// of a complete subtree of 2^l arrays; two of one size make one of the next, left plus right. At
// the end the subtrees that are left over are added from the smallest up, which is what skipping
// the absent leaves means.
template <class In, class Out>
void sum_block(const In* in, int64_t stride, int64_t count, Out* out, bool accumulate, int64_t n) {
  using Sum = AccumulatorOf<In>;
  std::array<std::array<Sum, kBlock>, kLevels> partial;
  for (int64_t r = 0; r < count; ++r) {
    int level = 0;
    while (((r >> level) & 1) != 0) ++level;
    Sum* sum = partial[static_cast<size_t>(level)].data();
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Sum>(in[r * stride + i]);
    for (int l = 0; l < level; ++l) {
      // The subtree just finished is the right-hand one.
      const Sum* left = partial[static_cast<size_t>(l)].data();
      for (int64_t i = 0; i < n; ++i) sum[i] = left[i] + sum[i];
    }
  }
  Sum* total = nullptr;
  for (int level = 0; level < kLevels; ++level) {
    if (((count >> level) & 1) == 0) continue;
    Sum* sum = partial[static_cast<size_t>(level)].data();
    if (total != nullptr) {
      for (int64_t i = 0; i < n; ++i) sum[i] += total[i];
    }
    total = sum;
  }
  for (int64_t i = 0; i < n; ++i) {
    out[i] = Out(accumulate ? static_cast<Sum>(out[i]) + total[i] : total[i]);
  }
}

template <class In, class Out>
void run(const TreeSum& args) {
  const In* in = args.in.data_as<In>();
  Out* out = args.out.data_as<Out>();
  const int64_t count = args.in.dim(0);
  const int64_t stride = args.in.stride(0);
  parallel_for(args.in.dim(1), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kBlock) {
      sum_block(in + i, stride, count, out + i, args.accumulate, std::min(kBlock, end - i));
    }
  });
}

}  // namespace

void tree_sum(const TreeSum& args) {
  dispatch_float(args.in.dtype(), [&]<class T>() {
    if (args.out.dtype() == args.in.dtype()) {
      run<T, T>(args);
    } else if constexpr (sizeof(T) == 2) {
      run<T, float>(args);
    }
  });
}

}  // namespace zinc::kernels::cpu
