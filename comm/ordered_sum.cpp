#include "comm/ordered_sum.h"

#include <array>

namespace zinc::comm {
namespace {

template <class T>
AccumulatorOf<T> sum_at(std::span<const std::byte* const> sources, int64_t i, size_t first,
                        size_t width) {
  if (width == 1)
    return static_cast<AccumulatorOf<T>>(reinterpret_cast<const T*>(sources[first])[i]);
  const size_t half = width / 2;
  const auto left = sum_at<T>(sources, i, first, half);
  if (first + half >= sources.size()) return left;
  return left + sum_at<T>(sources, i, first + half, half);
}

template <class T, class Out>
void run(const OrderedSum& args) {
  size_t width = 1;
  while (width < args.sources.size()) width *= 2;
  Out* out = reinterpret_cast<Out*>(args.out);
  for (int64_t i = 0; i < args.n; ++i) {
    const auto sum = sum_at<T>(args.sources, i, 0, width);
    out[i] = Out(args.accumulate ? static_cast<AccumulatorOf<T>>(out[i]) + sum : sum);
  }
}

}  // namespace

void ordered_sum(const OrderedSum& args) {
  dispatch_float(args.dtype, [&]<class T>() {
    if (args.out_dtype == args.dtype) {
      run<T, T>(args);
    } else if constexpr (sizeof(T) == 2) {
      run<T, float>(args);
    }
  });
}

}  // namespace zinc::comm
