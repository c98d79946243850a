#include "kernels/binary.h"

#include "kernels/broadcast.h"
#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void binary(const Binary& args);
void binary_backward(const BinaryBackward& args);
}  // namespace cpu
namespace cuda {
void binary(const Binary& args, StreamRef stream);
void binary_backward(const BinaryBackward& args, StreamRef stream);
}  // namespace cuda

std::string_view name_of(BinaryOp op) {
  switch (op) {
#define ZINC_ROW(name, ...) \
  case BinaryOp::name:      \
    return #name;
    ZINC_BINARY_OPS(ZINC_ROW)
#undef ZINC_ROW
  }
  return "?";
}

void binary(const Binary& args, StreamRef stream) {
  constexpr auto kOp = "binary";
  require_float(kOp, "a", args.a);
  require_operand(kOp, "b", args.b, args.a.dtype(), args.b.shape());
  const Shape shape = broadcast_shape(kOp, args.a.shape(), args.b.shape());
  require_operand(kOp, "y", args.y, args.a.dtype(), shape);
  require_same_device(kOp, {args.a, args.b, args.y});
  require_result_apart(kOp, "y", args.y, "a", args.a);
  require_result_apart(kOp, "y", args.y, "b", args.b);
  if (shape.numel() == 0) return;
  run_on_device(
      kOp, args, args.a.device(), stream, [args] { cpu::binary(args); },
      [&] { cuda::binary(args, stream); });
}

void binary_backward(const BinaryBackward& args, StreamRef stream) {
  constexpr auto kOp = "binary_backward";
  require_float(kOp, "dy", args.dy);
  const DType dtype = args.dy.dtype();
  const Shape& shape = args.dy.shape();
  const bool reads = reads_arguments(args.op);
  require_operand(kOp, "b", args.b, dtype, args.b.shape());
  const auto require_stretches = [&](std::string_view name, const ConstView& view) {
    require(is_broadcastable(view.shape(), shape), kOp, ": ", name, " of shape ", view.shape(),
            " does not stretch to ", shape);
  };
  require_stretches("b", args.b);
  const bool sums = args.db && args.db.shape() != shape;
  if (reads || args.a) {
    require_operand(kOp, "a", args.a, dtype, sums ? shape : args.a.shape());
    require_stretches("a", args.a);
  }
  if (args.da) {
    const bool wide = args.da.dtype() == DType::f32 && dtype != DType::f64;
    require_operand(kOp, "da", args.da, wide ? DType::f32 : dtype, shape);
    require_same_or_apart(kOp, "da", args.da, "dy", args.dy);
    require(!args.db || args.da.data() != args.dy.data(), kOp,
            ": da must not be dy where db is wanted too");
  }
  if (args.db) {
    require_sum_target(kOp, "db", args.db, dtype, sums ? args.b.shape() : shape);
    require_apart(kOp, "db", args.db, "dy", args.dy);
    if (args.da) require_apart(kOp, "db", args.db, "da", args.da);
    if (sums) {
      require(repeats_as_a_row(args.b.shape(), shape), kOp, ": db of shape ", args.b.shape(),
              " is not summed over ", shape, ": its last dimensions or one element are");
      require_contiguous(kOp, "b (where db is a sum)", args.b);
      require_contiguous(kOp, "dy (where db is a sum)", args.dy);
      if (reads) require_contiguous(kOp, "a (where db is a sum)", args.a);
    }
  }
  require_same_device(kOp, {args.a, args.b, args.dy, args.da, args.db});
  run_on_device(
      kOp, args, args.dy.device(), stream, [args] { cpu::binary_backward(args); },
      [&] { cuda::binary_backward(args, stream); });
}

Cost cost(const Binary& args) {
  return {.bytes_read = args.a.bytes() + args.b.bytes(),
          .bytes_written = args.y.bytes(),
          .flops = args.y.numel()};
}

Cost cost(const BinaryBackward& args) {
  const bool linear = !reads_arguments(args.op);
  const int64_t values = linear ? 0 : args.a.bytes() + args.b.bytes();
  const int64_t outputs = (args.da ? 1 : 0) + (args.db ? 1 : 0);
  return {
      .bytes_read = args.dy.bytes() + values + (args.accumulate_db ? optional_bytes(args.db) : 0),
      .bytes_written = optional_bytes(args.da) + optional_bytes(args.db),
      .flops = outputs * (linear ? 1 : 2) * args.dy.numel()};
}

}  // namespace zinc::kernels
