#include "kernels/cpu/gemm_epilogue.h"

#include <algorithm>

#include "kernels/cpu/block_convert.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_epilogue.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// Rows of a tile lie far apart in memory, so no hardware prefetches them: the data of a row is
// fetched while an earlier row, this many before it, is finished.
constexpr int64_t kRowsAhead = 2;

// Columns [first, first + cols) of a tile with the dtype of c known and the bias widened.
template <class T>
struct Strip {
  const EpilogueTile& tile;
  int64_t first;
  int64_t cols;
  const float* bias;  // bias from column `first` on; null: none

  const float* slice_row(int64_t r) const { return tile.slices + r * tile.stride + first; }
  T* c_row(int64_t r) const { return static_cast<T*>(tile.c) + r * tile.c_stride + first; }
  const T* addend_row(int64_t r) const {
    return static_cast<const T*>(tile.addend) + r * tile.addend_stride + first;
  }
  const T* x_row(int64_t r) const {
    return static_cast<const T*>(tile.x) + r * tile.x_stride + first;
  }
  const T* factor_row(int64_t r) const {
    return static_cast<const T*>(tile.factor) + r * tile.factor_stride + first;
  }
  T* factor_gradient_row(int64_t r) const {
    return static_cast<T*>(tile.factor_gradient) + r * tile.factor_gradient_stride + first;
  }
  T* pre_row(int64_t r) const { return static_cast<T*>(tile.pre) + r * tile.pre_stride + first; }

  // z of the header at row r, column first + c.
  template <class Load>
  HWY_INLINE LaneVec linear(int64_t r, int64_t c, const Load& load) const {
    const Lanes d;
    auto z = hn::Zero(d);
    if (tile.slices != nullptr) {
      const float* from = slice_row(r) + c;
      z = load(from);
      for (int64_t s = 1; s < tile.slice_count; ++s) {
        z = hn::Add(z, load(from + s * tile.slice_step));
      }
    }
    if (tile.alpha != 1.0f) z = hn::Mul(z, hn::Set(d, tile.alpha));
    if (tile.beta != 0.0f) {
      z = hn::MulAdd(hn::Set(d, tile.beta), load(addend_row(r) + c), z);
    }
    if (bias != nullptr) z = hn::Add(z, load(bias + c));
    return z;
  }
};

template <class T>
void finish_plain(const Strip<T>& strip) {
  for (int64_t r = 0; r < strip.tile.rows; ++r) {
    T* c_row = strip.c_row(r);
    const T* ahead = strip.addend_row(std::min(r + kRowsAhead, strip.tile.rows - 1));
    for_each_vector(strip.cols, [&](int64_t c, auto load, auto store) HWY_ATTR {
      if (strip.tile.beta != 0.0f) hwy::Prefetch(ahead + c);
      store(strip.linear(r, c, load), c_row + c);
    });
  }
}

template <class T, class Function>
void finish_gradient(const Strip<T>& strip) {
  for (int64_t r = 0; r < strip.tile.rows; ++r) {
    T* c_row = strip.c_row(r);
    const T* x_row = strip.x_row(r);
    const T* x_ahead = strip.x_row(std::min(r + kRowsAhead, strip.tile.rows - 1));
    for_each_vector(strip.cols, [&](int64_t c, auto load, auto store) HWY_ATTR {
      hwy::Prefetch(x_ahead + c);
      // Rounds as Note [Rounding of the pre-activation] says.
      T rounded[HWY_MAX_BYTES / sizeof(float)];
      store_lanes(strip.linear(r, c, load), rounded);
      store(hn::Mul(load_lanes(rounded), Function::derivative(load(x_row + c))), c_row + c);
    });
  }
}

// The operations of swiglu_backward(), and so its bits.
template <class T, class Function>
void finish_factors(const Strip<T>& strip) {
  for (int64_t r = 0; r < strip.tile.rows; ++r) {
    T* c_row = strip.c_row(r);
    T* gradient_row = strip.factor_gradient_row(r);
    const T *x_row = strip.x_row(r), *factor_row = strip.factor_row(r);
    const int64_t ahead = std::min(r + kRowsAhead, strip.tile.rows - 1);
    const T *x_ahead = strip.x_row(ahead), *factor_ahead = strip.factor_row(ahead);
    for_each_vector(strip.cols, [&](int64_t c, auto load, auto store) HWY_ATTR {
      hwy::Prefetch(x_ahead + c);
      hwy::Prefetch(factor_ahead + c);
      T rounded[HWY_MAX_BYTES / sizeof(float)];
      store_lanes(strip.linear(r, c, load), rounded);
      const auto z = load_lanes(rounded), x = load(x_row + c), u = load(factor_row + c);
      store(hn::Mul(hn::Mul(z, u), Function::derivative(x)), c_row + c);
      store(hn::Mul(z, Function::value(x)), gradient_row + c);
    });
  }
}

template <class T, class Function>
void finish_activation(const Strip<T>& strip) {
  for (int64_t r = 0; r < strip.tile.rows; ++r) {
    T* c_row = strip.c_row(r);
    T* pre_row = strip.tile.pre == nullptr ? nullptr : strip.pre_row(r);
    for_each_vector(strip.cols, [&](int64_t c, auto load, auto store) HWY_ATTR {
      // See Note [Rounding of the pre-activation].
      T rounded[HWY_MAX_BYTES / sizeof(float)];
      const LaneVec z = strip.linear(r, c, load);
      store_lanes(z, rounded);
      if (pre_row != nullptr) store(z, pre_row + c);
      store(Function::value(load_lanes(rounded)), c_row + c);
    });
  }
}

template <class T, class Function>
void finish_with(const Strip<T>& strip) {
  if (strip.tile.factor != nullptr) return finish_factors<T, Function>(strip);
  if (strip.tile.x != nullptr) return finish_gradient<T, Function>(strip);
  return finish_activation<T, Function>(strip);
}

template <class T>
void finish_strip(const Strip<T>& strip) {
  switch (strip.tile.activation) {
    case Activation::none:
      return finish_plain(strip);
    case Activation::gelu_tanh:
      return finish_with<T, GeluTanhLanes>(strip);
    case Activation::gelu_erf:
      return finish_with<T, GeluErfLanes>(strip);
    case Activation::silu:
      return finish_with<T, SiluLanes>(strip);
  }
}

template <class T>
void finish_as(const EpilogueTile& tile) {
  constexpr int64_t kColumns = 512;  // for which the bias is widened at a time
  float bias[kColumns];
  for (int64_t first = 0; first < tile.cols; first += kColumns) {
    const int64_t cols = std::min(kColumns, tile.cols - first);
    if (tile.bias != nullptr) {
      const auto* from = static_cast<const char*>(tile.bias) + first * size_of(tile.bias_dtype);
      widen_block(from, tile.bias_dtype, 1, cols, cols, bias, cols);
    }
    finish_strip(Strip<T>{tile, first, cols, tile.bias == nullptr ? nullptr : bias});
  }
}

void finish(const EpilogueTile& tile) {
  switch (tile.dtype) {
    case DType::bf16:
      return finish_as<bf16>(tile);
    case DType::f16:
      return finish_as<f16>(tile);
    default:
      return finish_as<float>(tile);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(finish);

void finish_tile(const EpilogueTile& tile) { HWY_DYNAMIC_DISPATCH(finish)(tile); }

}  // namespace zinc::kernels::cpu
#endif  // HWY_ONCE
