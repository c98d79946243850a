// One step of stochastic gradient descent in one pass, 16 bytes at a time, by the operations that
// kernels/sgd.h lists, so that the bits are the CPU's. Traffic: weights (and velocity) in and out,
// the gradient in, model weights out.
#include "kernels/sgd.h"

#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

template <class Gradient, class Model>
struct SgdArgs {
  float* weights;
  const Gradient* gradient;
  float* velocity;       // null: no momentum
  Model* model_weights;  // may be null
  const float* factor;   // may be null: 1
  const int32_t* skip;   // may be null: 0
  int64_t n;
  float minus_lr, momentum, share, decay;
  bool nesterov, first_step, aligned;
};

template <int kCount, class Gradient, class Model>
__global__ void __launch_bounds__(kMapThreads) sgd_kernel(SgdArgs<Gradient, Model> args) {
  if (args.skip != nullptr && *args.skip != 0) return;
  const float factor = args.factor != nullptr ? *args.factor : 1.0f;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * kCount;
  for (int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount; first < args.n;
       first += step) {
    float w[kCount], g[kCount], u[kCount] = {};
    load_floats(args.weights, first, args.n, args.aligned, w);
    load_floats(args.gradient, first, args.n, args.aligned, g);
    const bool has_momentum = args.velocity != nullptr;
    if (has_momentum && !args.first_step) {
      load_floats(args.velocity, first, args.n, args.aligned, u);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      g[i] = g[i] * factor;
      if (args.decay != 0.0f) g[i] = fmaf(args.decay, w[i], g[i]);
      if (has_momentum) {
        u[i] = args.first_step ? g[i] : fmaf(args.momentum, u[i], args.share * g[i]);
        g[i] = args.nesterov ? fmaf(args.momentum, u[i], g[i]) : u[i];
      }
      w[i] = fmaf(args.minus_lr, g[i], w[i]);
    }
    if (has_momentum) store_floats(args.velocity, first, args.n, args.aligned, u);
    store_floats(args.weights, first, args.n, args.aligned, w);
    if (args.model_weights != nullptr) {
      store_floats(args.model_weights, first, args.n, args.aligned, w);
    }
  }
}

}  // namespace

void sgd(const Sgd& args, StreamRef stream) {
  constexpr auto kOp = "sgd";
  require(args.weights.dtype() == DType::f32, kOp, ": CUDA kernels take f32 weights, not ",
          args.weights.dtype(), "; compute in f64 on the CPU");
  const bool has_momentum = args.momentum != 0.0;
  bool aligned = true;
  for (const ConstView& view :
       {ConstView(args.weights), args.gradient, ConstView(args.model_weights)}) {
    aligned = aligned && is_aligned_for_packs(view, 0);
  }
  if (has_momentum) aligned = aligned && is_aligned_for_packs(args.velocity, 0);
  const DType model = args.model_weights ? args.model_weights.dtype() : DType::f32;
  dispatch_device_float(kOp, args.gradient.dtype(), [&]<class Gradient>() {
    dispatch_device_float(kOp, model, [&]<class Model>() {
      constexpr int kCount = kPack<float>;
      const SgdArgs<Gradient, Model> kernel_args{
          args.weights.data_as<float>(),
          args.gradient.data_as<Gradient>(),
          has_momentum ? args.velocity.data_as<float>() : nullptr,
          args.model_weights ? args.model_weights.data_as<Model>() : nullptr,
          args.factor ? args.factor.data_as<float>() : nullptr,
          args.skip ? args.skip.data_as<int32_t>() : nullptr,
          args.weights.numel(),
          -static_cast<float>(args.lr),
          static_cast<float>(args.momentum),
          static_cast<float>(1.0 - args.dampening),
          static_cast<float>(args.weight_decay),
          args.nesterov,
          args.first_step,
          aligned};
      const int64_t blocks =
          std::min(kMaxMapBlocks, packs_of(packs_of(kernel_args.n, kCount), kMapThreads));
      launch(sgd_kernel<kCount, Gradient, Model>, dim3(static_cast<unsigned>(blocks)),
             dim3(kMapThreads), 0, stream, kernel_args);
    });
  });
}

}  // namespace zinc::kernels::cuda
