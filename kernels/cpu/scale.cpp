#include "kernels/scale.h"

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void scale(const Scale& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* x = args.x.data_as<T>();
    T* y = args.y.data_as<T>();
    A factor = static_cast<A>(args.factor);
    if (args.device_factor) factor *= A(*args.device_factor.data_as<float>());
    parallel_elements(
        args.x.shape(),
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) y[at[1] + i] = T(A(x[at[0] + i]) * factor);
        },
        args.x, args.y);
  });
}

}  // namespace zinc::kernels::cpu
