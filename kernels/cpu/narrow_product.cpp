// Block products of a few rows.
//
// With b transposed, [n, k], an element of c is a dot product of a row of a and one of b. With b as
// it is, [k, n], rows of b are added to those of c, some at a time, while c stays in the cache.
// Bytes moved: b once. The rows of a are widened first, into the call's scratch.
#include "kernels/cpu/narrow_product.h"

#include "core/error.h"
#include "kernels/cpu/block_convert.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/narrow_pairs.h"
#include "kernels/cpu/narrow_tiles.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/narrow_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// c[r, j] = or += a[r, :] . b[j, :] for R rows of a, [R, k] dense, and J of b.
template <int R, int J, class T>
HWY_INLINE void dot_rows(const float* a, const T* b, const BlockShape& shape, float* c) {
  const int64_t lanes = lane_count(), k = shape.k;
  LaneVec sums[R][J];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < J; ++j) sums[r][j] = hn::Zero(Lanes());
  }
  const auto add = [&](int64_t q, auto load) HWY_ATTR {
    LaneVec right[J];
    for (int j = 0; j < J; ++j) right[j] = load(b + j * shape.ldb + q);
    for (int r = 0; r < R; ++r) {
      const LaneVec left = load(a + r * k + q);
      for (int j = 0; j < J; ++j) sums[r][j] = fma_lanes(left, right[j], sums[r][j]);
    }
  };
  int64_t q = 0;
  for (; q + lanes <= k; q += lanes) {
    add(q, [](const auto* from) HWY_ATTR { return load_lanes(from); });
  }
  if (q < k) {
    const int64_t count = k - q;
    add(q, [count](const auto* from) HWY_ATTR { return load_some_lanes(from, count); });
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < J; ++j) {
      float& to = c[r * shape.ldc + j];
      const float sum = hn::GetLane(hn::SumOfLanes(Lanes(), sums[r][j]));
      to = shape.accumulate ? to + sum : sum;
    }
  }
}

// All rows of a with J of b, which a first-level cache holds for the second group of rows.
template <int J, class T>
HWY_INLINE void dot_all(const float* a, const T* b, const BlockShape& shape, float* c) {
  int64_t r = 0;
  for (; r + 4 <= shape.m; r += 4) dot_rows<4, J>(a + r * shape.k, b, shape, c + r * shape.ldc);
  for (; r + 2 <= shape.m; r += 2) dot_rows<2, J>(a + r * shape.k, b, shape, c + r * shape.ldc);
  for (; r < shape.m; ++r) dot_rows<1, J>(a + r * shape.k, b, shape, c + r * shape.ldc);
}

template <class T>
void dot_columns(const float* a, const T* b, const BlockShape& shape, float* c) {
  // Enough sums under way to hide the latency of an addition, and no more than registers.
  constexpr int64_t kFewRows = 2;
  int64_t j = 0;
  if (shape.m <= kFewRows) {
    for (; j + 4 <= shape.n; j += 4) dot_all<4>(a, b + j * shape.ldb, shape, c + j);
  }
  for (; j + 2 <= shape.n; j += 2) dot_all<2>(a, b + j * shape.ldb, shape, c + j);
  for (; j < shape.n; ++j) dot_all<1>(a, b + j * shape.ldb, shape, c + j);
}

// c[r, :] = or += a[r, :D] b[:D, :], D rows of b, for J vectors of columns by `load` and `store`.
// The next D rows are fetched ahead: they are more than a CPU's own prefetching follows.
template <int D, int J, class T, class Load, class Store>
HWY_INLINE void add_vectors(const float* a, const T* b, const BlockShape& shape, bool accumulate,
                            float* c, Load load, Store store) {
  const int64_t lanes = lane_count();
  LaneVec right[D][J];
  for (int d = 0; d < D; ++d) {
    for (int j = 0; j < J; ++j) right[d][j] = load(b + d * shape.ldb + j * lanes);
    hwy::Prefetch(b + (D + d) * shape.ldb);
  }
  for (int64_t r = 0; r < shape.m; ++r) {
    float* to = c + r * shape.ldc;
    LaneVec sums[J];
    for (int j = 0; j < J; ++j) {
      sums[j] = accumulate ? load(static_cast<const float*>(to + j * lanes)) : hn::Zero(Lanes());
    }
    for (int d = 0; d < D; ++d) {
      const LaneVec left = hn::Set(Lanes(), a[r * shape.k + d]);
      for (int j = 0; j < J; ++j) sums[j] = fma_lanes(left, right[d][j], sums[j]);
    }
    for (int j = 0; j < J; ++j) store(sums[j], to + j * lanes);
  }
}

