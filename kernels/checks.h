// kernels/checks.h: argument checks that dispatchers share, beside the checks of core/view.h. All
// throw InvalidArgument with a message that starts with `op` and names the argument.
#pragma once

#include <string_view>

#include "core/view.h"

namespace zinc::kernels {

// f64 for f64, f32 for every other float: the dtype of statistics and sums.
DType accumulator_of(DType dtype);

void require_float(std::string_view op, std::string_view name, const ConstView& view);
void require_index(std::string_view op, std::string_view name, const ConstView& view);

// Present, in computable memory, with this dtype and shape.
void require_operand(std::string_view op, std::string_view name, const ConstView& view, DType dtype,
                     const Shape& shape);
// The same, and contiguous.
void require_dense_operand(std::string_view op, std::string_view name, const ConstView& view,
                           DType dtype, const Shape& shape);
// A gradient of a weight or a sum: shape given, contiguous, of `dtype` or f32.
void require_sum_target(std::string_view op, std::string_view name, const ConstView& view,
                        DType dtype, const Shape& shape);
// A value per row, saved by a forward pass: present, contiguous, `rows` elements of any shape.
void require_row_statistic(std::string_view op, std::string_view name, const ConstView& view,
                           DType dtype, int64_t rows);
// The counter of random numbers (kernels/dropout.h): [1] i64 on `device`, a GPU; may be absent.
void require_counter(std::string_view op, const ConstView& counter, Device device);
// u8, contiguous, aligned to 8, at least `bytes`; not needed when `bytes` is 0.
void require_workspace(std::string_view op, const ConstView& view, int64_t bytes);

// The operands of every update rule of an optimizer: weights [n] f64 | f32 | bf16 (with
// model_weights of bf16), gradient [n] f32 | bf16
// | f16 or both f64, model_weights [n] of any float dtype or absent, factor [1] f32 and skip [1]
// i32 or absent; all contiguous, on one device, without overlap.
void require_update_operands(std::string_view op, const ConstView& weights,
                             const ConstView& gradient, const ConstView& model_weights,
                             const ConstView& factor, const ConstView& skip);
// Those of a rule whose result is a direction: gradient [n] of any float dtype, direction [n] f32 |
// bf16 | f16 (f64 with f64), factor and skip as above.
void require_direction_operands(std::string_view op, const ConstView& direction,
                                const ConstView& gradient, const ConstView& factor,
                                const ConstView& skip);

// Whether a view can be seen as [rows, cols], cols its last dimension.
bool has_one_row_stride(const ConstView& view);
// Elements from the beginning of a row to that of the next; throws where the rows have no common
// stride.
int64_t row_stride(std::string_view op, std::string_view name, const ConstView& view);

// The views share no byte, as far as the ranges they span tell: strided views that interleave pass.
void require_apart(std::string_view op, std::string_view name_a, const ConstView& a,
                   std::string_view name_b, const ConstView& b);
// The views are the same elements, or share no byte, as far as the ranges they span tell.
void require_same_or_apart(std::string_view op, std::string_view name_a, const ConstView& a,
                           std::string_view name_b, const ConstView& b);

}  // namespace zinc::kernels
