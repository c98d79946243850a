#include "kernels/fp8_encode.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void fp8_encode(const Fp8Encode& args);
void fp8_decode(const Fp8Decode& args);
}  // namespace cpu
namespace cuda {
void fp8_encode(const Fp8Encode& args, StreamRef stream);
void fp8_decode(const Fp8Decode& args, StreamRef stream);
}  // namespace cuda

void fp8_encode(const Fp8Encode& args, StreamRef stream) {
  constexpr auto kOp = "fp8_encode";
  require(args.format != Fp8::none, kOp, ": a format is missing");
  require(args.x && args.x.rank() == 2, kOp, ": x must be a matrix");
  require_operand(kOp, "x", args.x, DType::bf16, args.x.shape());
  const int64_t rows = args.x.dim(0), cols = args.x.dim(1);
  if (args.codes) {
    require_dense_operand(kOp, "codes", args.codes, DType::u8, Shape{rows, cols});
    require_apart(kOp, "codes", args.codes, "x", args.x);
  }
  if (args.transposed) {
    require_dense_operand(kOp, "transposed", args.transposed, DType::u8, Shape{cols, rows});
    require_apart(kOp, "transposed", args.transposed, "x", args.x);
  }
  require_dense_operand(kOp, "scale", args.scale, DType::f32, Shape{kFp8ScaleNumel});
  require_same_device(kOp, {args.x, args.codes, args.transposed, args.scale});
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::fp8_encode(args); },
      [&] { cuda::fp8_encode(args, stream); });
}

// The largest magnitude has to be known before anything is rounded: x is read twice.
Cost cost(const Fp8Encode& args) {
  return {.bytes_read = (args.is_known ? 1 : 2) * args.x.bytes(),
          .bytes_written = optional_bytes(args.codes) + optional_bytes(args.transposed),
          .flops = 4 * args.x.numel()};
}

void fp8_decode(const Fp8Decode& args, StreamRef stream) {
  constexpr auto kOp = "fp8_decode";
  require(args.format != Fp8::none, kOp, ": a format is missing");
  require(args.codes && args.codes.rank() == 2, kOp, ": codes must be a matrix");
  require_operand(kOp, "codes", args.codes, DType::u8, args.codes.shape());
  require_dense_operand(kOp, "y", args.y, DType::bf16, args.codes.shape());
  require_dense_operand(kOp, "scale", args.scale, DType::f32, Shape{kFp8ScaleNumel});
  require_same_device(kOp, {args.codes, args.scale, args.y});
  run_on_device(
      kOp, args, args.y.device(), stream, [args] { cpu::fp8_decode(args); },
      [&] { cuda::fp8_decode(args, stream); });
}

Cost cost(const Fp8Decode& args) {
  return {.bytes_read = args.codes.bytes(),
          .bytes_written = args.y.bytes(),
          .flops = args.codes.numel()};
}

}  // namespace zinc::kernels
