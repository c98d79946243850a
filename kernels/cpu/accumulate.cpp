#include "kernels/accumulate.h"

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void accumulate_lanes(const Accumulate& args);

void accumulate(const Accumulate& args) {
  if (args.accumulator.dtype() != DType::f64) return accumulate_lanes(args);
  double* total = args.accumulator.data_as<double>();
  dispatch_float(args.x.dtype(), [&]<class T>() {
    const T* x = args.x.data_as<T>();
    parallel_for(args.x.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double value{AccumulatorOf<T>(x[i])};
        total[i] = args.overwrite ? value : total[i] + value;
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
