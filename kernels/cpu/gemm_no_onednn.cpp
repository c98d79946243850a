// Block products without oneDNN, in Highway, f32 throughout.
//
// A block is summed in parts of kDepth along k. Per part, B is packed into panels of one register
// tile's width and A, row tile by row tile, into [k][rows]; both widen 16-bit operands. The
// register tile then runs over k with two vectors of B and one broadcast element of A at a time.
// Sums run over k in order, one fma per element and step.
#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/bf16_product.h"
#include "kernels/cpu/block_product.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_no_onednn.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/lanes-inl.h"

#ifndef ZINC_KERNELS_CPU_GEMM_NO_ONEDNN_ONCE
#define ZINC_KERNELS_CPU_GEMM_NO_ONEDNN_ONCE
namespace zinc::kernels::cpu {

inline constexpr int64_t kDepth = 256;
inline constexpr int64_t kMaxTileRows = 12;
inline constexpr int64_t kMaxTileCols = 32;  // the most columns of any target
inline constexpr int64_t kPackedAFloats = kDepth * kMaxTileRows;

inline int64_t packed_b_floats(const BlockShape& shape) {
  const int64_t panels = (shape.n + kMaxTileCols - 1) / kMaxTileCols;
  return std::min(shape.k, kDepth) * panels * kMaxTileCols;
}

}  // namespace zinc::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// Two vectors of columns; as many rows as leave registers for B and the broadcast.
constexpr int64_t kTileRows = HWY_MAX_BYTES >= 64 ? 12 : 6;
HWY_INLINE int64_t tile_cols() { return std::min(2 * lane_count(), kMaxTileCols); }

// to[p][c] = element (p, c) of a stored [depth, cols] block, or of its transpose; c >= cols: 0.
template <class T>
void pack(const T* from, int64_t stride, bool transposed, int64_t depth, int64_t cols,
          int64_t width, float* to) {
  for (int64_t p = 0; p < depth; ++p) {
    float* row = to + p * width;
    if (transposed) {
      for (int64_t c = 0; c < cols; ++c) row[c] = static_cast<float>(from[c * stride + p]);
    } else {
      const T* source = from + p * stride;
      for_each_vector(cols, [&](int64_t c, auto load, auto store)
                                HWY_ATTR { store(load(source + c), row + c); });
    }
    std::fill(row + cols, row + width, 0.0f);
  }
}

// c[kTileRows, tile_cols] = or += a^T b for packed a [depth][kTileRows] and b [depth][tile_cols].
HWY_INLINE void multiply_tile(const float* a, const float* b, int64_t depth, float* c,
                              int64_t stride, bool accumulate) {
  const Lanes d;
  const int64_t lanes = lane_count();
  LaneVec left[kTileRows];
  LaneVec right[kTileRows];
  for (int64_t r = 0; r < kTileRows; ++r) {
    left[r] = accumulate ? load_lanes(c + r * stride) : hn::Zero(d);
    right[r] = accumulate ? load_lanes(c + r * stride + lanes) : hn::Zero(d);
  }
  for (int64_t p = 0; p < depth; ++p) {
    const LaneVec b_left = load_lanes(b + p * 2 * lanes);
    const LaneVec b_right = load_lanes(b + p * 2 * lanes + lanes);
    for (int64_t r = 0; r < kTileRows; ++r) {
      const LaneVec element = hn::Set(d, a[p * kTileRows + r]);
      left[r] = hn::MulAdd(element, b_left, left[r]);
      right[r] = hn::MulAdd(element, b_right, right[r]);
    }
  }
  for (int64_t r = 0; r < kTileRows; ++r) {
    store_lanes(left[r], c + r * stride);
    store_lanes(right[r], c + r * stride + lanes);
  }
}

