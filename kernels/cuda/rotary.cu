// Rotary position embedding in place: a thread turns a pack's worth of pairs of one head, read as
// two packs: of the two halves, or side by side. Traffic: q and k in and out, a row of the tables
// per token.
#include "kernels/rotary.h"

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/indices.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
struct RotaryArgs {
  T* x;
  int64_t stride[3];  // strides of B, T and the heads
  int64_t length, heads, tokens;
  const float *cos, *sin;
  int64_t pairs, start;
  TableRows table_rows;
  Indices positions;
  bool half_split, inverse;
  bool aligned;  // heads and tables
};

template <class T>
__global__ void __launch_bounds__(kMapThreads) rotary_kernel(RotaryArgs<T> args) {
  constexpr int kCount = kPack<T>;
  const int64_t per_head = (args.pairs + kCount - 1) / kCount;
  const int64_t per_token = per_head * args.heads;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       item < per_token * args.tokens; item += step) {
    const int64_t token = item / per_token;
    const int64_t rest = item - token * per_token;
    const int64_t head = rest / per_head;
    const int64_t j = (rest - head * per_head) * kCount;
    const int64_t b = token / args.length;
    const int64_t t = token - b * args.length;
    T* x = args.x + b * args.stride[0] + t * args.stride[1] + head * args.stride[2];
    const int64_t position = args.positions.is_absent() ? args.start + t : args.positions[token];

    // Pairs side by side are a run of 2 * kCount elements.
    T* low = args.half_split ? x : x + j;
    T* high = args.half_split ? x + args.pairs : low + kCount;
    const int64_t low_end = args.half_split ? args.pairs : 2 * args.pairs - j;
    const int64_t high_end = args.half_split ? args.pairs : low_end - kCount;
    float a[kCount], c[kCount], cos[kCount], sin[kCount];
    load_floats(low, j, low_end, args.aligned, a);
    load_floats(high, j, high_end, args.aligned, c);
    if (args.table_rows.has(position, token)) {
      load_floats(args.cos + position * args.pairs, j, args.pairs, args.aligned, cos);
      load_floats(args.sin + position * args.pairs, j, args.pairs, args.aligned, sin);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) cos[i] = sin[i] = NAN;
    }
    const auto turn = [&](float& u, float& v, int i) {
      const float s = args.inverse ? -sin[i] : sin[i];
      const float before = u;
      u = before * cos[i] - v * s;
      v = before * s + v * cos[i];
    };
    if (args.half_split) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) turn(a[i], c[i], i);
    } else {
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        turn(a[2 * i], a[2 * i + 1], i);
        turn(c[2 * i], c[2 * i + 1], kCount / 2 + i);
      }
    }
    store_floats(low, j, low_end, args.aligned, a);
    store_floats(high, j, high_end, args.aligned, c);
  }
}

template <class T>
void turn(const View& x, const Rotary& args, StreamRef stream) {
  const int64_t pairs = args.cos.cols();
  const bool half_split = args.layout == RotaryLayout::half_split;
  bool aligned = is_aligned_for_packs(args.cos, pairs) && is_aligned_for_packs(args.sin, pairs);
  for (int d = 0; d < 3; ++d) aligned = aligned && is_aligned_for_packs(x, x.stride(d));
  if (half_split) aligned = aligned && is_aligned_for_packs(x, pairs);
  const RotaryArgs<T> kernel_args{x.data_as<T>(),
                                  {x.stride(0), x.stride(1), x.stride(2)},
                                  x.dim(1),
                                  x.dim(2),
                                  x.dim(0) * x.dim(1),
                                  args.cos.data_as<float>(),
                                  args.sin.data_as<float>(),
                                  pairs,
                                  args.start,
                                  TableRows(args.cos.dim(0), "rotary", "positions", stream),
                                  Indices(args.positions),
                                  half_split,
                                  args.inverse,
                                  aligned};
  const int64_t items = kernel_args.tokens * x.dim(2) * packs_of(pairs, kPack<T>);
  if (items == 0) return;
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
  launch(rotary_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
         kernel_args);
}

}  // namespace

void rotary(const Rotary& args, StreamRef stream) {
  dispatch_device_float("rotary", args.q.dtype(), [&]<class T>() {
    turn<T>(args.q, args, stream);
    if (args.k) turn<T>(args.k, args, stream);
  });
}

}  // namespace zinc::kernels::cuda