template <int D, int J, class T>
HWY_INLINE void add_rows(const float* a, const T* b, const BlockShape& shape, bool accumulate,
                         float* c) {
  const int64_t width = J * lane_count();
  int64_t j = 0;
  for (; j + width <= shape.n; j += width) {
    add_vectors<D, J>(
        a, b + j, shape, accumulate, c + j,
        [](const auto* from) HWY_ATTR { return load_lanes(from); },
        [](LaneVec value, float* to) HWY_ATTR { store_lanes(value, to); });
  }
  for_each_vector(shape.n - j, [&](int64_t i, auto load, auto store) HWY_ATTR {
    add_vectors<D, 1>(a, b + j + i, shape, accumulate, c + j + i, load, store);
  });
}

template <int D, int J, class T>
HWY_INLINE void add_all(const float* a, const T* b, const BlockShape& shape, float* c) {
  int64_t q = 0;
  for (; q + D <= shape.k; q += D) {
    add_rows<D, J>(a + q, b + q * shape.ldb, shape, shape.accumulate || q > 0, c);
  }
  for (; q < shape.k; ++q) {
    add_rows<1, J>(a + q, b + q * shape.ldb, shape, shape.accumulate || q > 0, c);
  }
}

// One row reads many rows of b at once; several rows share the loads of a.
template <class T>
void add_columns(const float* a, const T* b, const BlockShape& shape, float* c) {
  if (shape.m == 1) return add_all<8, 2>(a, b, shape, c);
  add_all<6, 2>(a, b, shape, c);
}

void multiply_narrow(const float* a, const void* b, const BlockShape& shape, float* c) {
  const auto multiply = [&](const auto* typed) HWY_ATTR {
    if (shape.transpose_b) return dot_columns(a, typed, shape, c);
    add_columns(a, typed, shape, c);
  };
  switch (shape.dtype) {
    case DType::f32:
      return multiply(static_cast<const float*>(b));
    case DType::bf16:
      return multiply(static_cast<const bf16*>(b));
    default:
      return multiply(static_cast<const f16*>(b));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {
namespace {

HWY_EXPORT(multiply_narrow);

class NarrowProduct final : public BlockProduct {
 public:
  explicit NarrowProduct(const BlockShape& shape) : shape_(shape) {}

  int64_t scratch_bytes() const override {
    return shape_.m * shape_.k * static_cast<int64_t>(sizeof(float));
  }
  void run(const void* a, const void* b, float* c, std::byte* scratch, bool) const override {
    auto* rows = reinterpret_cast<float*>(scratch);
    widen_block(a, shape_.dtype, shape_.m, shape_.k, shape_.lda, rows, shape_.k);
    HWY_DYNAMIC_DISPATCH(multiply_narrow)(rows, b, shape_, c);
  }

 private:
  BlockShape shape_;
};

}  // namespace

BlockProductPtr make_narrow_product(const BlockShape& shape) {
  bug_check(shape.m <= kMostNarrowRows && !shape.transpose_a, "narrow product of ", shape.m,
            " rows");
  if (fits_tiles(shape)) return make_tiled_product(shape);
  if (fits_pairs(shape)) return make_pairs_product(shape);
  return std::make_shared<const NarrowProduct>(shape);
}

}  // namespace zinc::kernels::cpu
#endif
