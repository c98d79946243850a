// The f32, bf16 and f16 paths of tree_sum.
#include "kernels/tree_sum.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tree_sum_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kBlock = 512;  // elements whose partial sums stay in the first-level cache
constexpr int kLevels = 11;      // 2^10 arrays

template <class Out, class Store, class Load>
HWY_INLINE void finish(LaneVec sum, Out* out, bool accumulate, Load load, Store store) {
  if (accumulate) sum = hn::Add(load(static_cast<const Out*>(out)), sum);
  store(sum, out);
}

template <class T>
const T* array(const HostTreeSum& args, size_t index) {
  return reinterpret_cast<const T*>(args.in[index]);
}

// Up to four arrays: the tree is small enough to write out.
template <int kCount, class In, class Out>
void sum_few(const HostTreeSum& args, int64_t begin, int64_t n) {
  const In* in[kCount];
  for (size_t r = 0; r < kCount; ++r) in[r] = array<In>(args, r) + begin;
  Out* out = reinterpret_cast<Out*>(args.out) + begin;
  const bool accumulate = args.accumulate;
  for_each_vector(n, [=](int64_t i, auto load, auto store) HWY_ATTR {
    auto sum = load(in[0] + i);
    if constexpr (kCount >= 2) sum = hn::Add(sum, load(in[1] + i));
    if constexpr (kCount == 3) sum = hn::Add(sum, load(in[2] + i));
    if constexpr (kCount == 4) sum = hn::Add(sum, hn::Add(load(in[2] + i), load(in[3] + i)));
    finish(sum, out + i, accumulate, load, store);
  });
}

// Note [Binary counter], see tree_sum.cpp, for n <= kBlock elements.
template <class In, class Out>
void sum_many(const HostTreeSum& args, int64_t begin, int64_t n) {
  HWY_ALIGN float partial[kLevels][kBlock];
  const auto add = [n](const float* left, float* right) HWY_ATTR {
    for_each_vector(n, [=](int64_t i, auto load, auto store) HWY_ATTR {
      store(hn::Add(load(left + i), load(static_cast<const float*>(right) + i)), right + i);
    });
  };
  const size_t count = args.in.size();
  for (size_t r = 0; r < count; ++r) {
    int level = 0;
    while (((r >> level) & 1) != 0) ++level;
    float* sum = partial[level];
    const In* in = array<In>(args, r) + begin;
    for_each_vector(
        n, [=](int64_t i, auto load, auto store) HWY_ATTR { store(load(in + i), sum + i); });
    for (int l = 0; l < level; ++l) add(partial[l], sum);
  }
  const float* total = nullptr;
  for (int level = 0; level < kLevels; ++level) {
    if (((count >> level) & 1) == 0) continue;
    if (total != nullptr) add(total, partial[level]);
    total = partial[level];
  }
  Out* out = reinterpret_cast<Out*>(args.out) + begin;
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    finish(load(total + i), out + i, args.accumulate, load, store);
  });
}

template <class In, class Out>
void sum_range(const HostTreeSum& args, int64_t begin, int64_t end) {
  switch (args.in.size()) {
    case 1:
      return sum_few<1, In, Out>(args, begin, end - begin);
    case 2:
      return sum_few<2, In, Out>(args, begin, end - begin);
    case 3:
      return sum_few<3, In, Out>(args, begin, end - begin);
    case 4:
      return sum_few<4, In, Out>(args, begin, end - begin);
    default:
      break;
  }
  for (; begin < end; begin += kBlock) {
    sum_many<In, Out>(args, begin, std::min(kBlock, end - begin));
  }
}

void tree_sum_vectors(const HostTreeSum& args, int64_t begin, int64_t end) {
  dispatch_short_float(args.dtype, [&]<class In>() {
    dispatch_sum_target<In>(args.out_dtype,
                            [&]<class Out>() { sum_range<In, Out>(args, begin, end); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(tree_sum_vectors);

void tree_sum_lanes(const HostTreeSum& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(tree_sum_vectors)(args, begin, end);
}

}  // namespace zinc::kernels::cpu
#endif
