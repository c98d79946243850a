// The kernels of the fused head between its products, beside the rows of cross_entropy.cu.
#include "kernels/cuda/cross_entropy_rows.h"
#include "kernels/cuda/sums.h"

namespace zinc::kernels::cuda {
namespace {

struct Sum : HotFunction {
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] + in[1];
  }
};

}  // namespace

void sum_columns(const char* op, const ConstView& x, const View& sum, bool accumulate,
                 StreamRef stream) {
  dispatch_device_float(op, x.dtype(), [&]<class T>() {
    const MatrixTerm<T> term{x.data_as<T>(), x.stride(0), x.dim(1),
                             is_aligned_for_packs(x, x.stride(0))};
    dispatch_sum_target<T>(sum.dtype(), [&]<class Target>() {
      const SumTarget<Target> target{sum.data_as<Target>(), 1.0f, accumulate};
      launch_fold_columns<SumOf>(term, x.dim(0), x.dim(1), target, stream);
    });
  });
}

void round_sum(const char* op, const ConstView& sum, const View& target, bool accumulate,
               StreamRef stream) {
  if (target.numel() == 0) return;
  dispatch_device_float(op, target.dtype(), [&]<class Target>() {
    const std::array<View, 1> out{target};
    if (accumulate) {
      launch_map<Target, float, Target>(Sum{}, out, std::array<ConstView, 2>{sum, target}, stream);
    } else {
      launch_map<Target, float>(Identity{}, out, std::array<ConstView, 1>{sum}, stream);
    }
  });
}

}  // namespace zinc::kernels::cuda
