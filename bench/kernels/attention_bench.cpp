// Attention on views into one QKV buffer, as nn::SelfAttention calls it. The ceiling is the GEMM
// of the same model's projection; flops count visible pairs.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "core/error.h"
#include "core/philox.h"
#include "kernels/attention.h"
#include "kernels/attention_library.h"

namespace zinc::bench {
namespace {

struct Case {
  int64_t B, T, H, G, D;
  bool causal;
  int64_t block = 0;    // positions of a block of a layout; 0: no layout
  int64_t percent = 0;  // of the blocks of keys that a block of queries sees
};
std::string shape_of(const Case& c) {
  std::string shape = str("B=", c.B, ",T=", c.T, ",H=", c.H, ",G=", c.G, ",D=", c.D);
  if (c.causal) shape += ",causal";
  return c.block > 0 ? str(shape, ",block=", c.block, ",seen=", c.percent, "%") : shape;
}

// Blocks are seen at random, and each sees itself: no two rows are the same, and few of the blocks
// that a row sees lie side by side, which is the hardest case.
std::shared_ptr<const BlockLayout> layout_of(const Case& c) {
  if (c.block == 0) return nullptr;
  const int64_t n = c.T / c.block;
  std::vector<uint8_t> seen(static_cast<size_t>(n * n), 0);
  const RandomKey key = make_random_key(1, Purpose::test, 0, 0, 0);
  for (int64_t row = 0; row < n; ++row) {
    const auto see = [&](int64_t column) {
      uint8_t& value = seen[static_cast<size_t>(row * n + column)];
      return std::exchange(value, uint8_t{1}) == 0 ? 1 : 0;
    };
    uint64_t draw = static_cast<uint64_t>(row) << 20;
    for (int64_t left = n * c.percent / 100 - see(row); left > 0;) {
      left -= see(static_cast<int64_t>(key.uniform(draw++) * static_cast<float>(n)));
    }
  }
  return std::make_shared<const BlockLayout>(c.block, 1, n, seen);
}
constexpr Case kCases[] = {
    {4, 512, 12, 12, 64, true}, {2, 1024, 12, 12, 64, true}, {2, 1024, 12, 12, 64, false},
    {1, 2048, 32, 8, 64, true}, {1, 1024, 32, 8, 128, true},
};

std::vector<Case> cases_of(const Registry& registry) {
  const ModelShape& m = registry.model();
  if (registry.is_given("B") || registry.is_given("T") || registry.is_given("H") ||
      registry.is_given("G") || registry.is_given("D")) {
    const int64_t tokens = registry.given("T", m.seq), heads = registry.given("H", m.heads);
    const int64_t groups = registry.given("G", std::min(m.kv_heads, heads));
    require(heads % groups == 0, "bench: H must be a multiple of G: ", heads, " vs ", groups);
    const int64_t batch = registry.given("B", std::max<int64_t>(2048 / tokens, 1));
    const int64_t size = registry.given("D", m.head_dim);
    return {{batch, tokens, heads, groups, size, true},
            {batch, tokens, heads, groups, size, false}};
  }
  if (m.name == ModelShape{}.name && registry.extent() != Extent::gpu) {
    return {std::begin(kCases), std::end(kCases)};
  }
  std::vector<Case> cases;
  for (const int64_t tokens : {int64_t{1024}, int64_t{2048}, int64_t{8192}}) {
    cases.push_back({16384 / tokens, tokens, m.heads, m.kv_heads, m.head_dim, true});
  }
  return cases;
}

enum class Pass { forward, backward, both };

// [B, T, H + 2 G, D] and the views of q, k and v in it.
struct Qkv {
  Array buffer;
  View q, k, v;

  Qkv(const Case& c, Array whole)
      : buffer(std::move(whole)),
        q(buffer.view().narrow(2, 0, c.H)),
        k(buffer.view().narrow(2, c.H, c.G)),
        v(buffer.view().narrow(2, c.H + c.G, c.G)) {}
  static Shape shape(const Case& c) { return {c.B, c.T, c.H + 2 * c.G, c.D}; }
};

struct Tensors {
  Case c;
  Qkv in, gradient;
  Array out, lse, dout;
  std::shared_ptr<const BlockLayout> layout;
  std::optional<Array> words;

  Tensors(const Case& the_case, DType dtype, Array qkv, Array dout_values)
      : c(the_case),
        in(c, std::move(qkv)),
        gradient(c, Array(Qkv::shape(c), dtype)),
        out({c.B, c.T, c.H, c.D}, dtype),
        lse({c.B, c.H, c.T}, dtype == DType::f64 ? DType::f64 : DType::f32),
        dout(std::move(dout_values)),
        layout(layout_of(c)) {
    if (layout == nullptr) return;
    const Shape shape{std::ssize(layout->words())};
    words = Array::copy_of(ConstView(layout->words().data(), DType::i32, shape));
  }

