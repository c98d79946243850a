#include "comm/ordered_sum.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace zinc::comm {
namespace {

constexpr int64_t kBlock = 512;  // elements whose partial sums stay in the first-level cache
constexpr size_t kLevels = 11;   // 2^10 ranks

// body(i) for i < n. Whole blocks have a length that the compiler knows, so it makes vectors of
// them.
template <class Body>
void for_each(int64_t n, const Body& body) {
  if (n == kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) body(i);
  } else {
    for (int64_t i = 0; i < n; ++i) body(i);
  }
}

template <class T, class Out>
class Blocks {
 public:
  using Sum = AccumulatorOf<T>;

  // Sources are taken in order. Bit l of the number taken so far says that partial_[l] holds the
  // sum of a complete subtree of 2^l of them; two of one size make one of the next, left plus
  // right. At the end those that are left over are added from the smallest up.
  void sum(std::span<const std::byte* const> sources, int64_t begin, int64_t n) {
    for (size_t r = 0; r < sources.size(); ++r) {
      const T* in = reinterpret_cast<const T*>(sources[r]) + begin;
      size_t level = 0;
      while (((r >> level) & 1) != 0) ++level;
      Sum* sum = partial_[level].data();
      if (level == 0) {
        for_each(n, [&](int64_t i) { sum[i] = static_cast<Sum>(in[i]); });
        continue;
      }
      const Sum* left = partial_[0].data();
      for_each(n, [&](int64_t i) { sum[i] = left[i] + static_cast<Sum>(in[i]); });
      for (size_t l = 1; l < level; ++l) add(partial_[l].data(), sum, n);
    }
    total_ = nullptr;
    for (size_t level = 0; level < kLevels; ++level) {
      if (((sources.size() >> level) & 1) == 0) continue;
      Sum* sum = partial_[level].data();
      if (total_ != nullptr) add(total_, sum, n);
      total_ = sum;
    }
  }

  void store(Out* out, int64_t n, bool accumulate) const {
    const Sum* total = total_;
    if (accumulate) {
      for_each(n, [&](int64_t i) { out[i] = Out(static_cast<Sum>(out[i]) + total[i]); });
    } else {
      for_each(n, [&](int64_t i) { out[i] = Out(total[i]); });
    }
  }

 private:
  static void add(const Sum* left, Sum* right, int64_t n) {
    for_each(n, [&](int64_t i) { right[i] = left[i] + right[i]; });
  }

  std::array<std::array<Sum, kBlock>, kLevels> partial_;
  const Sum* total_ = nullptr;
};

template <class T, class Out>
void run(const OrderedSum& args) {
  Blocks<T, Out> blocks;
  Out* out = reinterpret_cast<Out*>(args.out);
  for (int64_t begin = 0; begin < args.n; begin += kBlock) {
    const int64_t n = std::min(kBlock, args.n - begin);
    blocks.sum(args.sources, begin, n);
    blocks.store(out + begin, n, args.accumulate);
  }
}

}  // namespace

void ordered_sum(const OrderedSum& args) {
  bug_check(args.sources.size() < size_t{1} << kLevels, "ordered_sum of ", args.sources.size(),
            " ranks");
  dispatch_float(args.dtype, [&]<class T>() {
    if (args.out_dtype == args.dtype) {
      run<T, T>(args);
    } else if constexpr (sizeof(T) == 2) {
      run<T, float>(args);
    }
  });
}

}  // namespace zinc::comm
