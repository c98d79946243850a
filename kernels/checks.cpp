#include "kernels/checks.h"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace zinc::kernels {
namespace {

bool ranges_touch(const ConstView& a, const ConstView& b) {
  if (!a || !b || a.numel() == 0 || b.numel() == 0) return false;
  if (!a.is_contiguous() || !b.is_contiguous()) return false;
  const auto* a_begin = static_cast<const std::byte*>(a.data());
  const auto* b_begin = static_cast<const std::byte*>(b.data());
  const std::less<const std::byte*> before;
  return before(a_begin, b_begin + b.bytes()) && before(b_begin, a_begin + a.bytes());
}

}  // namespace

DType accumulator_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

void require_float(std::string_view op, std::string_view name, const ConstView& view) {
  require(static_cast<bool>(view), op, ": ", name, " is missing");
  require(is_float(view.dtype()), op, ": ", name, " must be f64, f32, bf16 or f16, not ",
          view.dtype());
  require_computable(op, name, view);
}

void require_index(std::string_view op, std::string_view name, const ConstView& view) {
  require(static_cast<bool>(view), op, ": ", name, " is missing");
  require(view.dtype() == DType::i32 || view.dtype() == DType::i64, op, ": ", name,
          " must be i32 or i64, not ", view.dtype());
  require_computable(op, name, view);
  require_contiguous(op, name, view);
}

void require_operand(std::string_view op, std::string_view name, const ConstView& view, DType dtype,
                     const Shape& shape) {
  require(static_cast<bool>(view), op, ": ", name, " is missing");
  require_dtype(op, name, view, dtype);
  require_shape(op, name, view, shape);
  require_computable(op, name, view);
}

void require_dense_operand(std::string_view op, std::string_view name, const ConstView& view,
                           DType dtype, const Shape& shape) {
  require_operand(op, name, view, dtype, shape);
  require_contiguous(op, name, view);
}

void require_sum_target(std::string_view op, std::string_view name, const ConstView& view,
                        DType dtype, const Shape& shape) {
  require(static_cast<bool>(view), op, ": ", name, " is missing");
  require(view.dtype() == dtype || (view.dtype() == DType::f32 && dtype != DType::f64), op, ": ",
          name, " must be ", dtype, dtype == DType::f64 || dtype == DType::f32 ? "" : " or f32",
          ", not ", view.dtype());
  require_dense_operand(op, name, view, view.dtype(), shape);
}

void require_row_statistic(std::string_view op, std::string_view name, const ConstView& view,
                           DType dtype, int64_t rows) {
  require(static_cast<bool>(view), op, ": ", name, " is missing");
  require_dtype(op, name, view, dtype);
  require_contiguous(op, name, view);
  require_computable(op, name, view);
  require(view.numel() == rows, op, ": ", name, " must have one element per row: ", rows, " vs ",
          view.numel());
}

void require_counter(std::string_view op, const ConstView& counter, Device device) {
  if (!counter) return;
  require(device.is_cuda(), op, ": a counter in memory is for a GPU, not for ", device);
  require(counter.dtype() == DType::i64 && counter.shape() == Shape{1} &&
              counter.device() == device && counter.tier() == Tier::device,
          op, ": the counter must be [1] i64 on ", device, ", not ", counter);
}

void require_workspace(std::string_view op, const ConstView& view, int64_t bytes) {
  if (bytes == 0) return;
  require(static_cast<bool>(view), op, ": workspace is missing, ", bytes, " bytes are needed");
  require_dtype(op, "workspace", view, DType::u8);
  require_computable(op, "workspace", view);
  require_contiguous(op, "workspace", view);
  require(view.bytes() >= bytes, op, ": workspace must have ", bytes, " bytes, not ", view.bytes());
  require(reinterpret_cast<uintptr_t>(view.data()) % 8 == 0, op,
          ": workspace must be aligned to 8 bytes");
}

