// kernels/gemm.h: matrix products.
//   z = alpha * op(A) op(B) + beta * D + bias    op: as stored or transposed; D: old C, or given
//   C = activation(z), or behind activation(x) its gradient: z * activation'(x)
//   or behind activation(x) * u both gradients: z * u * activation'(x) and z * activation(x)
//
// Products are summed in f32 (f64 for f64) and rounded once, also when beta accumulates into a
// 16-bit C. Deterministic: bits depend on shape, strides, dtype, ISA and library version, never on
// addresses or the thread count. Asynchronous on `stream`. Workspace (packed operands, library
// scratchpads) is taken from the current Context's allocator, labelled workspace, at the call.
#pragma once

#include <cstdint>

#include "core/float8.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

enum class Activation : uint8_t {
  none,
  gelu_tanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  gelu_erf,   // 0.5 x (1 + erf(x / sqrt(2)))
  silu,       // x / (1 + exp(-x))
};

// Rank-2 views; the row stride of each is free (>= its columns), c may not overlap an input.
// Hugging Face Linear weights [out, in] are `b` with transpose_b = true; GPT-2's Conv1D weights
// [in, out] are `b` as stored. Extents may be 0: with K = 0 the product is zero.
//
// Note [Rounding of the pre-activation]
// With an activation, z is rounded to the dtype of c first and the activation reads the rounded
// value, whether or not it is saved; z is also rounded before the derivative at activation_input
// multiplies it. So the fused op gives the bits of the two ops in a row, and the same bits with and
// without gradient.
//
// Note [Products of 8 bits]
// a and b may be codes (kernels/fp8_encode.h). Tensor cores of 8 bits take them where every extent
// is a multiple of 16, a is stored as it is and b transposed: sums run along the rows of both,
// which is why a matrix is encoded in two forms. Codes on other devices, and other products of
// them, are decoded to bf16 first, into workspace: the same values, so that an experiment needs no
// GPU.
struct Gemm {
  ConstView a;     // [M, K], with transpose_a [K, M]; f64 | f32 | bf16 | f16, or codes
  ConstView b;     // [K, N], with transpose_b [N, K]; dtype of a
  ConstView bias;  // optional [N], added to every row; dtype of a, or f32 where a is 16-bit
  // Optional [M, N], dtype of c: x of a preceding activation; c = z * activation'(x). May be c.
  ConstView activation_input;
  // Optional [M, N], dtype of c: D above. Absent: the old value of c. Not c itself.
  ConstView addend{};
  // Optional [M, N], dtype of c, with activation_input: u. Then factor_gradient receives the
  // gradient of u: z * activation(x). It may be the factor or activation_input.
  ConstView factor{};
  View factor_gradient{};
  // The gradient of a bias. Optional [M], where transpose_a: the sum over k of a; or [N], where not
  // transpose_b: the sum over k of b. dtype of a or f32, rounded once; at most one of them.
  View a_sums{}, b_sums{};
  bool adds_to_sums = false;  // the old values are added, before they are rounded
  // [M, N] dtype of a, or f32 where a is 16-bit. Overwritten; read only where beta is not 0 and
  // addend is absent.
  View c;
  // Optional [M, N], dtype of c: receives z; only with an activation and no activation_input.
  View pre_activation;
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
  double beta = 0.0;
  Activation activation = Activation::none;
  // Both or none: a and b are u8, codes of these formats, and stand for bf16. Without sums.
  Fp8 a_fp8 = Fp8::none, b_fp8 = Fp8::none;
  ConstView a_scale{}, b_scale{};  // [kFp8ScaleNumel] f32
};

// Whether products on the device read codes along their rows. Then a matrix that several products
// take is encoded in both forms; other devices decode the one form.
inline bool reads_codes_by_rows(Device device) { return device.is_cuda(); }

// Throws InvalidArgument for wrong shapes, dtypes, devices or tiers.
void gemm(const Gemm& args, StreamRef stream);
Cost cost(const Gemm& args);

// One product per index of the leading dimensions:
//   C[i...] = alpha * op(A[i...]) op(B[i...]) + beta * C[i...]
// Views have rank 3 or more, equal leading extents and free outer strides; a and b may repeat
// (stride 0), c may not.
struct BatchedGemm {
  ConstView a;  // [..., M, K], with transpose_a [..., K, M]; f64 | f32 | bf16 | f16
  ConstView b;  // [..., K, N], with transpose_b [..., N, K]; dtype of a
  View c;       // [..., M, N] dtype of a, or f32 where a is 16-bit; as in Gemm
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
  double beta = 0.0;
};

void batched_gemm(const BatchedGemm& args, StreamRef stream);
Cost cost(const BatchedGemm& args);

}  // namespace zinc::kernels
