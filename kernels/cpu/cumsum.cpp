#include "kernels/cumsum.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

// An addition waits for the one before it: rows in parallel are all there is to gain.
void cumsum(const Cumsum& args) {
  const int64_t cols = args.x.cols();
  dispatch_float(args.x.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* x = args.x.data_as<T>();
    T* y = args.y.data_as<T>();
    parallel_for(args.x.rows(), std::max<int64_t>(1, kElementGrain / cols),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r) {
                     A sum = A(0);
                     for (int64_t i = 0; i < cols; ++i) {
                       const int64_t at = r * cols + (args.reverse ? cols - 1 - i : i);
                       sum += A(x[at]);
                       y[at] = T(sum);
                     }
                   }
                 });
  });
}

}  // namespace zinc::kernels::cpu
