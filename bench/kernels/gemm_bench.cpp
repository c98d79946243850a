// Matrix products of gpt2-124m, bf16 and f32: a training step on 2048 tokens, a text's next token.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "kernels/gemm.h"

namespace zinc::bench {
namespace {

struct BenchedProduct {
  const char* pass;  // which product of a layer this is
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  double beta;
  bool fused;  // bias + tanh-GELU with the pre-activation saved
};

// Forward y = x W^T (Hugging Face Linear, NT) or x W (GPT-2's Conv1D, NN); dx = dy W (NN) or
// dy W^T (NT); dW = dy^T x (TN), overwritten or accumulated.
constexpr BenchedProduct kProducts[] = {
    {"forward", 2048, 2304, 768, false, true, 0.0, false},
    {"forward", 2048, 2304, 768, false, false, 0.0, false},
    {"forward", 2048, 768, 768, false, true, 0.0, false},
    {"forward", 2048, 3072, 768, false, true, 0.0, false},
    {"forward+gelu", 2048, 3072, 768, false, true, 0.0, true},
    {"forward", 2048, 768, 3072, false, true, 0.0, false},
    {"forward", 2048, 768, 3072, false, false, 0.0, false},
    {"backward-x", 2048, 768, 2304, false, false, 0.0, false},
    {"backward-x", 2048, 768, 768, false, false, 0.0, false},
    {"backward-x", 2048, 3072, 768, false, false, 0.0, false},
    {"backward-x", 2048, 768, 3072, false, false, 0.0, false},
    {"backward-w", 2304, 768, 2048, true, false, 0.0, false},
    {"backward-w", 2304, 768, 2048, true, false, 1.0, false},
    {"backward-w", 768, 768, 2048, true, false, 0.0, false},
    {"backward-w", 3072, 768, 2048, true, false, 0.0, false},
    {"backward-w", 768, 3072, 2048, true, false, 0.0, false},
    {"head", 512, 50257, 768, false, true, 0.0, false},
    {"head-x", 512, 768, 50257, false, false, 0.0, false},
    {"head-w", 50257, 768, 512, true, false, 0.0, false},
    // One token of one text, and of eight.
    {"decode", 1, 2304, 768, false, true, 0.0, false},
    {"decode", 8, 2304, 768, false, true, 0.0, false},
    {"decode", 1, 2304, 768, false, false, 0.0, false},
    {"decode", 8, 2304, 768, false, false, 0.0, false},
    {"decode-head", 1, 50257, 768, false, true, 0.0, false},
    {"decode-head", 8, 50257, 768, false, true, 0.0, false},
};

// The products of another model, on as many tokens as a micro-batch of it has.
std::vector<BenchedProduct> benched_products(const Registry& registry) {
  const ModelShape& m = registry.model();
  if (registry.is_given("M") || registry.is_given("N") || registry.is_given("K")) {
    const int64_t rows = registry.given("M", 4 * m.seq), cols = registry.given("N", m.hidden);
    const int64_t sum = registry.given("K", m.hidden);
    return {{"forward", rows, cols, sum, false, true, 0.0, false},
            {"backward-x", rows, cols, sum, false, false, 0.0, false},
            {"backward-w", rows, cols, sum, true, false, 0.0, false}};
  }
  if (m.name == ModelShape{}.name && registry.extent() != Extent::gpu) {
    return {std::begin(kProducts), std::end(kProducts)};
  }
  const int64_t tokens = 4 * m.seq, C = m.hidden;
  const int64_t qkv = (m.heads + 2 * m.kv_heads) * m.head_dim;
  const int64_t up = m.gated ? 2 * m.intermediate : m.intermediate;
  std::vector<BenchedProduct> products;
  for (const auto& [n, k] : {std::pair{qkv, C}, {C, C}, {up, C}, {C, m.intermediate}}) {
    products.push_back({"forward", tokens, n, k, false, true, 0.0, false});
    products.push_back({"backward-x", tokens, k, n, false, false, 0.0, false});
    products.push_back({"backward-w", n, k, tokens, true, false, 0.0, false});
  }
  if (!m.gated) products.push_back({"forward+gelu", tokens, up, C, false, true, 0.0, true});
  products.push_back({"head", 2048, m.vocabulary, C, false, true, 0.0, false});
  return products;
}

Shape stored(int64_t rows, int64_t cols, bool transposed) {
  return transposed ? Shape{cols, rows} : Shape{rows, cols};
}

kernels::Gemm arguments(const BenchedProduct& p, const View& a, const View& b, const View& bias,
                        const View& c, const View& pre) {
  kernels::Gemm args{.a = a,
                     .b = b,
                     .c = c,
                     .transpose_a = p.transpose_a,
                     .transpose_b = p.transpose_b,
                     .beta = p.beta};
  if (p.fused) {
    args.bias = bias;
    args.pre_activation = pre;
    args.activation = kernels::Activation::gelu_tanh;
  }
  return args;
}

// The first rows of the result against the f64 path.
Deviation verify_rows(const BenchedProduct& p, DType dtype, const Array& a, const Array& b,
                      const Array& bias, const Array& before, const Array& c) {
  const int64_t rows = std::min<int64_t>(p.m, 16);
  const Array wide_a =
      Array::converted(a.view().narrow(p.transpose_a ? 1 : 0, 0, rows), DType::f64);
  const Array wide_b = Array::converted(b, DType::f64);
  const Array wide_bias = Array::converted(bias, DType::f64);
  const Array expected = Array::converted(before.view().narrow(0, 0, rows), DType::f64);
  const Array pre({rows, p.n}, DType::f64);
  kernels::gemm(arguments(p, wide_a, wide_b, wide_bias, expected, pre),
                Context::current().compute());
  // One rounding to the output's dtype, and sqrt(k) roundings of partial sums in f32.
  const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-24;
  return {.relative_l2 = relative_l2({{c.view().narrow(0, 0, rows), expected}}),
          .tolerance = rounding + 4 * 0x1p-24 * std::sqrt(static_cast<double>(p.k))};
}

Instance make_instance(const BenchedProduct& p, DType dtype, Context& context) {
  const Array a = Array::uniform(stored(p.m, p.k, p.transpose_a), dtype, -1, 1, 1);
  const Array b = Array::uniform(stored(p.k, p.n, p.transpose_b), dtype, -1, 1, 2);
  const Array bias = Array::uniform({p.n}, dtype, -1, 1, 3);
  const Array c = Array::uniform({p.m, p.n}, dtype, -1, 1, 4);
  const Array before = Array::copy_of(c.view().narrow(0, 0, std::min<int64_t>(p.m, 16)));
  const Array pre(p.fused ? Shape{p.m, p.n} : Shape{0, 0}, dtype);
  const StreamRef stream = context.compute();
  return {.run = [=] { kernels::gemm(arguments(p, a, b, bias, c, pre), stream); },
          .verify = [=] { return verify_rows(p, dtype, a, b, bias, before, c); }};
}

}  // namespace

void add_gemm_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const BenchedProduct& p : benched_products(registry)) {
      const char transposes[] = {p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', '\0'};
      const int64_t size = size_of(dtype);
      const int64_t c_bytes = p.m * p.n * size;
      registry.add(
          {.op = "gemm",
           .pass = p.pass,
           .dtype = dtype,
           .shape = str("M=", p.m, ",N=", p.n, ",K=", p.k, ",", transposes,
                        p.beta != 0.0 ? ",accumulate" : ""),
           .cost = {.bytes_read = (p.m * p.k + p.k * p.n) * size + (p.beta != 0.0 ? c_bytes : 0),
                    .bytes_written = c_bytes * (p.fused ? 2 : 1),
                    .flops = 2 * p.m * p.n * p.k},
           .ceiling = Ceiling::gemm(p.m, p.n, p.k, dtype, p.transpose_a, p.transpose_b),
           .make = [p, dtype](Context& context) { return make_instance(p, dtype, context); }});
    }
  }
}

}  // namespace zinc::bench