  kernels::AttentionMask mask() const {
    kernels::AttentionMask mask{.causal = c.causal, .layout = {.blocks = layout}};
    if (words) mask.layout.words = words->view();
    return mask;
  }
  kernels::AttentionForward forward() const {
    return {.q = in.q, .k = in.k, .v = in.v, .out = out, .lse = lse, .mask = mask()};
  }
  kernels::AttentionBackward backward() const {
    return {.q = in.q,
            .k = in.k,
            .v = in.v,
            .out = out,
            .lse = lse,
            .dout = dout,
            .dq = gradient.q,
            .dk = gradient.k,
            .dv = gradient.v,
            .mask = mask()};
  }
};

// Compares the first group of the first batch entry with the f64 path.
Deviation verify(const Tensors& t, DType dtype, Pass pass) {
  const StreamRef stream = Context::current().compute();
  const int64_t heads = t.c.H / t.c.G;
  const auto part = [&](const View& view, int64_t count) {
    return Array::converted(view.narrow(0, 0, 1).narrow(2, 0, count), DType::f64);
  };
  const Case one{1, t.c.T, heads, 1, t.c.D, t.c.causal, t.c.block, t.c.percent};
  Array qkv(Qkv::shape(one), DType::f64);
  Tensors exact(one, DType::f64, qkv, part(t.dout.view(), heads));
  const Array q = part(t.in.q, heads), k = part(t.in.k, 1), v = part(t.in.v, 1);
  kernels::AttentionForward forward = exact.forward();
  forward.q = q;
  forward.k = k;
  forward.v = v;
  kernels::attention_forward(forward, stream);
  kernels::AttentionBackward backward = exact.backward();
  backward.q = q;
  backward.k = k;
  backward.v = v;
  if (pass != Pass::forward) kernels::attention_backward(backward, stream);
  stream->synchronize();
  const auto got = [&](const View& view, int64_t count) {
    return ConstView(view.narrow(0, 0, 1).narrow(2, 0, count));
  };
  // Probabilities, outputs, dscores and gradients are each rounded to the dtype.
  const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-24;
  const double sums = 16 * 0x1p-24 * std::sqrt(static_cast<double>(t.c.D + t.c.T));
  if (pass == Pass::forward) {
    return {.relative_l2 = relative_l2({{got(t.out.view(), heads), exact.out.view()}}),
            .tolerance = 2 * rounding + sums};
  }
  return {.relative_l2 = relative_l2({{got(t.gradient.q, heads), exact.gradient.q},
                                      {got(t.gradient.k, 1), exact.gradient.k},
                                      {got(t.gradient.v, 1), exact.gradient.v}}),
          .tolerance = 4 * rounding + 2 * sums};
}

// A pass by the vendor's library, which must take it; backward of what our own forward leaves.
Instance make_library_instance(const Case& c, DType dtype, Pass pass, Context& context) {
  const Tensors tensors(c, dtype, Array::uniform(Qkv::shape(c), dtype, -2, 2, 1),
                        Array::uniform({c.B, c.T, c.H, c.D}, dtype, -1, 1, 2));
  auto& library = context.slot<kernels::LibraryAttention>();
  const kernels::AttentionChoice own = library.choice();
  library.choose(kernels::AttentionChoice::own);
  kernels::attention_forward(tensors.forward(), context.compute());
  library.choose(own);
  const auto run = [&library, tensors, pass, stream = context.compute()] {
    const kernels::AttentionChoice before = library.choice();
    library.choose(kernels::AttentionChoice::library);
    try {
      if (pass == Pass::forward) kernels::attention_forward(tensors.forward(), stream);
      if (pass == Pass::backward) kernels::attention_backward(tensors.backward(), stream);
    } catch (...) {
      library.choose(before);
      throw;
    }
    library.choose(before);
  };
  const int64_t runs = library.num_runs();
  run();
  if (library.num_runs() == runs) {
    throw CudaError(library.notes().empty() ? "the library does not take this"
                                            : library.notes().back());
  }
  return {.run = run, .verify = {}};
}

// Forward by one of our own kernels, which must take it.
Instance make_own_forward(const Case& c, DType dtype, kernels::WgmmaUse use, Context& context) {
  using Use = kernels::WgmmaUse;
  const Tensors tensors(c, dtype, Array::uniform(Qkv::shape(c), dtype, -2, 2, 1),
                        Array::uniform({c.B, c.T, c.H, c.D}, dtype, -1, 1, 2));
  auto& kernel = context.slot<kernels::WgmmaAttention>();
  auto& library = context.slot<kernels::LibraryAttention>();
  const auto run = [&kernel, &library, tensors, use, stream = context.compute()] {
    const Use before = std::exchange(kernel.use, use);
    const kernels::AttentionChoice asked = library.choice();
    library.choose(kernels::AttentionChoice::own);
    kernels::attention_forward(tensors.forward(), stream);
    library.choose(asked);
    kernel.use = before;
  };
  const int64_t runs = kernel.num_runs;
  run();
  if (use == Use::always && kernel.num_runs == runs) {
    throw CudaError("the kernel for compute capability 9.0 does not take this");
  }
  return {.run = run, .verify = [=] { return verify(tensors, dtype, Pass::forward); }};
}

Instance make_instance(const Case& c, DType dtype, Pass pass, Context& context) {
  const Tensors tensors(c, dtype, Array::uniform(Qkv::shape(c), dtype, -2, 2, 1),
                        Array::uniform({c.B, c.T, c.H, c.D}, dtype, -1, 1, 2));
  const StreamRef stream = context.compute();
  kernels::attention_forward(tensors.forward(), stream);
  stream->synchronize();
  return {.run =
              [=] {
                if (pass != Pass::backward) kernels::attention_forward(tensors.forward(), stream);
                if (pass != Pass::forward) kernels::attention_backward(tensors.backward(), stream);
              },
          .verify = [=] { return verify(tensors, dtype, pass); }};
}

// The cost needs shapes only.
kernels::Cost cost_of(const Case& c, DType dtype, Pass pass) {
  static std::byte place[1];
  const auto view = [&](const Shape& shape, DType type) { return View(place, type, shape); };
  const View q = view({c.B, c.T, c.H, c.D}, dtype), k = view({c.B, c.T, c.G, c.D}, dtype);
  const View lse = view({c.B, c.H, c.T}, DType::f32);
  const kernels::AttentionMask mask{.causal = c.causal, .layout = {.blocks = layout_of(c)}};
  const kernels::Cost forward =
      cost(kernels::AttentionForward{.q = q, .k = k, .v = k, .out = q, .lse = lse, .mask = mask});
  const kernels::Cost backward = cost(kernels::AttentionBackward{.q = q,
                                                                 .k = k,
                                                                 .v = k,
                                                                 .out = q,
                                                                 .lse = lse,
                                                                 .dout = q,
                                                                 .dq = q,
                                                                 .dk = k,
                                                                 .dv = k,
                                                                 .mask = mask});
  if (pass == Pass::forward) return forward;
  return pass == Pass::backward ? backward : forward + backward;
}

}  // namespace

// Our two forward kernels beside each other.
void add_own_forward(Registry& registry, const Case& c, DType dtype) {
  using Use = kernels::WgmmaUse;
  const int64_t features = c.H * c.D;
  registry.add(
      {.op = "attention_kernels",
       .pass = "forward",
       .dtype = dtype,
       .shape = shape_of(c),
       .cost = cost_of(c, dtype, Pass::forward),
       .ceiling = Ceiling::gemm(c.B * c.T, features, features, dtype, false, true),
       .make =
           [c, dtype](Context& context) { return make_own_forward(c, dtype, Use::never, context); },
       .baseline = "wgmma",
       .make_baseline =
           [c, dtype](Context& context) {
             return make_own_forward(c, dtype, Use::always, context);
           }});
}

// A layout of blocks beside all of them: the time is to fall as the share of blocks does.
void add_layouts(Registry& registry, DType dtype) {
  const int64_t heads = registry.given("H", 12), tokens = registry.given("T", 4096);
  const int64_t size = registry.given("D", 64), percent = registry.given("percent", 10);
  for (const int64_t block : {0, 16, 32, 64, 128}) {
    if (block > 0 && (tokens < block || tokens % block != 0)) continue;
    const Case c{1, tokens, heads, heads, size, false, block, block == 0 ? 0 : percent};
    for (const auto& [pass, name] :
         {std::pair{Pass::forward, "forward"}, std::pair{Pass::backward, "backward"}}) {
      registry.add({.op = "attention_layout",
                    .pass = name,
                    .dtype = dtype,
                    .shape = shape_of(c),
                    .cost = cost_of(c, dtype, pass),
                    .ceiling = Ceiling::gemm(c.T, c.H * c.D, c.H * c.D, dtype, false, true),
                    .make = [c, dtype, pass = pass](Context& context) {
                      return make_instance(c, dtype, pass, context);
                    }});
    }
  }
}

void add_attention_benches(Registry& registry) {
  const std::pair<Pass, const char*> passes[] = {
      {Pass::forward, "forward"}, {Pass::backward, "backward"}, {Pass::both, "forward+backward"}};
  for (const DType dtype : {DType::bf16, DType::f32}) add_layouts(registry, dtype);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Case& c : cases_of(registry)) {
      if (registry.extent() == Extent::gpu && is_16bit_float(dtype)) {
        add_own_forward(registry, c, dtype);
      }
      for (const auto& [pass, name] : passes) {
        const int64_t features = c.H * c.D;
        Entry entry{.op = "attention",
                    .pass = name,
                    .dtype = dtype,
                    .shape = shape_of(c),
                    .cost = cost_of(c, dtype, pass),
                    .ceiling = Ceiling::gemm(c.B * c.T, features, features, dtype, false, true),
                    .make = [c, dtype, pass = pass](Context& context) {
                      return make_instance(c, dtype, pass, context);
                    }};
        if (pass != Pass::both && is_16bit_float(dtype)) {
          entry.baseline = "cuDNN";
          entry.make_baseline = [c, dtype, pass = pass](Context& context) {
            return make_library_instance(c, dtype, pass, context);
          };
        }
        registry.add(std::move(entry));
      }
    }
  }
}

}  // namespace zinc::bench
