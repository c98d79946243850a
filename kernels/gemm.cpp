#include "kernels/gemm.h"

#include "core/context.h"
#include "core/error.h"
#include "kernels/checks.h"
#include "kernels/cuda/gemm.h"
#include "kernels/fp8_encode.h"
#include "kernels/gemm_choice.h"
#include "kernels/launch.h"
#include "kernels/matrix_product.h"
#include "kernels/reduce.h"

namespace zinc::kernels {
namespace {

int64_t matrix_stride(const ConstView& view) { return view.stride(view.rank() - 2); }

// A matrix (the last two dimensions of a view): present, computable, rows that do not overlap.
void require_matrix(std::string_view op, std::string_view name, const ConstView& view, int rank) {
  require(static_cast<bool>(view), op, ": ", name, " is missing");
  require(view.rank() == rank, op, ": ", name, " must have ", rank, " dimensions, not shape ",
          view.shape());
  require_computable(op, name, view);
  const bool overlap = view.dim(-2) > 1 && matrix_stride(view) < view.dim(-1);
  require(!overlap, op, ": the rows of ", name, " overlap: stride ", matrix_stride(view), " for ",
          view.dim(-1), " columns");
}

// dtypes of a, b and c, and the extents m, n and k.
MatrixProduct check_product(std::string_view op, const ConstView& a, const ConstView& b,
                            const View& c, bool transpose_a, bool transpose_b,
                            bool are_codes = false) {
  const DType dtype = are_codes ? DType::bf16 : a.dtype();
  require(is_float(dtype), op, ": a must be f64, f32, bf16 or f16, not ", dtype);
  if (!are_codes) require_dtype(op, "b", b, dtype);
  require(c.dtype() == dtype || (c.dtype() == DType::f32 && is_16bit_float(dtype)), op,
          ": c must be ", dtype, is_16bit_float(dtype) ? " or f32" : "", ", not ", c.dtype());
  MatrixProduct p{.m = a.dim(transpose_a ? -1 : -2),
                  .n = b.dim(transpose_b ? -2 : -1),
                  .k = a.dim(transpose_a ? -2 : -1),
                  .dtype = dtype,
                  .c_dtype = c.dtype(),
                  .device = a.device(),
                  .a = a.data(),
                  .b = b.data(),
                  .c = c.data(),
                  .lda = matrix_stride(a),
                  .ldb = matrix_stride(b),
                  .ldc = matrix_stride(c),
                  .addend = c.data(),
                  .addend_stride = matrix_stride(c),
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b};
  const int64_t b_k = b.dim(transpose_b ? -1 : -2);
  require(b_k == p.k, op, ": a and b must agree in K: ", p.k, " (a ", a.shape(),
          transpose_a ? " transposed" : "", ") vs ", b_k, " (b ", b.shape(),
          transpose_b ? " transposed)" : ")");
  require(c.dim(-2) == p.m && c.dim(-1) == p.n, op, ": c must be [", p.m, ", ", p.n, "], not ",
          c.shape());
  return p;
}

void check_epilogue(const Gemm& args, const MatrixProduct& p) {
  const Shape whole{p.m, p.n};
  if (args.bias) {
    require_dense_operand("gemm", "bias", args.bias, args.bias.dtype(), Shape{p.n});
    require(args.bias.dtype() == p.dtype ||
                (args.bias.dtype() == DType::f32 && is_16bit_float(p.dtype)),
            "gemm: bias must be ", p.dtype, is_16bit_float(p.dtype) ? " or f32" : "", ", not ",
            args.bias.dtype());
  }
  if (args.addend) {
    require(args.beta != 0.0, "gemm: an addend needs a beta that multiplies it");
    require_operand("gemm", "addend", args.addend, p.c_dtype, whole);
    require_matrix("gemm", "addend", args.addend, 2);
    require_apart("gemm", "c", args.c, "addend", args.addend);
  }
  if (args.activation_input) {
    require(args.activation != Activation::none,
            "gemm: activation_input needs an activation whose derivative is taken there");
    require(!args.pre_activation,
            "gemm: pre_activation is an output of the activation, activation_input belongs to its "
            "gradient; give one of them");
    require_operand("gemm", "activation_input", args.activation_input, p.c_dtype, whole);
    require_matrix("gemm", "activation_input", args.activation_input, 2);
    require_same_or_apart("gemm", "c", args.c, "activation_input", args.activation_input);
  }
  require(static_cast<bool>(args.factor) == static_cast<bool>(args.factor_gradient) &&
              (!args.factor || args.activation_input),
          "gemm: a factor needs factor_gradient and activation_input");
  if (args.factor) {
    require_operand("gemm", "factor", args.factor, p.c_dtype, whole);
    require_matrix("gemm", "factor", args.factor, 2);
    require_operand("gemm", "factor_gradient", args.factor_gradient, p.c_dtype, whole);
    require_matrix("gemm", "factor_gradient", args.factor_gradient, 2);
    require_apart("gemm", "c", args.c, "factor_gradient", args.factor_gradient);
    require_same_or_apart("gemm", "c", args.c, "factor", args.factor);
    require_same_or_apart("gemm", "factor_gradient", args.factor_gradient, "factor", args.factor);
    require_same_or_apart("gemm", "factor_gradient", args.factor_gradient, "activation_input",
                          args.activation_input);
  }
  require(!args.a_sums || (args.transpose_a && !args.b_sums),
          "gemm: a_sums are of an a that is transposed, and without b_sums");
  require(!args.b_sums || !args.transpose_b, "gemm: b_sums are of a b that is not transposed");
  if (const View& sums = args.a_sums ? args.a_sums : args.b_sums) {
    const DType dtype = sums.dtype() == DType::f32 ? DType::f32 : p.dtype;
    require_dense_operand("gemm", "sums", sums, dtype, Shape{args.a_sums ? p.m : p.n});
    require_apart("gemm", "sums", sums, "a", args.a);
    require_apart("gemm", "sums", sums, "b", args.b);
    if (!args.c.device().meta) require_apart("gemm", "sums", sums, "c", args.c);
  }
  if (args.pre_activation) {
    require(args.activation != Activation::none, "gemm: pre_activation needs an activation");
    require_operand("gemm", "pre_activation", args.pre_activation, p.c_dtype, whole);
    require_matrix("gemm", "pre_activation", args.pre_activation, 2);
    require_apart("gemm", "pre_activation", args.pre_activation, "c", args.c);
  }
}

// Returns whether the product has made its sums. The workspace does not depend on the kernels of
// this build, so that any build can plan for a GPU.
bool run_on_cuda(const MatrixProduct& p, const char* label, StreamRef stream) {
  const Block workspace = Context::current().allocator().allocate(
      cuda::workspace_bytes(p), Tier::device, Label::workspace, stream);
  if (p.device.meta) return choose_gemm(p).wgmma;
  if constexpr (kHasCudaKernels) {
    return cuda::run_product(p, static_cast<std::byte*>(workspace.data()), stream);
  }
  require(false, label, ": this build has no kernel for ", p.device);
  return false;
}

bool dispatch(const MatrixProduct& p, const char* label, const Cost& cost, StreamRef stream) {
  if (p.m == 0 || p.n == 0 || p.batch() == 0) return false;
  if (p.device.meta) note_kernel(label, cost, p.device, stream, WorkKind::gemm, p.dtype);
  switch (p.device.kind) {
    case DeviceKind::cpu:
      cpu::run_product(p, label, stream);
      return false;
    case DeviceKind::cuda:
      return run_on_cuda(p, label, stream);
  }
  return false;
}

// Makes the sums in a pass of their own.
void make_sums(const Gemm& args, StreamRef stream) {
  if (!args.a_sums && !args.b_sums) return;
  reduce({.op = ReduceOp::sum,
          .over = ReduceOver::leading,
          .x = args.a_sums ? args.a : args.b,
          .y = args.a_sums ? args.a_sums : args.b_sums,
          .accumulate = args.adds_to_sums},
         stream);
}

Cost product_cost(int64_t batch, const ConstView& a, const ConstView& b, const ConstView& c,
                  bool transpose_a, double beta) {
  const int64_t k = a.dim(transpose_a ? -2 : -1);
  return {.bytes_read = a.bytes() + b.bytes() + (beta == 0.0 ? 0 : c.bytes()),
          .bytes_written = c.bytes(),
          .flops = 2 * batch * c.dim(-2) * c.dim(-1) * k};
}

// The cost of an activation, or of its derivative, behind the product: on a CPU while a tile is at
// hand, on a GPU, whose library has none, a pass of its own (kernels/cuda/gemm.cpp).
Cost epilogue_cost(const Gemm& args) {
  Cost cost{.flops = (args.activation_input ? 16 : 8) * args.c.numel()};  // as in kernels/gelu.cpp
  if (args.c.device().is_cpu()) return cost;
  cost.bytes_read =
      args.c.bytes() + optional_bytes(args.activation_input) + optional_bytes(args.factor);
  cost.bytes_written = args.c.bytes() + optional_bytes(args.factor_gradient);
  return cost;
}

// The pass behind a product on a meta device, if there is one.
void note_epilogue(const Gemm& args, const MatrixProduct& p, StreamRef stream) {
  Cost cost;
  if (args.activation != Activation::none) cost = epilogue_cost(args);
  if (p.device.is_cuda() && p.m * p.n > 0 && choose_gemm(p).wgmma) {
    const int64_t parts = gemm_work(p.m, p.n, p.k, cuda::kLibraryWorkspaceBytes).parts;
    if (parts == 1) return;
    cost.bytes_read = parts * p.m * p.n * int64_t{sizeof(float)} +
                      optional_bytes(args.activation_input) + optional_bytes(args.factor) +
                      (p.beta != 0.0 ? args.c.bytes() : 0);
    cost.bytes_written =
        args.c.bytes() + optional_bytes(args.pre_activation) + optional_bytes(args.factor_gradient);
    cost.flops += parts * p.m * p.n;
  }
  if (cost.bytes() > 0 || cost.flops > 0) note_kernel("gemm_epilogue", cost, p.device, stream);
}

void check_codes(const Gemm& args) {
  require(args.a_fp8 != Fp8::none && args.b_fp8 != Fp8::none,
          "gemm: in 8 bits are both operands, or none");
  require(!args.a_sums && !args.b_sums, "gemm: sums over k are not of codes");
  require_dtype("gemm", "a", args.a, DType::u8);
  require_dtype("gemm", "b", args.b, DType::u8);
  require_dense_operand("gemm", "a_scale", args.a_scale, DType::f32, Shape{kFp8ScaleNumel});
  require_dense_operand("gemm", "b_scale", args.b_scale, DType::f32, Shape{kFp8ScaleNumel});
  require_same_device("gemm", {args.a, args.a_scale, args.b_scale});
}

// Whether codes are multiplied without decoding: by tensor cores, or by our own kernel on the
// emulator.
bool takes_codes(const Gemm& args, const MatrixProduct& p) {
  constexpr int64_t kUnit = 16;
  return reads_codes_by_rows(p.device) && !args.transpose_a && args.transpose_b &&
         p.m % kUnit == 0 && p.n % kUnit == 0 && p.k % kUnit == 0 && p.lda % kUnit == 0 &&
         p.ldb % kUnit == 0;
}

// Codes in bf16; workspace is the stream's.
struct Decoded {
  Decoded(const ConstView& codes, Fp8 format, const ConstView& scale, StreamRef stream) {
    block = Context::current().allocator().allocate(codes.numel() * size_of(DType::bf16),
                                                    Tier::device, Label::workspace, stream);
    view = View(block.data(), DType::bf16, codes.shape(), codes.device());
    fp8_decode({.codes = codes, .format = format, .scale = scale, .y = view}, stream);
  }
  Block block;
  View view;
};

}  // namespace

void gemm(const Gemm& args, StreamRef stream) {
  require_matrix("gemm", "a", args.a, 2);
  require_matrix("gemm", "b", args.b, 2);
  require_matrix("gemm", "c", args.c, 2);
  require_same_device(
      "gemm", {args.a, args.b, args.c, args.bias, args.addend, args.activation_input, args.factor,
               args.factor_gradient, args.a_sums, args.b_sums, args.pre_activation});
  const bool are_codes = args.a_fp8 != Fp8::none || args.b_fp8 != Fp8::none;
  if (are_codes) check_codes(args);
  MatrixProduct p =
      check_product("gemm", args.a, args.b, args.c, args.transpose_a, args.transpose_b, are_codes);
  check_epilogue(args, p);
  require_apart("gemm", "c", args.c, "a", args.a);
  require_apart("gemm", "c", args.c, "b", args.b);
  p.alpha = args.alpha;
  p.beta = args.beta;
  p.bias = args.bias.data();
  p.bias_dtype = args.bias.dtype();
  p.activation = args.activation;
  if (args.addend) {
    p.addend = args.addend.data();
    p.addend_stride = matrix_stride(args.addend);
  }
  if (args.activation_input) {
    p.x = args.activation_input.data();
    p.x_stride = matrix_stride(args.activation_input);
  }
  if (args.factor) {
    p.factor = args.factor.data();
    p.factor_stride = matrix_stride(args.factor);
    p.factor_gradient = args.factor_gradient.data();
    p.factor_gradient_stride = matrix_stride(args.factor_gradient);
  }
  if (const View& sums = args.a_sums ? args.a_sums : args.b_sums) {
    p.sums = sums.data();
    p.sums_dtype = sums.dtype();
    p.sums_are_of_a = static_cast<bool>(args.a_sums);
    p.adds_to_sums = args.adds_to_sums;
  }
  if (args.pre_activation) {
    p.pre = args.pre_activation.data();
    p.pre_stride = matrix_stride(args.pre_activation);
  }
  const Device device = args.c.device();
  if (are_codes && !takes_codes(args, p)) {
    const Decoded a(args.a, args.a_fp8, args.a_scale, stream);
    const Decoded b(args.b, args.b_fp8, args.b_scale, stream);
    Gemm decoded = args;
    decoded.a = a.view;
    decoded.b = b.view;
    decoded.a_fp8 = decoded.b_fp8 = Fp8::none;
    return gemm(decoded, stream);
  }
  if (are_codes) {
    p.a_fp8 = args.a_fp8;
    p.b_fp8 = args.b_fp8;
    p.a_unscale = args.a_scale.data_as<float>() + 1;
    p.b_unscale = args.b_scale.data_as<float>() + 1;
  }
  if (!dispatch(p, "gemm", cost(args), stream)) make_sums(args, stream);
  if (device.meta) note_epilogue(args, p, stream);
}

Cost cost(const Gemm& args) {
  Cost cost = product_cost(1, args.a, args.b, args.c, args.transpose_a, args.beta);
  cost.bytes_read += optional_bytes(args.bias) + optional_bytes(args.activation_input) +
                     optional_bytes(args.factor);
  cost.bytes_written += optional_bytes(args.pre_activation) + optional_bytes(args.factor_gradient);
  return cost;
}

void batched_gemm(const BatchedGemm& args, StreamRef stream) {
  constexpr std::string_view op = "batched_gemm";
  require(args.a && args.a.rank() >= 3, op, ": a must have 3 or more dimensions");
  const int rank = args.a.rank();
  require_matrix(op, "a", args.a, rank);
  require_matrix(op, "b", args.b, rank);
  require_matrix(op, "c", args.c, rank);
  require_same_device(op, {args.a, args.b, args.c});
  MatrixProduct p = check_product(op, args.a, args.b, args.c, args.transpose_a, args.transpose_b);
  p.alpha = args.alpha;
  p.beta = args.beta;
  p.batch_rank = rank - 2;
  for (int i = 0; i < p.batch_rank; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t extent = args.c.dim(i);
    require(args.a.dim(i) == extent && args.b.dim(i) == extent, op,
            ": leading dimensions must be equal: a ", args.a.shape(), ", b ", args.b.shape(),
            ", c ", args.c.shape());
    require(extent <= 1 || args.c.stride(i) != 0, op, ": c must not repeat (stride 0)");
    p.batch_extent[at] = extent;
    p.a_step[at] = args.a.stride(i);
    p.b_step[at] = args.b.stride(i);
    p.c_step[at] = args.c.stride(i);
  }
  require_apart(op, "c", args.c, "a", args.a);
  require_apart(op, "c", args.c, "b", args.b);
  dispatch(p, "batched_gemm", cost(args), stream);
}

Cost cost(const BatchedGemm& args) {
  int64_t batch = 1;
  for (int i = 0; i + 2 < args.c.rank(); ++i) batch *= args.c.dim(i);
  return product_cost(batch, args.a, args.b, args.c, args.transpose_a, args.beta);
}

}  // namespace zinc::kernels
