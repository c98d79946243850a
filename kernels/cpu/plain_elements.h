// kernels/cpu/plain_elements.h: element-wise functions over views of one plain type: the f64 loops,
// and those of integers.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/broadcast.h"
#include "kernels/cpu/f64_number.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/elementwise_table.h"

namespace zinc::kernels::cpu {

#undef ZINC_ELEMENT
#define ZINC_ELEMENT inline
#include "kernels/elementwise_rows-inl.h"

// out[i] = function(in[0][i], ...), in parallel. Inputs stretch to the shape of `out`
// (kernels/broadcast.h). Views are of Out and In.
template <class Out, class In, size_t kIns, class Function>
void map_plain(const View& out, const std::array<ConstView, kIns>& in, const Function& function) {
  std::array<Strides, kIns + 1> strides{};
  std::array<const In*, kIns> from{};
  for (size_t k = 0; k < kIns; ++k) {
    strides[k] = broadcast_strides(in[k], out.shape());
    from[k] = in[k].template data_as<In>();
  }
  strides[kIns] = out.strides();
  Out* to = out.data_as<Out>();
  const RowWalk<kIns + 1> walk(out.shape(), strides);
  parallel_for(walk.total(), kElementGrain, [&](int64_t begin, int64_t end) {
    walk.run(begin, end, [&](const auto& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        [&]<size_t... k>(std::index_sequence<k...>) {
          to[at[kIns] + i] =
              static_cast<Out>(function(from[k][at[k] + (walk.repeats(k) ? 0 : i)]...));
        }
        (std::make_index_sequence<kIns>());
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
