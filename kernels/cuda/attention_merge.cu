// A warp per query and head. Bytes moved: part once, out and lse twice.
#include "kernels/attention_merge.h"

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/warp.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(HeadRows<const T> parts, const float* part_lse, HeadRows<float> outs, float* lse,
                 int64_t queries, int D) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i =
      int64_t{blockIdx.x} * (kThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t h = blockIdx.y, b = blockIdx.z, heads = gridDim.y;
  if (i >= queries) return;
  const int64_t at = (b * heads + h) * queries + i;
  const float before = lse[at], added = part_lse[at];
  __syncwarp();  // all lanes have read lse
  const float largest = before > added ? before : added;
  if (largest == -INFINITY) return;  // neither sees a key
  const float own = expf(before - largest), other = expf(added - largest);
  const float sum = own + other, keep = own / sum, add = other / sum;
  const T* part = parts.at(b, i, h);
  float* out = outs.at(b, i, h);
  for (int d = lane; d < D; d += kWarp) out[d] = keep * out[d] + add * static_cast<float>(part[d]);
  if (lane == 0) lse[at] = largest + logf(sum);
}

}  // namespace

void attention_merge(const AttentionMerge& args, StreamRef stream) {
  constexpr int64_t kRowsPerBlock = kThreads / kWarp;
  const int64_t queries = args.part.dim(1);
  const dim3 grid(static_cast<unsigned>((queries + kRowsPerBlock - 1) / kRowsPerBlock),
                  static_cast<unsigned>(args.part.dim(2)), static_cast<unsigned>(args.part.dim(0)));
  dispatch_device_float("attention_merge", args.part.dtype(), [&]<class T>() {
    launch(merge_kernel<T>, grid, dim3(kThreads), 0, stream, rows_of<T>(HeadsView(args.part)),
           args.part_lse.data_as<float>(), written_rows_of<float>(HeadsView(args.out)),
           args.lse.data_as<float>(), queries, static_cast<int>(args.part.dim(3)));
  });
}

}  // namespace zinc::kernels::cuda
