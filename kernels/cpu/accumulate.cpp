#include "kernels/accumulate.h"

#include "core/parallel.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void accumulate(const Accumulate& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    dispatch_float(args.accumulator.dtype(), [&]<class Total>() {
      using A = AccumulatorOf<Total>;
      if constexpr (!std::is_same_v<T, double> || std::is_same_v<Total, double>) {
        const T* x = args.x.data_as<T>();
        Total* total = args.accumulator.data_as<Total>();
        parallel_for(args.x.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const A value = static_cast<A>(static_cast<AccumulatorOf<T>>(x[i]));
            total[i] = Total(args.overwrite ? value : A(total[i]) + value);
          }
        });
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
