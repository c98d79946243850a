// <dout, out> of every query, f32, in the order of a warp's lanes; a warp per query. Bytes moved:
// dout and out once.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(AttentionShape shape, HeadRows<const T> outs, HeadRows<const T> douts,
                 float* delta) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i =
      int64_t{blockIdx.x} * (kThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t h = blockIdx.y, b = blockIdx.z;
  float sum = 0.0f;
  if (i < shape.Tq) {
    const T* dout = douts.at(b, i, h);
    const T* out = outs.at(b, i, h);
    for (int64_t d = lane; d < shape.D; d += kWarp) {
      sum += static_cast<float>(dout[d]) * static_cast<float>(out[d]);
    }
  }
  sum = warp_sum(sum);
  if (i < shape.Tq && lane == 0) delta[(b * shape.H + h) * shape.Tq + i] = sum;
}

}  // namespace

void attention_delta(const AttentionProblem& p, const AttentionShape& shape,
                     const AttentionGradients& gradients, float* delta, StreamRef stream) {
  if (p.Tq == 0) return;
  constexpr int64_t kRowsPerBlock = kThreads / kWarp;
  const dim3 grid(static_cast<unsigned>((p.Tq + kRowsPerBlock - 1) / kRowsPerBlock),
                  static_cast<unsigned>(p.H), static_cast<unsigned>(p.B));
  dispatch_device_float("attention_backward", p.dtype, [&]<class T>() {
    launch(delta_kernel<T>, grid, dim3(kThreads), 0, stream, shape, rows_of<T>(gradients.out),
           rows_of<T>(gradients.dout), delta);
  });
}

}  // namespace zinc::kernels::cuda
