#include "kernels/flat_index.h"

#include "core/parallel.h"
#include "kernels/cpu/row_ids.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void flat_index(const FlatIndex& args) {
  require_rows(args.op, "index", args.index, args.extent);
  const int64_t count = args.index.numel();
  const int64_t row = args.flat.dim(1) * args.flat.dim(2);
  const int64_t inner = args.flat.dim(2);
  auto* flat = args.flat.data_as<int64_t>();
  dispatch_index(args.index.dtype(), [&]<class T>() {
    const T* index = args.index.data_as<T>();
    parallel_for(args.flat.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const int64_t outer = e / row;
        const int64_t place = count == row ? e % row : e;
        flat[e] = (outer * args.extent + int64_t{index[place]}) * inner + e % inner;
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
