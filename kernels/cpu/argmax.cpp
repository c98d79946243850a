#include "kernels/argmax.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/checks.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

template <class T>
int64_t place_of_best(const T* row, int64_t cols, bool smallest) {
  using A = AccumulatorOf<T>;
  int64_t place = 0;
  A best = A(row[0]);
  if (best != best) return 0;
  for (int64_t i = 1; i < cols; ++i) {
    const A value = A(row[i]);
    if (value != value) return i;
    if (smallest ? value < best : value > best) {
      best = value;
      place = i;
    }
  }
  return place;
}

}  // namespace

void argmax(const Argmax& args) {
  const int64_t cols = args.x.dim(1);
  const int64_t stride = row_stride("argmax", "x", args.x);
  auto* y = args.y.data_as<int64_t>();
  dispatch_float(args.x.dtype(), [&]<class T>() {
    const T* x = args.x.data_as<T>();
    parallel_for(args.x.dim(0), std::max<int64_t>(1, kElementGrain / cols),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r) {
                     y[r] = place_of_best(x + r * stride, cols, args.smallest);
                   }
                 });
  });
}

}  // namespace zinc::kernels::cpu
