// kernels/cuda/elementwise.h: out_k[i] = f_k(in_0[i], in_1[i], ...) over views of one shape whose
// outer strides are free. Each element is read and written once, 16 bytes at a time where alignment
// allows; the values do not depend on it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/shape.h"
#include "core/view.h"
#include "kernels/broadcast.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/special_function.h"

namespace zinc::kernels::cuda {

// N views of one shape as rows of contiguous elements, or of one element that is repeated:
// dimensions that lie without a gap in all of them are merged, so that contiguous views are one
// row.
template <int N>
struct ElementSpace {
  int64_t cols = 1;
  int64_t rows = 1;
  int outer = 0;  // dimensions of the rows, innermost first
  int64_t extent[kMaxRank] = {};
  int64_t stride[kMaxRank][N] = {};
  int64_t step[N] = {};  // from one element of a row to the next: 1, or 0 where an element repeats
  bool aligned = true;
};

// The dimension along which rows lie: the last with several elements, where every view has them
// side by side or repeats one; else the last.
template <size_t N>
int row_dimension(const Shape& shape, const std::array<Strides, N>& strides) {
  int d = shape.rank() - 1;
  while (d > 0 && shape[d] == 1) --d;
  for (size_t v = 0; d >= 0 && v < N; ++v) {
    const int64_t stride = strides[v][static_cast<size_t>(d)];
    if (stride != 0 && stride != 1) return shape.rank() - 1;
  }
  return d;
}

// Views stretch to `shape` (kernels/broadcast.h).
template <size_t N>
ElementSpace<static_cast<int>(N)> element_space(const Shape& shape,
                                                const std::array<ConstView, N>& views) {
  ElementSpace<static_cast<int>(N)> space;
  std::array<Strides, N> strides;
  for (size_t v = 0; v < N; ++v) strides[v] = broadcast_strides(views[v], shape);
  const int innermost = row_dimension(shape, strides);
  space.cols = innermost < 0 ? 1 : shape[innermost];
  for (size_t v = 0; v < N; ++v) {
    space.step[v] = space.cols > 1 && strides[v][static_cast<size_t>(innermost)] == 0 ? 0 : 1;
  }
  const auto joins = [&](size_t d, int64_t extent, const int64_t* inner) {
    for (size_t v = 0; v < N; ++v) {
      if (strides[v][d] != extent * inner[v]) return false;
    }
    return true;
  };
  for (int i = innermost - 1; i >= 0; --i) {
    const auto d = static_cast<size_t>(i);
    if (shape[i] == 1) continue;
    space.rows *= shape[i];
    if (space.outer == 0 && joins(d, space.cols, space.step)) {
      space.cols *= shape[i];
      space.rows = 1;
    } else if (space.outer > 0 &&
               joins(d, space.extent[space.outer - 1], space.stride[space.outer - 1])) {
      space.extent[space.outer - 1] *= shape[i];
    } else {
      space.extent[space.outer] = shape[i];
      for (size_t v = 0; v < N; ++v) space.stride[space.outer][v] = strides[v][d];
      ++space.outer;
    }
  }
  for (size_t v = 0; v < N; ++v) {
    if (space.step[v] == 0) continue;
    space.aligned = space.aligned && is_aligned_for_packs(views[v], 0);
    for (int d = 0; d < space.outer; ++d) {
      space.aligned = space.aligned && is_aligned_for_packs(views[v], space.stride[d][v]);
    }
  }
  return space;
}
template <size_t N>
ElementSpace<static_cast<int>(N)> element_space(const std::array<ConstView, N>& views) {
  return element_space(views[0].shape(), views);
}

// Elements [first, first + kCount) of n as V, f32 but for integers; those beyond n read 0. kCount
// is a multiple of kPack<T> or a part of it, `first` is a multiple of kCount.
template <int kCount, class T, class Aligned, class V>
__device__ __forceinline__ void load_floats(const T* from, int64_t first, int64_t n,
                                            Aligned aligned, V (&out)[kCount]) {
  constexpr int kPart = kCount < kPack<T> ? kCount : kPack<T>;
  static_assert(kCount % kPart == 0);
#pragma unroll
  for (int p = 0; p < kCount; p += kPart) {
    const Pack<T, kPart> pack = load_part<kPart>(from, first + p, n, aligned);
#pragma unroll
    for (int i = 0; i < kPart; ++i) out[p + i] = static_cast<V>(pack.at[i]);
  }
}
template <int kCount, class T, class Aligned, class V>
__device__ __forceinline__ void store_floats(T* to, int64_t first, int64_t n, Aligned aligned,
                                             const V (&values)[kCount]) {
  constexpr int kPart = kCount < kPack<T> ? kCount : kPack<T>;
  static_assert(kCount % kPart == 0);
#pragma unroll
  for (int p = 0; p < kCount; p += kPart) {
    Pack<T, kPart> pack;
#pragma unroll
    for (int i = 0; i < kPart; ++i) pack.at[i] = T(values[p + i]);
    store_part(to, first + p, n, aligned, pack);
  }
}

// store_floats(), with the conversion of rounded_pack() where the values fit into one pack.
template <int kCount, class T, class Aligned>
__device__ __forceinline__ void store_rounded(T* to, int64_t first, int64_t n, Aligned aligned,
                                              const float (&values)[kCount]) {
  if constexpr (kCount <= kPack<T>) {
    store_part(to, first, n, aligned, rounded_pack<T>(values));
  } else {
    store_floats(to, first, n, aligned, values);
  }
}

// Finds the row of run `item`, where every row has `per_row` runs: writes the row's first element
// in each view to `offset` and returns the number of the run in its row.
template <int N>
__device__ __forceinline__ int64_t locate(const ElementSpace<N>& space, int64_t item,
                                          int64_t per_row, int64_t (&offset)[N]) {
  if (space.outer == 0) return item;
  int64_t row = item / per_row;
  const int64_t run = item - row * per_row;
  for (int d = 0; d < space.outer; ++d) {
    const int64_t index = row % space.extent[d];
    row /= space.extent[d];
    for (int v = 0; v < N; ++v) offset[v] += index * space.stride[d][v];
  }
  return run;
}

// load_floats(), or one element for all where `step` is 0.
template <int kCount, class T, class Aligned, class V>
__device__ __forceinline__ void load_or_repeat(const T* from, int64_t step, int64_t first,
                                               int64_t n, Aligned aligned, V (&out)[kCount]) {
  if constexpr (!std::is_same_v<Aligned, WholePacks>) {
    if (step == 0) {
      const V value = static_cast<V>(*from);
#pragma unroll
      for (int i = 0; i < kCount; ++i) out[i] = value;
      return;
    }
  }
  load_floats(from, first, n, aligned, out);
}

inline constexpr int kMapThreads = 256;
inline constexpr int64_t kMaxMapBlocks = 132 * 32;

template <class Out, int kOuts>
struct Outputs {
  Out* at[kOuts];
};

// With WholePacks the views are a single row, without repetition. `function(in, out)` is called per
// element with Element in[sizeof...(In)] and Element out[kOuts]; views 0 to kOuts - 1 of the space
// are the outputs, the inputs follow.
template <int kCount, class Aligned, class Function, class Out, int kOuts, class... In>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(ElementSpace<kOuts + static_cast<int>(sizeof...(In))> space, Aligned aligned,
               Function function, Outputs<Out, kOuts> out, const In*... in) {
  constexpr int kIns = static_cast<int>(sizeof...(In));
  using Element = typename Function::Element;
  function.begin();
  const int64_t per_row = (space.cols + kCount - 1) / kCount;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * space.rows;
       item += step) {
    int64_t offset[kOuts + kIns] = {};
    int64_t first = item * kCount;
    if constexpr (!std::is_same_v<Aligned, WholePacks>) {
      first = locate(space, item, per_row, offset) * kCount;
    }
    Element values[kIns][kCount];
    int view = 0;  // a comma fold goes from left to right
    ((load_or_repeat(in + offset[kOuts + view], space.step[kOuts + view], first, space.cols,
                     aligned, values[view]),
      ++view),
     ...);
    Element results[kOuts][kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      Element arguments[kIns];
      Element made[kOuts];
#pragma unroll
      for (int v = 0; v < kIns; ++v) arguments[v] = values[v][i];
      function(arguments, made);
#pragma unroll
      for (int v = 0; v < kOuts; ++v) results[v][i] = made[v];
    }
#pragma unroll
    for (int v = 0; v < kOuts; ++v) {
      if constexpr (Function::kPromisesBits) {
        store_floats(out.at[v] + offset[v], first, space.cols, aligned, results[v]);
      } else {
        store_rounded(out.at[v] + offset[v], first, space.cols, aligned, results[v]);
      }
    }
  }
}

