#include "kernels/binary.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void binary(const Binary& args);
void binary_scalar(const BinaryScalar& args);
void binary_backward(const BinaryBackward& args);
}  // namespace cpu
namespace cuda {
void binary(const Binary& args, StreamRef stream);
void binary_scalar(const BinaryScalar& args, StreamRef stream);
void binary_backward(const BinaryBackward& args, StreamRef stream);
}  // namespace cuda

namespace {

// b has the shape of a, or its last dimensions, or one element.
void require_broadcastable(std::string_view op, const Shape& a, const ConstView& b) {
  if (b.shape() == a || b.numel() == 1) return;
  bool fits = b.rank() <= a.rank();
  for (int i = 1; fits && i <= b.rank(); ++i) fits = b.dim(-i) == a.dim(-i);
  require(fits, op, ": b must have shape ", a, ", its last dimensions or one element, not ",
          b.shape());
  require_contiguous(op, "b", b);
}

}  // namespace

std::string_view name_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return "add";
    case BinaryOp::sub:
      return "sub";
    case BinaryOp::mul:
      return "mul";
    case BinaryOp::div:
      return "div";
    case BinaryOp::max:
      return "max";
    case BinaryOp::min:
      return "min";
  }
  return "?";
}

void binary(const Binary& args, StreamRef stream) {
  constexpr auto kOp = "binary";
  require_float(kOp, "a", args.a);
  require_operand(kOp, "b", args.b, args.a.dtype(), args.b.shape());
  require_operand(kOp, "y", args.y, args.a.dtype(), args.a.shape());
  require_broadcastable(kOp, args.a.shape(), args.b);
  require_same_device(kOp, {args.a, args.b, args.y});
  require_same_or_apart(kOp, "y", args.y, "a", args.a);
  if (args.b.shape() == args.a.shape()) {
    require_same_or_apart(kOp, "y", args.y, "b", args.b);
  } else {
    require_apart(kOp, "y", args.y, "b", args.b);
  }
  if (args.a.numel() == 0) return;
  run_on_device(
      kOp, args, args.a.device(), stream, [args] { cpu::binary(args); },
      [&] { cuda::binary(args, stream); });
}

void binary_scalar(const BinaryScalar& args, StreamRef stream) {
  constexpr auto kOp = "binary_scalar";
  require_float(kOp, "a", args.a);
  require_operand(kOp, "y", args.y, args.a.dtype(), args.a.shape());
  require_same_device(kOp, {args.a, args.y});
  require_same_or_apart(kOp, "y", args.y, "a", args.a);
  if (args.a.numel() == 0) return;
  run_on_device(
      kOp, args, args.a.device(), stream, [args] { cpu::binary_scalar(args); },
      [&] { cuda::binary_scalar(args, stream); });
}

void binary_backward(const BinaryBackward& args, StreamRef stream) {
  constexpr auto kOp = "binary_backward";
  require_float(kOp, "dy", args.dy);
  const DType dtype = args.dy.dtype();
  const Shape& shape = args.dy.shape();
  const bool linear = args.op == BinaryOp::add || args.op == BinaryOp::sub;
  require_operand(kOp, "b", args.b, dtype, args.b.shape());
  require_broadcastable(kOp, shape, args.b);
  const bool broadcast = args.b.shape() != shape;
  if (!linear || args.a) require_operand(kOp, "a", args.a, dtype, shape);
  if (args.da) {
    require_operand(kOp, "da", args.da, dtype, shape);
    require_same_or_apart(kOp, "da", args.da, "dy", args.dy);
    require(!args.db || args.da.data() != args.dy.data(), kOp,
            ": da must not be dy where db is wanted too");
  }
  if (args.db) {
    require_sum_target(kOp, "db", args.db, dtype, args.b.shape());
    require_apart(kOp, "db", args.db, "dy", args.dy);
    if (args.da) require_apart(kOp, "db", args.db, "da", args.da);
    if (broadcast) {
      require_contiguous(kOp, "dy (where b is broadcast)", args.dy);
      if (!linear) require_contiguous(kOp, "a (where b is broadcast)", args.a);
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
          .flops = args.a.numel()};
}

Cost cost(const BinaryScalar& args) {
  return {.bytes_read = args.a.bytes(), .bytes_written = args.y.bytes(), .flops = args.a.numel()};
}

Cost cost(const BinaryBackward& args) {
  const bool linear = args.op == BinaryOp::add || args.op == BinaryOp::sub;
  const int64_t values = linear ? 0 : args.a.bytes() + args.b.bytes();
  const int64_t outputs = (args.da ? 1 : 0) + (args.db ? 1 : 0);
  return {
      .bytes_read = args.dy.bytes() + values + (args.accumulate_db ? optional_bytes(args.db) : 0),
      .bytes_written = optional_bytes(args.da) + optional_bytes(args.db),
      .flops = outputs * (linear ? 1 : 2) * args.dy.numel()};
}

}  // namespace zinc::kernels
