// The f32, bf16 and f16 paths of dropout.
#include "kernels/dropout.h"

#include "kernels/cpu/dropout_threshold.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/random_words-inl.h"
#include "kernels/cpu/row_ids.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
struct DropoutRun {
  const T* x;
  const T* residual;  // null: none
  T* y;
  float factor;
  uint32_t threshold;
  bool past_caches;
};

// n <= kRandomRun elements, whose words are given.
template <class T>
void drop_run(const DropoutRun<T>& run, const uint32_t* words, int64_t n) {
  const Lanes d;
  const hn::Rebind<int32_t, Lanes> di;
  const hn::Rebind<uint32_t, Lanes> du;
  const auto factor = hn::Set(d, run.factor);
  const auto threshold = hn::Set(di, static_cast<int32_t>(run.threshold));
  const auto kept = [=](int64_t i, LaneVec x) HWY_ATTR {
    const auto word = hn::BitCast(di, hn::ShiftRight<9>(hn::LoadU(du, words + i)));
    return hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(word, threshold)), hn::Mul(x, factor));
  };
  if (run.residual == nullptr) {
    for_each_vector(
        n,
        [&](int64_t i, auto load, auto store)
            HWY_ATTR { store(kept(i, load(run.x + i)), run.y + i); },
        run.past_caches);
  } else {
    for_each_vector(
        n,
        [&](int64_t i, auto load, auto store) HWY_ATTR {
          store(hn::Add(load(run.residual + i), kept(i, load(run.x + i))), run.y + i);
        },
        run.past_caches);
  }
}

template <class T>
void drop(const DropoutResidual& args) {
  const DropoutRun<T> whole{.x = args.x.data_as<T>(),
                            .residual = args.residual ? args.residual.data_as<T>() : nullptr,
                            .y = args.y.data_as<T>(),
                            .factor = dropout_factor<float>(args.p),
                            .threshold = dropout_threshold(args.p),
                            .past_caches = args.residual
                                               ? past_caches(args.y, args.x, args.residual)
                                               : past_caches(args.y, args.x)};
  parallel_for(args.x.numel(), past_caches_grain(4 * kRandomRun, whole.past_caches),
               [&](int64_t begin, int64_t end) {
                 HWY_ALIGN uint32_t words[kRandomRoom];
                 for (int64_t i = begin; i < end; i += kRandomRun) {
                   const int64_t n = std::min(kRandomRun, end - i);
                   // Memory works on the elements while their words are made.
                   prefetch_row(reinterpret_cast<const std::byte*>(whole.x + i),
                                n * size_of(args.x.dtype()));
                   const uint32_t* random =
                       random_words(args.key, args.first_element + i, n, words);
                   DropoutRun<T> run = whole;
                   run.x += i;
                   run.y += i;
                   if (run.residual != nullptr) run.residual += i;
                   drop_run(run, random, n);
                 }
                 if (whole.past_caches) flush_past_caches();
               });
}

void dropout_vectors(const DropoutResidual& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() { drop<T>(args); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(dropout_vectors);

void dropout_lanes(const DropoutResidual& args) { HWY_DYNAMIC_DISPATCH(dropout_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
