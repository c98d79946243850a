// kernels/cpu/elements-inl.h: element-wise loops over strided views, a vector at a time.
//
// Included once per Highway target, like lanes-inl.h.
#if defined(ZINC_KERNELS_CPU_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_ELEMENTS_INL_H_
#undef ZINC_KERNELS_CPU_ELEMENTS_INL_H_
#else
#define ZINC_KERNELS_CPU_ELEMENTS_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// body(offsets, load, store) for every vector of a walk, in parallel; offsets[v] is where the
// vector starts in view v, load and store are those of for_each_vector.
template <size_t N, class Body>
void walk_vectors(const RowWalk<N>& walk, const Body& body, bool past_caches = false) {
  const int64_t grain = past_caches_grain(kElementGrain, past_caches);
  parallel_for(walk.total(), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    walk.run(begin, end, [&](const std::array<int64_t, N>& at, int64_t n) HWY_ATTR {
      for_each_vector(
          n,
          [&](int64_t i, auto load, auto store) HWY_ATTR {
            std::array<int64_t, N> here = at;
            for (size_t v = 0; v < N; ++v) here[v] += i;
            body(here, load, store);
          },
          past_caches);
    });
    if (past_caches) hwy::FlushStream();
  });
}

// True where every output (a View) is stored past the caches: all are large, none is an input.
template <class... Views>
bool outputs_past_caches(const Views&... views) {
  const auto one = [&](const auto& output) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(output)>, View>) {
      const auto other = [&](const auto& input) {
        return std::is_same_v<std::remove_cvref_t<decltype(input)>, View> ||
               input.data() != output.data();
      };
      return past_caches(output.bytes()) && (other(views) && ...);
    } else {
      return true;
    }
  };
  return (one(views) && ...);
}

// The same over views of one shape: inputs are ConstViews, outputs Views.
template <class Body, class... Views>
void for_each_element_vector(const Shape& shape, const Body& body, const Views&... views) {
  walk_vectors(RowWalk<sizeof...(Views)>(shape, {views.strides()...}), body,
               outputs_past_caches(views...));
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
