#include "kernels/fill.h"

#include <bit>
#include <cmath>

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {
namespace cpu {
void fill(const Fill& args);
}  // namespace cpu
namespace cuda {
void fill(const Fill& args, StreamRef stream);
}  // namespace cuda

// Bounds as doubles; that of i64 is the first value beyond it.
bool is_value_of(DType dtype, double value) {
  if (is_float(dtype)) return true;
  if (value != std::floor(value)) return false;
  switch (dtype) {
    case DType::i64:
      return value >= -0x1p63 && value < 0x1p63;
    case DType::i32:
      return value >= -0x1p31 && value < 0x1p31;
    default:
      return value >= 0 && value < 256;
  }
}

uint64_t bits_of(double value, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<uint64_t>(value);
    case DType::f32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::bf16:
      return bf16(static_cast<float>(value)).bits;
    case DType::f16:
      return f16(static_cast<float>(value)).bits;
    default:
      return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

void fill(const Fill& args, StreamRef stream) {
  constexpr auto kOp = "fill";
  require_operand(kOp, "y", args.y, args.y.dtype(), args.y.shape());
  require(is_value_of(args.y.dtype(), args.value), kOp, ": ", args.value, " is no value of ",
          args.y.dtype());
  if (!args.pieces.empty()) {
    require_dense_operand(kOp, "y", args.y, args.y.dtype(), Shape{args.y.numel()});
    for (const auto& [begin, count] : args.pieces) {
      require(begin >= 0 && count >= 0 && begin + count <= args.y.numel(), kOp, ": elements [",
              begin, ", ", begin + count, ") of ", args.y.numel());
    }
  }
  if (args.y.numel() == 0) return;
  run_on_device(
      kOp, args, args.y.device(), stream, [args] { cpu::fill(args); },
      [&] { cuda::fill(args, stream); });
}

Cost cost(const Fill& args) {
  if (args.pieces.empty()) return {.bytes_written = args.y.bytes()};
  int64_t count = 0;
  for (const TensorSlice::Piece& piece : args.pieces) count += piece.count;
  return {.bytes_written = count * size_of(args.y.dtype())};
}

}  // namespace zinc::kernels
