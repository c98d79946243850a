#include "kernels/signs.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void sign_scales(const SignScales& args);
void encode_signs_lanes(const EncodeSigns& args);
void send_signs_lanes(const SendSigns& args);
void decode_signs_lanes(const DecodeSigns& args);
}  // namespace cpu
namespace cuda {
void sign_scales(const SignScales& args, StreamRef stream);
void encode_signs(const EncodeSigns& args, StreamRef stream);
void send_signs(const SendSigns& args, StreamRef stream);
void decode_signs(const DecodeSigns& args, StreamRef stream);
}  // namespace cuda

namespace {

// Returns the number of chunks of an array [n].
int64_t require_chunks(std::string_view op, std::string_view name, const ConstView& x) {
  require_dense_operand(op, name, x, DType::f32, Shape{x.numel()});
  require(x.numel() % kSignChunk == 0, op, ": ", name, " must have whole chunks of ", kSignChunk,
          " elements, got ", x.numel());
  return x.numel() / kSignChunk;
}

void require_signs(std::string_view op, const ConstView& bits, const ConstView& scales,
                   int64_t chunks) {
  require_dense_operand(op, "bits", bits, DType::u8, Shape{chunks * kSignChunk / 8});
  require_dense_operand(op, "scales", scales, DType::f32, Shape{chunks});
  require_same_device(op, {bits, scales});
}

}  // namespace

void sign_scales(const SignScales& args, StreamRef stream) {
  constexpr auto kOp = "sign_scales";
  const Shape chunks{args.scales.numel()};
  require_dense_operand(kOp, "scales", args.scales, DType::f32, chunks);
  require_dense_operand(kOp, "sums", args.sums, DType::f64, chunks);
  require_dense_operand(kOp, "counts", args.counts, DType::i32, chunks);
  require_same_device(kOp, {args.scales, args.sums, args.counts});
  if (args.runs) {
    require_dense_operand(kOp, "runs", args.runs, DType::i64, Shape{args.runs.numel()});
    require_same_device(kOp, {args.scales, args.runs});
  }
  if (args.scales.numel() == 0) return;
  run_on_device(
      kOp, args, args.scales.device(), stream, [args] { cpu::sign_scales(args); },
      [&] { cuda::sign_scales(args, stream); });
}

void encode_signs(const EncodeSigns& args, StreamRef stream) {
  constexpr auto kOp = "encode_signs";
  const int64_t chunks = require_chunks(kOp, "x", args.x);
  require_signs(kOp, args.bits, args.scales, chunks);
  require_dense_operand(kOp, "counts", args.counts, DType::i32, Shape{chunks});
  require_same_device(kOp, {args.x, args.counts, args.bits});
  require_apart(kOp, "bits", args.bits, "x", args.x);
  if (args.residual) {
    require_dense_operand(kOp, "residual", args.residual, DType::f32, Shape{args.x.numel()});
    require_same_device(kOp, {args.x, args.residual});
    require_same_or_apart(kOp, "residual", args.residual, "x", args.x);
  }
  if (chunks == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::encode_signs_lanes(args); },
      [&] { cuda::encode_signs(args, stream); });
}

void send_signs(const SendSigns& args, StreamRef stream) {
  constexpr auto kOp = "send_signs";
  const int64_t chunks = require_chunks(kOp, "x", args.x);
  require_signs(kOp, args.bits, args.scales, chunks);
  require_dense_operand(kOp, "counts", args.counts, DType::i32, Shape{chunks});
  require_dense_operand(kOp, "residual", args.residual, DType::f32, Shape{args.x.numel()});
  require_same_device(kOp, {args.x, args.counts, args.residual, args.bits});
  require_apart(kOp, "residual", args.residual, "x", args.x);
  require(static_cast<bool>(args.last_bits) == static_cast<bool>(args.last_scales), kOp,
          ": last_bits and last_scales must both be given, or neither");
  if (args.last_bits) {
    require_signs(kOp, args.last_bits, args.last_scales, chunks);
    require_apart(kOp, "bits", args.bits, "last_bits", args.last_bits);
  }
  if (chunks == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::send_signs_lanes(args); },
      [&] { cuda::send_signs(args, stream); });
}

void decode_signs(const DecodeSigns& args, StreamRef stream) {
  constexpr auto kOp = "decode_signs";
  const int64_t chunks = require_chunks(kOp, "y", args.y);
  require_dense_operand(kOp, "counts", args.counts, DType::i32, Shape{chunks});
  require_same_device(kOp, {args.y, args.counts});
  require(static_cast<bool>(args.bits) == static_cast<bool>(args.scales), kOp,
          ": bits and scales must both be given, or neither");
  if (args.bits) {
    require_signs(kOp, args.bits, args.scales, chunks);
    require_same_device(kOp, {args.y, args.bits});
  }
  if (args.addend) {
    require_dense_operand(kOp, "addend", args.addend, DType::f32, Shape{args.y.numel()});
    require_same_device(kOp, {args.y, args.addend});
    require_apart(kOp, "y", args.y, "addend", args.addend);
  }
  if (chunks == 0) return;
  run_on_device(
      kOp, args, args.y.device(), stream, [args] { cpu::decode_signs_lanes(args); },
      [&] { cuda::decode_signs(args, stream); });
}

Cost cost(const SignScales& args) {
  return {.bytes_read = args.sums.bytes() + args.counts.bytes(),
          .bytes_written = args.scales.bytes(),
          .flops = 2 * args.scales.numel()};
}

Cost cost(const EncodeSigns& args) {
  return {.bytes_read = args.x.bytes() + args.scales.bytes() + args.counts.bytes(),
          .bytes_written = args.bits.bytes() + (args.residual ? args.residual.bytes() : 0),
          .flops = args.x.numel()};
}

Cost cost(const SendSigns& args) {
  const int64_t last = args.last_bits ? args.last_bits.bytes() + args.last_scales.bytes() : 0;
  return {.bytes_read = args.x.bytes() + args.residual.bytes() + args.counts.bytes() + last,
          .bytes_written = args.residual.bytes() + args.bits.bytes() + args.scales.bytes(),
          .flops = 6 * args.x.numel()};
}

Cost cost(const DecodeSigns& args) {
  const int64_t before = args.keep != 0.0 ? args.y.bytes() : 0;
  const int64_t addend = args.addend ? args.addend.bytes() : 0;
  const int64_t signs = args.bits ? args.bits.bytes() + args.scales.bytes() : 0;
  return {.bytes_read = before + addend + signs + args.counts.bytes(),
          .bytes_written = args.y.bytes(),
          .flops = args.y.numel() * ((before != 0 ? 2 : 0) + (addend != 0 ? 1 : 0))};
}

}  // namespace zinc::kernels
