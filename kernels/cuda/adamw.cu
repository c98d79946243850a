// AdamW in one pass: every thread updates four elements at a time, 16 bytes of the states and 8 of
// 16-bit arrays, so that neighbouring threads touch neighbouring bytes of all, by the operations
// of Note [Bits of AdamW] (kernels/adamw.h), so that the bits are the CPU's. Traffic with bf16
// gradient and model weights: weights, m and v in and out, 2 + 2 bytes besides: 28 bytes an
// element.
#include "kernels/adamw.h"

#include "kernels/cpu/adamw_scalars.h"
#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

// In the order of adamw_scalars().
struct Update {
  float b1, c1, b2, c2, a, s, eps, decay, l2;
};
static_assert(sizeof(Update) == kNumAdamWScalars * sizeof(float));

template <class Gradient, class Model>
struct Operands {
  float* weights;
  const Gradient* gradient;
  float* m;
  float* v;
  Model* model_weights;   // may be null
  const float* factor;    // may be null: 1
  const int32_t* skip;    // may be null: 0
  const Update* scalars;  // may be null: the kernel's argument
};

template <int kCount, class Aligned, class Gradient, class Model>
__global__ void __launch_bounds__(kMapThreads)
    adamw_kernel(Operands<Gradient, Model> at, int64_t n, Update k, Aligned aligned) {
  if (at.skip != nullptr && *at.skip != 0) return;
  if (at.scalars != nullptr) k = *at.scalars;
  const float factor = at.factor != nullptr ? *at.factor : 1.0f;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * kCount;
  for (int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount; first < n;
       first += step) {
    float w[kCount], g[kCount], m[kCount], v[kCount];
    load_floats(at.weights, first, n, aligned, w);
    load_floats(at.gradient, first, n, aligned, g);
    load_floats(at.m, first, n, aligned, m);
    load_floats(at.v, first, n, aligned, v);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      g[i] = g[i] * factor;
      if (k.l2 != 0.0f) g[i] = fmaf(k.l2, w[i], g[i]);
      m[i] = fmaf(k.b1, m[i], k.c1 * g[i]);
      v[i] = fmaf(k.b2, v[i], (k.c2 * g[i]) * g[i]);
      const float denominator = fmaf(sqrtf(v[i]), k.s, k.eps);
      if (k.decay != 0.0f) w[i] = fmaf(-k.decay, w[i], w[i]);
      w[i] = fmaf(-k.a, m[i] / denominator, w[i]);
    }
    store_floats(at.weights, first, n, aligned, w);
    store_floats(at.m, first, n, aligned, m);
    store_floats(at.v, first, n, aligned, v);
    if (at.model_weights != nullptr) store_floats(at.model_weights, first, n, aligned, w);
  }
}

}  // namespace

void adamw(const AdamW& args, StreamRef stream) {
  constexpr auto kOp = "adamw";
  // `factor` is read by the kernel: the host does not touch device memory.
  AdamW without_factor = args;
  without_factor.factor = {};
  without_factor.scalars = {};
  const auto scalars = cpu::adamw_scalars<float>(without_factor);
  const Update update{scalars.b1, scalars.c1,  scalars.b2,    scalars.c2, scalars.a,
                      scalars.s,  scalars.eps, scalars.decay, scalars.l2};
  bool aligned = true;
  for (const ConstView& view : {ConstView(args.weights), args.gradient, ConstView(args.m),
                                ConstView(args.v), ConstView(args.model_weights)}) {
    aligned = aligned && is_aligned_for_packs(view, 0);
  }
  const int64_t n = args.weights.numel();
  const DType model = args.model_weights ? args.model_weights.dtype() : DType::f32;
  dispatch_device_float(kOp, args.weights.dtype(), [&]<class Master>() {
    if constexpr (std::is_same_v<Master, float>) {
      dispatch_device_float(kOp, args.gradient.dtype(), [&]<class Gradient>() {
        dispatch_device_float(kOp, model, [&]<class Model>() {
          constexpr int kCount = kPack<float>;
          const Operands<Gradient, Model> operands{
              args.weights.data_as<float>(),
              args.gradient.data_as<Gradient>(),
              args.m.data_as<float>(),
              args.v.data_as<float>(),
              args.model_weights ? args.model_weights.data_as<Model>() : nullptr,
              args.factor ? args.factor.data_as<float>() : nullptr,
              args.skip ? args.skip.data_as<int32_t>() : nullptr,
              args.scalars ? reinterpret_cast<const Update*>(args.scalars.data_as<float>())
                           : nullptr};
          const int64_t blocks =
              std::min(kMaxMapBlocks, packs_of(packs_of(n, kCount), kMapThreads));
          dispatch_whole_packs(n, kCount, aligned, [&]<class Aligned>(Aligned fits) {
            launch(adamw_kernel<kCount, Aligned, Gradient, Model>,
                   dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream, operands, n,
                   update, fits);
          });
        });
      });
    } else {
      bug_check(false, "adamw: master weights are f32 or f64");
    }
  });
}

}  // namespace zinc::kernels::cuda