// The same for a tile at the edge, of which rows x cols elements exist.
void multiply_edge(const float* a, const float* b, int64_t depth, float* c, int64_t stride,
                   bool accumulate, int64_t rows, int64_t cols) {
  const int64_t width = tile_cols();
  float whole[kMaxTileRows * kMaxTileCols] = {};
  for (int64_t r = 0; accumulate && r < rows; ++r) {
    std::copy(c + r * stride, c + r * stride + cols, whole + r * width);
  }
  multiply_tile(a, b, depth, whole, width, accumulate);
  for (int64_t r = 0; r < rows; ++r) {
    std::copy(whole + r * width, whole + r * width + cols, c + r * stride);
  }
}

template <class T>
void multiply_block(const BlockShape& shape, const T* a, const T* b, float* c, float* scratch) {
  const int64_t width = tile_cols();
  float* packed_a = scratch;
  float* packed_b = scratch + kPackedAFloats;
  for (int64_t p = 0; p < shape.k; p += kDepth) {
    const int64_t depth = std::min(kDepth, shape.k - p);
    const bool accumulate = shape.accumulate || p > 0;
    for (int64_t j = 0; j < shape.n; j += width) {
      const T* from = shape.transpose_b ? b + j * shape.ldb + p : b + p * shape.ldb + j;
      pack(from, shape.ldb, shape.transpose_b, depth, std::min(width, shape.n - j), width,
           packed_b + j * depth);
    }
    for (int64_t i = 0; i < shape.m; i += kTileRows) {
      const int64_t rows = std::min(kTileRows, shape.m - i);
      const T* from = shape.transpose_a ? a + p * shape.lda + i : a + i * shape.lda + p;
      pack(from, shape.lda, !shape.transpose_a, depth, rows, kTileRows, packed_a);
      for (int64_t j = 0; j < shape.n; j += width) {
        const int64_t cols = std::min(width, shape.n - j);
        const float* panel = packed_b + j * depth;
        float* to = c + i * shape.ldc + j;
        if (rows == kTileRows && cols == width) {
          multiply_tile(packed_a, panel, depth, to, shape.ldc, accumulate);
        } else {
          multiply_edge(packed_a, panel, depth, to, shape.ldc, accumulate, rows, cols);
        }
      }
    }
  }
}

void multiply(const BlockShape& shape, const void* a, const void* b, float* c, float* scratch) {
  switch (shape.dtype) {
    case DType::bf16:
      return multiply_block(shape, static_cast<const bf16*>(a), static_cast<const bf16*>(b), c,
                            scratch);
    case DType::f16:
      return multiply_block(shape, static_cast<const f16*>(a), static_cast<const f16*>(b), c,
                            scratch);
    default:
      return multiply_block(shape, static_cast<const float*>(a), static_cast<const float*>(b), c,
                            scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {
namespace {

HWY_EXPORT(multiply);

class HighwayProduct final : public BlockProduct {
 public:
  explicit HighwayProduct(const BlockShape& shape) : shape_(shape) {}

  int64_t scratch_bytes() const override {
    return (kPackedAFloats + packed_b_floats(shape_)) * static_cast<int64_t>(sizeof(float));
  }
  void run(const void* a, const void* b, float* c, std::byte* scratch, bool) const override {
    HWY_DYNAMIC_DISPATCH(multiply)(shape_, a, b, c, reinterpret_cast<float*>(scratch));
  }

 private:
  BlockShape shape_;
};

}  // namespace

bool bits_hang_on_k_alone(DType dtype) { return is_bf16_product(dtype); }

BlockProductPtr block_product(Context&, const BlockShape& shape) {
  bug_check(shape.dtype != DType::f64 && is_float(shape.dtype), "block product of ", shape.dtype);
  if (bits_hang_on_k_alone(shape.dtype)) return make_bf16_product(shape);
  return std::make_shared<const HighwayProduct>(shape);
}

std::string block_product_library() { return str("Highway", own_bf16_product()); }

}  // namespace zinc::kernels::cpu
#endif  // HWY_ONCE