void require_update_operands(std::string_view op, const ConstView& weights,
                             const ConstView& gradient, const ConstView& model_weights,
                             const ConstView& factor, const ConstView& skip) {
  require(static_cast<bool>(weights), op, ": weights are missing");
  require(weights.dtype() == DType::f32 || weights.dtype() == DType::f64 ||
              weights.dtype() == DType::bf16,
          op, ": weights must be f64, f32 or bf16, not ", weights.dtype());
  require(weights.dtype() != DType::bf16 || !model_weights || model_weights.dtype() == DType::bf16,
          op, ": model_weights beside weights of bf16 must be bf16 too");
  require(weights.rank() == 1, op, ": weights must be [n], not ", weights.shape());
  require_dense_operand(op, "weights", weights, weights.dtype(), weights.shape());
  require_float(op, "gradient", gradient);
  require((gradient.dtype() == DType::f64) == (weights.dtype() == DType::f64), op, ": gradient of ",
          gradient.dtype(), " does not go with weights of ", weights.dtype());
  require_dense_operand(op, "gradient", gradient, gradient.dtype(), weights.shape());
  require_apart(op, "gradient", gradient, "weights", weights);
  if (model_weights) {
    require_float(op, "model_weights", model_weights);
    require_dense_operand(op, "model_weights", model_weights, model_weights.dtype(),
                          weights.shape());
    require_apart(op, "model_weights", model_weights, "weights", weights);
    require_apart(op, "model_weights", model_weights, "gradient", gradient);
  }
  if (factor) require_operand(op, "factor", factor, DType::f32, Shape{1});
  if (skip) require_operand(op, "skip", skip, DType::i32, Shape{1});
  require_same_device(op, {weights, gradient, model_weights, factor, skip});
}

void require_direction_operands(std::string_view op, const ConstView& direction,
                                const ConstView& gradient, const ConstView& factor,
                                const ConstView& skip) {
  require_float(op, "gradient", gradient);
  require(gradient.rank() == 1, op, ": gradient must be [n], not ", gradient.shape());
  require_contiguous(op, "gradient", gradient);
  require_float(op, "direction", direction);
  require(direction.dtype() != DType::f64 || gradient.dtype() == DType::f64, op,
          ": direction of f64 does not go with a gradient of ", gradient.dtype());
  require_dense_operand(op, "direction", direction, direction.dtype(), gradient.shape());
  require_apart(op, "direction", direction, "gradient", gradient);
  if (factor) require_operand(op, "factor", factor, DType::f32, Shape{1});
  if (skip) require_operand(op, "skip", skip, DType::i32, Shape{1});
  require_same_device(op, {gradient, direction, factor, skip});
}

bool has_one_row_stride(const ConstView& view) {
  if (view.numel() == 0) return true;
  int inner = -1;  // the innermost dimension before the last that has more than one index
  for (int i = view.rank() - 2; i >= 0; --i) {
    if (view.dim(i) == 1) continue;
    if (inner >= 0 && view.stride(i) != view.dim(inner) * view.stride(inner)) return false;
    inner = i;
  }
  return true;
}

int64_t row_stride(std::string_view op, std::string_view name, const ConstView& view) {
  require(has_one_row_stride(view), op, ": ", name, " of shape ", view.shape(),
          " must have its rows at one stride; copy it with contiguous() first");
  for (int i = view.rank() - 2; i >= 0; --i) {
    if (view.dim(i) != 1) return view.stride(i);
  }
  return view.cols();
}

void require_apart(std::string_view op, std::string_view name_a, const ConstView& a,
                   std::string_view name_b, const ConstView& b) {
  require(!ranges_touch(a, b), op, ": ", name_a, " and ", name_b, " must not overlap");
}

void require_same_or_apart(std::string_view op, std::string_view name_a, const ConstView& a,
                           std::string_view name_b, const ConstView& b) {
  if (a.data() == b.data() && a.dtype() == b.dtype()) return;
  require(!ranges_touch(a, b), op, ": ", name_a, " may be ", name_b,
          " itself, but must not overlap it in part");
}

}  // namespace zinc::kernels
