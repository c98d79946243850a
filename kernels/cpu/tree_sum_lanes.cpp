// The f32, bf16 and f16 paths of tree_sum.
#include "kernels/tree_sum.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tree_sum_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kBlock = 512;  // elements whose partial sums stay in the first-level cache
constexpr int64_t kGrain = 1 << 15;
constexpr int kLevels = 11;  // 2^10 arrays

template <class In, class Out>
struct Arrays {
  const In* in;
  int64_t stride;
  int64_t count;
  Out* out;
  bool accumulate;
};

template <class Out, class Store, class Load>
HWY_INLINE void finish(LaneVec sum, Out* out, bool accumulate, Load load, Store store) {
  if (accumulate) sum = hn::Add(load(static_cast<const Out*>(out)), sum);
  store(sum, out);
}

// Up to four arrays: the tree is small enough to write out.
template <int kCount, class In, class Out>
void sum_few(const Arrays<In, Out>& a, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    const In* in = a.in + i;
    auto sum = load(in);
    if constexpr (kCount >= 2) sum = hn::Add(sum, load(in + a.stride));
    if constexpr (kCount == 3) sum = hn::Add(sum, load(in + 2 * a.stride));
    if constexpr (kCount == 4) {
      sum = hn::Add(sum, hn::Add(load(in + 2 * a.stride), load(in + 3 * a.stride)));
    }
    finish(sum, a.out + i, a.accumulate, load, store);
  });
}

// Note [Binary counter], see tree_sum.cpp, for n <= kBlock elements.
template <class In, class Out>
void sum_many(const Arrays<In, Out>& a, int64_t n) {
  HWY_ALIGN float partial[kLevels][kBlock];
  const auto add = [n](const float* left, float* right) HWY_ATTR {
    for_each_vector(n, [=](int64_t i, auto load, auto store) HWY_ATTR {
      store(hn::Add(load(left + i), load(static_cast<const float*>(right) + i)), right + i);
    });
  };
  for (int64_t r = 0; r < a.count; ++r) {
    int level = 0;
    while (((r >> level) & 1) != 0) ++level;
    float* sum = partial[level];
    const In* in = a.in + r * a.stride;
    for_each_vector(
        n, [=](int64_t i, auto load, auto store) HWY_ATTR { store(load(in + i), sum + i); });
    for (int l = 0; l < level; ++l) add(partial[l], sum);
  }
  const float* total = nullptr;
  for (int level = 0; level < kLevels; ++level) {
    if (((a.count >> level) & 1) == 0) continue;
    if (total != nullptr) add(total, partial[level]);
    total = partial[level];
  }
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    finish(load(total + i), a.out + i, a.accumulate, load, store);
  });
}

template <class In, class Out>
void sum_range(Arrays<In, Out> a, int64_t n) {
  switch (a.count) {
    case 1:
      return sum_few<1>(a, n);
    case 2:
      return sum_few<2>(a, n);
    case 3:
      return sum_few<3>(a, n);
    case 4:
      return sum_few<4>(a, n);
    default:
      break;
  }
  for (; n > 0; n -= kBlock, a.in += kBlock, a.out += kBlock) sum_many(a, std::min(n, kBlock));
}

template <class In, class Out>
void sum_arrays(const TreeSum& args) {
  const Arrays<In, Out> a{.in = args.in.data_as<In>(),
                          .stride = args.in.stride(0),
                          .count = args.in.dim(0),
                          .out = args.out.data_as<Out>(),
                          .accumulate = args.accumulate};
  parallel_for(args.in.dim(1), kGrain, [&](int64_t begin, int64_t end) {
    Arrays<In, Out> part = a;
    part.in += begin;
    part.out += begin;
    sum_range(part, end - begin);
  });
}

void tree_sum_vectors(const TreeSum& args) {
  dispatch_short_float(args.in.dtype(), [&]<class In>() {
    dispatch_sum_target<In>(args.out.dtype(), [&]<class Out>() { sum_arrays<In, Out>(args); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(tree_sum_vectors);

void tree_sum_lanes(const TreeSum& args) { HWY_DYNAMIC_DISPATCH(tree_sum_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
