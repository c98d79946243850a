// Forward: a warp per query and head; out once in and out, lse likewise. Backward: a block per
// head, whose warps take queries in turn, then add their sums in order; out and dout once.
#include "kernels/attention_sinks.h"

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSumThreads = 512;

template <class T>
__global__ void __launch_bounds__(kThreads)
    sinks_kernel(const float* sinks, HeadRows<T> outs, float* lse, int64_t queries, int D) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i =
      int64_t{blockIdx.x} * (kThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t h = blockIdx.y, b = blockIdx.z, heads = gridDim.y;
  if (i >= queries) return;
  const int64_t at = (b * heads + h) * queries + i;
  const float before = lse[at], sink = sinks[h];
  __syncwarp();  // all lanes have read lse
  const float largest = before > sink ? before : sink;
  if (largest == -INFINITY) return;  // no key is seen, and the sink takes no part
  const float own = expf(before - largest), sum = own + expf(sink - largest);
  const float keep = own / sum;
  T* out = outs.at(b, i, h);
  for (int d = lane; d < D; d += kWarp) out[d] = static_cast<T>(keep * static_cast<float>(out[d]));
  if (lane == 0) lse[at] = largest + logf(sum);
}

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sinks_backward_kernel(const float* sinks, HeadRows<const T> outs, const float* lse,
                          HeadRows<const T> douts, float* dsinks, int64_t batch, int64_t queries,
                          int D) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t h = blockIdx.x, heads = gridDim.x;
  const float sink = sinks[h];
  float total = 0.0f;
  for (int64_t row = warp; row < batch * queries; row += kSumThreads / kWarp) {
    const int64_t b = row / queries, i = row % queries;
    const float whole = lse[(b * heads + h) * queries + i];
    if (whole == -INFINITY) continue;
    const T* out = outs.at(b, i, h);
    const T* dout = douts.at(b, i, h);
    float product = 0.0f;
    for (int d = lane; d < D; d += kWarp) {
      product = fmaf(static_cast<float>(out[d]), static_cast<float>(dout[d]), product);
    }
    total = fmaf(-expf(sink - whole), product, total);
  }
  total = block_reduce(total, 0.0f, Add{});
  if (threadIdx.x == 0) dsinks[h] = total;
}

}  // namespace

void attention_sinks(const AttentionSinks& args, StreamRef stream) {
  constexpr int64_t kRowsPerBlock = kThreads / kWarp;
  const int64_t queries = args.out.dim(1);
  const dim3 grid(static_cast<unsigned>((queries + kRowsPerBlock - 1) / kRowsPerBlock),
                  static_cast<unsigned>(args.out.dim(2)), static_cast<unsigned>(args.out.dim(0)));
  dispatch_device_float("attention_sinks", args.out.dtype(), [&]<class T>() {
    launch(sinks_kernel<T>, grid, dim3(kThreads), 0, stream, args.sinks.data_as<float>(),
           written_rows_of<T>(HeadsView(args.out)), args.lse.data_as<float>(), queries,
           static_cast<int>(args.out.dim(3)));
  });
}

void attention_sinks_backward(const AttentionSinksBackward& args, StreamRef stream) {
  dispatch_device_float("attention_sinks_backward", args.out.dtype(), [&]<class T>() {
    launch(sinks_backward_kernel<T>, dim3(static_cast<unsigned>(args.out.dim(2))),
           dim3(kSumThreads), 0, stream, args.sinks.data_as<float>(),
           rows_of<T>(HeadsView(args.out)), args.lse.data_as<float>(),
           rows_of<T>(HeadsView(args.dout)), args.dsinks.data_as<float>(), args.out.dim(0),
           args.out.dim(1), static_cast<int>(args.out.dim(3)));
  });
}

}  // namespace zinc::kernels::cuda
