// Matrix products of gpt2-124m, bf16 and f32: a training step on 2048 tokens, a text's next token.
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "kernels/fp8_encode.h"
#include "kernels/gemm.h"
#include "kernels/gemm_choice.h"

namespace zinc::bench {
namespace {

enum class After : uint8_t {
  nothing,
  gelu,        // bias + tanh-GELU with the pre-activation saved
  derivative,  // times the derivative of tanh-GELU
};
using enum After;

struct BenchedProduct {
  const char* pass;  // which product of a layer this is
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  double beta;
  After after;
};

// Forward y = x W^T (Hugging Face Linear, NT) or x W (GPT-2's Conv1D, NN); dx = dy W (NN) or
// dy W^T (NT); dW = dy^T x (TN), overwritten or accumulated.
constexpr BenchedProduct kProducts[] = {
    {"forward", 2048, 2304, 768, false, true, 0.0, nothing},
    {"forward", 2048, 2304, 768, false, false, 0.0, nothing},
    {"forward", 2048, 768, 768, false, true, 0.0, nothing},
    {"forward", 2048, 3072, 768, false, true, 0.0, nothing},
    {"forward+gelu", 2048, 3072, 768, false, true, 0.0, gelu},
    {"forward", 2048, 768, 3072, false, true, 0.0, nothing},
    {"forward", 2048, 768, 3072, false, false, 0.0, nothing},
    {"backward-x", 2048, 768, 2304, false, false, 0.0, nothing},
    {"backward-x", 2048, 768, 768, false, false, 0.0, nothing},
    {"backward-x", 2048, 3072, 768, false, false, 0.0, nothing},
    {"backward-x", 2048, 768, 3072, false, false, 0.0, nothing},
    {"backward-x+gelu", 2048, 3072, 768, false, false, 0.0, derivative},
    {"backward-w", 2304, 768, 2048, true, false, 0.0, nothing},
    {"backward-w", 2304, 768, 2048, true, false, 1.0, nothing},
    {"backward-w", 768, 768, 2048, true, false, 0.0, nothing},
    {"backward-w", 3072, 768, 2048, true, false, 0.0, nothing},
    {"backward-w", 768, 3072, 2048, true, false, 0.0, nothing},
    {"head", 512, 50257, 768, false, true, 0.0, nothing},
    {"head-x", 512, 768, 50257, false, false, 0.0, nothing},
    {"head-w", 50257, 768, 512, true, false, 0.0, nothing},
    // One token of one text, and of eight.
    {"decode", 1, 2304, 768, false, true, 0.0, nothing},
    {"decode", 8, 2304, 768, false, true, 0.0, nothing},
    {"decode", 1, 2304, 768, false, false, 0.0, nothing},
    {"decode", 8, 2304, 768, false, false, 0.0, nothing},
    {"decode-head", 1, 50257, 768, false, true, 0.0, nothing},
    {"decode-head", 8, 50257, 768, false, true, 0.0, nothing},
};

// The products of another model, on as many tokens as a micro-batch of it has.
std::vector<BenchedProduct> benched_products(const Registry& registry) {
  const ModelShape& m = registry.model();
  if (registry.is_given("M") || registry.is_given("N") || registry.is_given("K")) {
    const int64_t rows = registry.given("M", 4 * m.seq), cols = registry.given("N", m.hidden);
    const int64_t sum = registry.given("K", m.hidden);
    return {{"forward", rows, cols, sum, false, true, 0.0, nothing},
            {"backward-x", rows, cols, sum, false, false, 0.0, nothing},
            {"backward-w", rows, cols, sum, true, false, 0.0, nothing}};
  }
  if (m.name == ModelShape{}.name && registry.extent() != Extent::gpu) {
    return {std::begin(kProducts), std::end(kProducts)};
  }
  const int64_t tokens = 4 * m.seq, C = m.hidden;
  const int64_t qkv = (m.heads + 2 * m.kv_heads) * m.head_dim;
  const int64_t up = m.gated ? 2 * m.intermediate : m.intermediate;
  std::vector<BenchedProduct> products;
  for (const auto& [n, k] : {std::pair{qkv, C}, {C, C}, {up, C}, {C, m.intermediate}}) {
    products.push_back({"forward", tokens, n, k, false, true, 0.0, nothing});
    products.push_back({"backward-x", tokens, k, n, false, false, 0.0, nothing});
    products.push_back({"backward-w", n, k, tokens, true, false, 0.0, nothing});
  }
  if (!m.gated) {
    products.push_back({"forward+gelu", tokens, up, C, false, true, 0.0, gelu});
    products.push_back({"backward-x+gelu", tokens, up, C, false, false, 0.0, derivative});
  }
  products.push_back({"head", 2048, m.vocabulary, C, false, true, 0.0, nothing});
  return products;
}

Shape stored(int64_t rows, int64_t cols, bool transposed) {
  return transposed ? Shape{cols, rows} : Shape{rows, cols};
}

kernels::Gemm arguments(const BenchedProduct& p, const View& a, const View& b, const View& bias,
                        const View& c, const View& z) {
  kernels::Gemm args{.a = a,
                     .b = b,
                     .c = c,
                     .transpose_a = p.transpose_a,
                     .transpose_b = p.transpose_b,
                     .beta = p.beta};
  if (p.after != nothing) args.activation = kernels::Activation::gelu_tanh;
  if (p.after == derivative) args.activation_input = z;
  if (p.after == gelu) {
    args.bias = bias;
    args.pre_activation = z;
  }
  return args;
}

// Compares the first rows of the result with the f64 path.
Deviation verify_rows(const BenchedProduct& p, DType dtype, const Array& a, const Array& b,
                      const Array& bias, const Array& z, const Array& before, const Array& c) {
  const int64_t rows = std::min<int64_t>(p.m, 16);
  const Array wide_a =
      Array::converted(a.view().narrow(p.transpose_a ? 1 : 0, 0, rows), DType::f64);
  const Array wide_b = Array::converted(b, DType::f64);
  const Array wide_bias = Array::converted(bias, DType::f64);
  const Array expected = Array::converted(before.view().narrow(0, 0, rows), DType::f64);
  const Array wide_z = p.after == nothing
                           ? Array({0, 0}, DType::f64)
                           : Array::converted(z.view().narrow(0, 0, rows), DType::f64);
  kernels::gemm(arguments(p, wide_a, wide_b, wide_bias, expected, wide_z),
                Context::current().compute());
  // One rounding to the output's dtype, of z too before its derivative, and sqrt(k) roundings of
  // partial sums in f32.
  const double rounding =
      (dtype == DType::bf16 ? 0x1p-9 : 0x1p-24) * (p.after == derivative ? 2 : 1);
  return {.relative_l2 = relative_l2({{c.view().narrow(0, 0, rows), expected}}),
          .tolerance = rounding + 4 * 0x1p-24 * std::sqrt(static_cast<double>(p.k))};
}

Instance make_instance(const BenchedProduct& p, DType dtype, Context& context) {
  const Array a = Array::uniform(stored(p.m, p.k, p.transpose_a), dtype, -1, 1, 1);
  const Array b = Array::uniform(stored(p.k, p.n, p.transpose_b), dtype, -1, 1, 2);
  const Array bias = Array::uniform({p.n}, dtype, -1, 1, 3);
  const Array c = Array::uniform({p.m, p.n}, dtype, -1, 1, 4);
  const Array before = Array::copy_of(c.view().narrow(0, 0, std::min<int64_t>(p.m, 16)));
  const Array z =
      Array::uniform(p.after == nothing ? Shape{0, 0} : Shape{p.m, p.n}, dtype, -1, 1, 5);
  const StreamRef stream = context.compute();
  return {.run = [=] { kernels::gemm(arguments(p, a, b, bias, c, z), stream); },
          .verify = [=] { return verify_rows(p, dtype, a, b, bias, z, before, c); }};
}

// The same by a kernel of kernels/gemm_choice.h.
Instance make_chosen(const BenchedProduct& p, DType dtype, const kernels::GemmChoice& choice,
                     Context& context) {
  auto& slot = context.slot<kernels::GemmChoice>();
  const auto by_choice = [&slot, choice](const std::function<void()>& run) {
    return [&slot, choice, run] {
      const kernels::GemmChoice before = slot;
      slot.use = choice.use;
      slot.proposal = choice.proposal;
      run();
      slot.use = before.use;
      slot.proposal = before.proposal;
    };
  };
  // The trial run is another instance's: a run may add to c.
  const int64_t runs = slot.num_runs;
  by_choice(make_instance(p, dtype, context).run)();
  context.compute()->synchronize();
  if (choice.use == kernels::WgmmaUse::always && slot.num_runs == runs) {
    throw CudaError("the kernel for compute capability 9.0 does not take this");
  }
  Instance instance = make_instance(p, dtype, context);
  instance.run = by_choice(instance.run);
  return instance;
}

// cuBLASLt's first proposal beside our own kernel and its next proposals.
void add_kernels(Registry& registry, const Entry& gemm, const BenchedProduct& p, DType dtype) {
  using Use = kernels::WgmmaUse;
  constexpr int kProposals = 5;
  const auto chosen = [p, dtype](const kernels::GemmChoice& choice) {
    return [p, dtype, choice](Context& context) { return make_chosen(p, dtype, choice, context); };
  };
  Entry entry = gemm;
  entry.op = "gemm_kernels";
  entry.make = chosen({.use = Use::never});
  entry.baseline = "wgmma";
  entry.make_baseline = chosen({.use = Use::always});
  registry.add(entry);
  for (int proposal = 1; proposal < kProposals; ++proposal) {
    entry.baseline = str("proposal ", proposal);
    entry.make_baseline = chosen({.use = Use::never, .proposal = proposal});
    registry.add(entry);
  }
}

// A matrix as codes, and the values of the codes.
struct Encoded {
  Array codes, scale, values;
  Encoded(int64_t rows, int64_t cols, Fp8 fp8, uint64_t seed, StreamRef stream)
      : codes({rows, cols}, DType::u8),
        scale({kernels::kFp8ScaleNumel}, DType::f32),
        values({rows, cols}, DType::bf16) {
    const Array x = Array::uniform({rows, cols}, DType::bf16, -1, 1, seed);
    kernels::fp8_encode({.x = x, .format = fp8, .codes = codes, .scale = scale}, stream);
    kernels::fp8_decode({.codes = codes, .format = fp8, .scale = scale, .y = values}, stream);
    stream->synchronize();
  }
};

// The same product of codes: a [M, K] in e4m3, or in e5m2 for a gradient, and b [N, K] in e4m3.
Instance make_of_codes(const BenchedProduct& p, Context& context) {
  const StreamRef stream = context.compute();
  const Fp8 format = std::string_view(p.pass) == "forward" ? Fp8::e4m3 : Fp8::e5m2;
  const Encoded a(p.m, p.k, format, 1, stream), b(p.n, p.k, Fp8::e4m3, 2, stream);
  const Array c({p.m, p.n}, DType::bf16);
  const auto run = [=] {
    kernels::gemm({.a = a.codes,
                   .b = b.codes,
                   .c = c,
                   .transpose_b = true,
                   .a_fp8 = format,
                   .b_fp8 = Fp8::e4m3,
                   .a_scale = a.scale,
                   .b_scale = b.scale},
                  stream);
  };
  const auto verify = [=] {
    const int64_t rows = std::min<int64_t>(p.m, 16);
    const Array wide_a = Array::converted(a.values.view().narrow(0, 0, rows), DType::f64);
    const Array wide_b = Array::converted(b.values, DType::f64);
    const Array expected({rows, p.n}, DType::f64);
    kernels::gemm({.a = wide_a, .b = wide_b, .c = expected, .transpose_b = true},
                  Context::current().compute());
    // Tensor cores keep some 14 bits of a sum of 8 bits.
    return Deviation{.relative_l2 = relative_l2({{c.view().narrow(0, 0, rows), expected}}),
                     .tolerance = 0x1p-8};
  };
  return {.run = run, .verify = verify};
}

// Adds the product of codes beside the product in bf16.
void add_of_codes(Registry& registry, const Entry& gemm, const BenchedProduct& p) {
  constexpr int64_t kUnit = 16;
  if (p.after != nothing || p.beta != 0.0 || p.m % kUnit != 0 || p.n % kUnit != 0 ||
      p.k % kUnit != 0)
    return;
  Entry entry = gemm;
  entry.op = "gemm_fp8";
  entry.cost.bytes_read = p.m * p.k + p.k * p.n;
  entry.make = [p](Context& context) { return make_of_codes(p, context); };
  entry.baseline = "bf16";
  entry.make_baseline = gemm.make;
  registry.add(entry);
}

}  // namespace

void add_gemm_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const BenchedProduct& p : benched_products(registry)) {
      const char transposes[] = {p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', '\0'};
      const int64_t size = size_of(dtype);
      const int64_t c_bytes = p.m * p.n * size;
      const Entry entry{
          .op = "gemm",
          .pass = p.pass,
          .dtype = dtype,
          .shape = str("M=", p.m, ",N=", p.n, ",K=", p.k, ",", transposes,
                       p.beta != 0.0 ? ",accumulate" : ""),
          .cost = {.bytes_read = (p.m * p.k + p.k * p.n) * size +
                                 (p.beta != 0.0 || p.after == derivative ? c_bytes : 0),
                   .bytes_written = c_bytes * (p.after == gelu ? 2 : 1),
                   .flops = 2 * p.m * p.n * p.k},
          .ceiling = Ceiling::gemm(p.m, p.n, p.k, dtype, p.transpose_a, p.transpose_b),
          .make = [p, dtype](Context& context) { return make_instance(p, dtype, context); }};
      registry.add(entry);
      if (registry.extent() == Extent::gpu && is_16bit_float(dtype)) {
        add_kernels(registry, entry, p, dtype);
        if (dtype == DType::bf16) add_of_codes(registry, entry, p);
      }
    }
  }
}

}  // namespace zinc::bench
