// AdamW in one pass: every thread updates four elements at a time, 16 bytes of the states and 8 of
// 16-bit arrays, so that neighbouring threads touch neighbouring bytes of all, by the operations
// of Note [Bits of AdamW] (kernels/adamw.h), so that the bits are the CPU's. Traffic with bf16
// gradient and model weights: weights, m and v in and out, 2 + 2 bytes besides: 28 bytes an
// element, 20 with moments in bf16.
#include "kernels/adamw.h"

#include "kernels/cpu/adamw_scalars.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/stochastic_rounding.h"

namespace zinc::kernels::cuda {
namespace {

// The scalars of adamw_scalars(), in its order.
struct Update {
  float b1, c1, b2, c2, a, s, eps, decay, l2;
  uint32_t counter_low, counter_high;
};
static_assert(sizeof(Update) == kNumAdamWScalars * sizeof(float));

template <class Gradient, class Model, class Moment>
struct Operands {
  float* weights;
  const Gradient* gradient;
  Moment* m;
  Moment* v;
  Model* model_weights;   // may be null
  const float* factor;    // may be null: 1
  const int32_t* skip;    // may be null: 0
  const Update* scalars;  // may be null: the kernel's argument
  uint64_t random_key;    // with moments in bf16
  int64_t first_element;
  ElementPlaces places;
};

// The random words of the places from `element` on.
template <int kCount>
__device__ __forceinline__ void random_words(const RandomKey& key, uint64_t element,
                                             uint32_t (&words)[kCount]) {
  static_assert(kCount <= 4);
  const auto skipped = static_cast<int>(element & 3);
  const PhiloxBlock block = philox4x32(element >> 2, key.counter_high, key.key);
  PhiloxBlock next = block;
  if (skipped != 0) next = philox4x32((element >> 2) + 1, key.counter_high, key.key);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int place = skipped + i;
    words[i] = place < 4 ? block.word[place] : next.word[place - 4];
  }
}

template <int kCount, class Aligned, class Gradient, class Model, class Moment>
__global__ void __launch_bounds__(kMapThreads)
    adamw_kernel(Operands<Gradient, Model, Moment> at, int64_t n, Update k, Aligned aligned) {
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
    if constexpr (!std::is_same_v<Moment, float>) {
      const RandomKey key{at.random_key, uint64_t{k.counter_high} << 32 | k.counter_low};
      uint32_t words[kCount];
      const int64_t element = at.first_element + first;
      const int64_t place = at.places.place(element);
      if (at.places.place(element + kCount - 1) == place + kCount - 1) {
        random_words(key, static_cast<uint64_t>(place), words);
      } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          words[i] = key.bits(static_cast<uint64_t>(at.places.place(element + i)));
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        m[i] = round_by_chance(m[i], words[i]);
        v[i] = round_by_chance(v[i], words[i] >> 16);
      }
    }
    store_floats(at.weights, first, n, aligned, w);
    store_floats(at.m, first, n, aligned, m);
    store_floats(at.v, first, n, aligned, v);
    if (at.model_weights != nullptr) store_floats(at.model_weights, first, n, aligned, w);
  }
}

template <class Gradient, class Model, class Moment>
void run(const AdamW& args, const Update& update, bool aligned, StreamRef stream) {
  constexpr int kCount = kPack<float>;
  const Operands<Gradient, Model, Moment> operands{
      .weights = args.weights.data_as<float>(),
      .gradient = args.gradient.data_as<Gradient>(),
      .m = args.m.data_as<Moment>(),
      .v = args.v.data_as<Moment>(),
      .model_weights = args.model_weights ? args.model_weights.data_as<Model>() : nullptr,
      .factor = args.factor ? args.factor.data_as<float>() : nullptr,
      .skip = args.skip ? args.skip.data_as<int32_t>() : nullptr,
      .scalars =
          args.scalars ? reinterpret_cast<const Update*>(args.scalars.data_as<float>()) : nullptr,
      .random_key = args.random.key,
      .first_element = args.first_element,
      .places = args.places};
  const int64_t n = args.weights.numel();
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(packs_of(n, kCount), kMapThreads));
  dispatch_whole_packs(n, kCount, aligned, [&]<class Aligned>(Aligned fits) {
    launch(adamw_kernel<kCount, Aligned, Gradient, Model, Moment>,
           dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream, operands, n, update,
           fits);
  });
}

}  // namespace

void adamw(const AdamW& args, StreamRef stream) {
  constexpr auto kOp = "adamw";
  require(args.weights.dtype() == DType::f32, kOp, ": CUDA kernels take f32 weights, not ",
          args.weights.dtype(), "; compute in f64 on the CPU");
  // `factor` is read by the kernel: the host does not touch device memory.
  AdamW without_factor = args;
  without_factor.factor = {};
  without_factor.scalars = {};
  const auto scalars = cpu::adamw_scalars<float>(without_factor);
  const uint64_t counter = args.random.counter_high;
  const Update update{scalars.b1,
                      scalars.c1,
                      scalars.b2,
                      scalars.c2,
                      scalars.a,
                      scalars.s,
                      scalars.eps,
                      scalars.decay,
                      scalars.l2,
                      static_cast<uint32_t>(counter),
                      static_cast<uint32_t>(counter >> 32)};
  bool aligned = true;
  for (const ConstView& view : {ConstView(args.weights), args.gradient, ConstView(args.m),
                                ConstView(args.v), ConstView(args.model_weights)}) {
    aligned = aligned && is_aligned_for_packs(view, 0);
  }
  const DType model = args.model_weights ? args.model_weights.dtype() : DType::f32;
  dispatch_device_float(kOp, args.gradient.dtype(), [&]<class Gradient>() {
    dispatch_device_float(kOp, model, [&]<class Model>() {
      if (args.m.dtype() == DType::bf16) {
        run<Gradient, Model, bf16>(args, update, aligned, stream);
      } else {
        run<Gradient, Model, float>(args, update, aligned, stream);
      }
    });
  });
}

}  // namespace zinc::kernels::cuda