// A map whose function needs nothing before its first element.
struct PlainFunction {
  using Element = float;
  static constexpr bool kHot = false;
  static constexpr bool kPromisesBits = true;
  __device__ __forceinline__ void begin() {}
};
// A function that training uses at every step: it is also compiled for whole packs.
struct HotFunction : PlainFunction {
  static constexpr bool kHot = true;
};

struct Identity : HotFunction {
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0];
  }
};

// Queues the map of `function` over at least one element. Inputs stretch to the shape of the
// outputs; `Out` and `In` are the types of the views.
template <class Out, class... In, class Function, size_t kOuts, size_t kIns>
void launch_map(Function function, const std::array<View, kOuts>& outs,
                const std::array<ConstView, kIns>& ins, StreamRef stream) {
  static_assert(sizeof...(In) == kIns);
  // A pack of the widest type: neighbouring threads then read and write neighbouring bytes of every
  // array.
  constexpr int kCount = std::min({kPack<Out>, kPack<In>...});
  std::array<ConstView, kOuts + kIns> views;
  std::copy(outs.begin(), outs.end(), views.begin());
  std::copy(ins.begin(), ins.end(), views.begin() + kOuts);
  const auto space = element_space(outs[0].shape(), views);
  const int64_t items = packs_of(space.cols, kCount) * space.rows;
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
  Outputs<Out, static_cast<int>(kOuts)> out;
  for (size_t v = 0; v < kOuts; ++v) out.at[v] = outs[v].template data_as<Out>();
  const auto run = [&]<class Aligned, size_t... kView>(Aligned aligned,
                                                       std::index_sequence<kView...>) {
    launch(map_kernel<kCount, Aligned, Function, Out, static_cast<int>(kOuts), In...>,
           dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream, space, aligned,
           function, out, ins[kView].template data_as<In>()...);
  };
  if constexpr (Function::kHot) {
    const bool repeats = std::ranges::find(space.step, 0) != std::end(space.step);
    if (space.outer == 0 && space.aligned && !repeats && space.cols % kCount == 0) {
      return run(WholePacks{}, std::make_index_sequence<kIns>());
    }
  }
  run(space.aligned, std::make_index_sequence<kIns>());
}

}  // namespace zinc::kernels::cuda
