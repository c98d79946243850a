#include "kernels/cpu/block_convert.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class From, class To>
void convert(const From* from, int64_t rows, int64_t cols, int64_t from_stride, To* to,
             int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const From* source = from + r * from_stride;
    To* target = to + r * to_stride;
    for_each_vector(cols, [&](int64_t c, auto load, auto store)
                              HWY_ATTR { store(load(source + c), target + c); });
  }
}

void widen(const void* from, DType dtype, int64_t rows, int64_t cols, int64_t from_stride,
           float* to, int64_t to_stride) {
  switch (dtype) {
    case DType::f32:
      return convert(static_cast<const float*>(from), rows, cols, from_stride, to, to_stride);
    case DType::bf16:
      return convert(static_cast<const bf16*>(from), rows, cols, from_stride, to, to_stride);
    default:
      return convert(static_cast<const f16*>(from), rows, cols, from_stride, to, to_stride);
  }
}

void narrow(const float* from, int64_t rows, int64_t cols, int64_t from_stride, void* to,
            DType dtype, int64_t to_stride) {
  switch (dtype) {
    case DType::f32:
      return convert(from, rows, cols, from_stride, static_cast<float*>(to), to_stride);
    case DType::bf16:
      return convert(from, rows, cols, from_stride, static_cast<bf16*>(to), to_stride);
    default:
      return convert(from, rows, cols, from_stride, static_cast<f16*>(to), to_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);

void widen_block(const void* from, DType dtype, int64_t rows, int64_t cols, int64_t from_stride,
                 float* to, int64_t to_stride) {
  bug_check(dtype != DType::f64 && is_float(dtype), "widen_block of ", dtype);
  HWY_DYNAMIC_DISPATCH(widen)(from, dtype, rows, cols, from_stride, to, to_stride);
}

void narrow_block(const float* from, int64_t rows, int64_t cols, int64_t from_stride, void* to,
                  DType dtype, int64_t to_stride) {
  bug_check(dtype != DType::f64 && is_float(dtype), "narrow_block to ", dtype);
  HWY_DYNAMIC_DISPATCH(narrow)(from, rows, cols, from_stride, to, dtype, to_stride);
}

}  // namespace zinc::kernels::cpu
#endif  // HWY_ONCE
