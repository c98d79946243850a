#include "kernels/dropout.h"

#include "core/parallel.h"

namespace zinc::kernels::cpu {

// residual may be absent.
void dropout_residual(const DropoutResidual& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* x = args.x.data_as<T>();
    const T* residual = args.residual ? args.residual.data_as<T>() : nullptr;
    T* y = args.y.data_as<T>();
    const float threshold = static_cast<float>(args.p);
    const A factor = args.p == 1.0 ? A(0) : static_cast<A>(1.0 / (1.0 - args.p));
    const auto first = static_cast<uint64_t>(args.first_element);
    parallel_for(args.x.numel(), 1 << 12, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const bool kept =
            args.p < 1.0 && args.key.uniform(first + static_cast<uint64_t>(i)) >= threshold;
        const A value = kept ? A(x[i]) * factor : A(0);
        y[i] = T(residual == nullptr ? value : A(residual[i]) + value);
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
