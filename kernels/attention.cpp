#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/context.h"
#include "core/error.h"
#include "kernels/attention_library.h"
#include "kernels/attention_problem.h"
#include "kernels/checks.h"
#include "kernels/cuda/attention.h"
#include "kernels/fill.h"
#include "kernels/launch.h"

namespace zinc::kernels {
namespace {

void require_heads(std::string_view op, std::string_view name, const ConstView& view, DType dtype,
                   const Shape& shape) {
  require_operand(op, name, view, dtype, shape);
}

void check_layout(std::string_view op, const AttentionProblem& p) {
  const AttentionMask::Layout& layout = p.mask.layout;
  const BlockLayout& blocks = *layout.blocks;
  require(layout.first_head >= 0, op, ": the layout's first head must not be ", layout.first_head);
  require(blocks.heads() == 1 || layout.first_head + p.H <= blocks.heads(), op, ": a layout of ",
          blocks.heads(), " heads has none for heads ", layout.first_head, " to ",
          layout.first_head + p.H - 1);
  const int64_t first = p.first_key() + std::min<int64_t>(p.position(0), 0);
  const int64_t end = p.first_key() + std::max(p.position(p.Tq - 1) + 1, p.Tk);
  require(p.Tq == 0 || (first >= 0 && end <= blocks.tokens()), op, ": a layout of ",
          blocks.blocks(), " blocks of ", blocks.block(), " has positions 0 to ",
          blocks.tokens() - 1, ", not ", first, " to ", end - 1);
  if (!p.device.is_cuda()) return;
  require_dense_operand(op, "the layout's words", layout.words, DType::i32,
                        Shape{std::ssize(blocks.words())});
}

void check_mask(std::string_view op, const AttentionProblem& p) {
  const AttentionMask& mask = p.mask;
  if (mask.key_lengths) {
    require_dense_operand(op, "key_lengths", mask.key_lengths, DType::i32, Shape{p.B});
  }
  if (mask.key_begin) {
    require_operand(op, "key_begin", mask.key_begin, DType::i32, Shape{p.B, p.Tq});
  }
  if (mask.key_end) {
    require_operand(op, "key_end", mask.key_end, DType::i32, Shape{p.B, p.Tq});
  }
  if (mask.alibi_slopes) {
    require_dense_operand(op, "alibi_slopes", mask.alibi_slopes, DType::f32, Shape{p.H});
  }
  require(mask.window >= 0, op, ": the window must be 0 (none) or positive, not ", mask.window);
  require(mask.window <= std::numeric_limits<int32_t>::max(), op,
          ": the window must be below 2^31, ", "not ", mask.window);
  require(p.softcap >= 0.0 && std::isfinite(p.softcap), op,
          ": softcap must be 0 (none) or positive and finite, not ", p.softcap);
  if (mask.bias) {
    require_dtype(op, "bias", mask.bias, p.wide());
    require_computable(op, "bias", mask.bias);
    const Shape& shape = mask.bias.shape();
    const auto is_or_1 = [&](int d, int64_t extent) { return shape[d] == extent || shape[d] == 1; };
    const bool fits = p.has_bias_by_distance()
                          ? is_or_1(0, p.H) && shape[1] == p.Tq + p.Tk - 1
                          : shape.rank() == 4 && is_or_1(0, p.B) && is_or_1(1, p.H) &&
                                shape[2] == p.Tq && shape[3] == p.Tk;
    require(fits, op, ": bias must be [", p.B, " or 1, ", p.H, " or 1, ", p.Tq, ", ", p.Tk,
            "] or, by distance, [", p.H, " or 1, ", p.Tq + p.Tk - 1, "], not ", shape);
  }
  if (mask.layout.blocks) check_layout(op, p);
  const float probability = p.dropout.probability;
  require(probability >= 0.0f && probability < 1.0f, op,
          ": the dropout probability must be in [0, 1), not ", probability);
  require_counter(op, p.dropout.counter, p.device);
}

// Drops the place of queries and keys where it changes nothing, so that libraries may be asked.
void forget_place(AttentionMask& mask, const AttentionProblem& p) {
  if (!mask.origin) return;
  const bool by_values = mask.key_lengths || mask.key_begin || mask.key_end;
  const bool by_distance = mask.window > 0 || mask.alibi_slopes;
  if (!by_values && !by_distance && p.ahead() >= p.Tk - 1) mask.causal = false;
  if (by_values || mask.layout.blocks || (p.ahead() != p.Tk - p.Tq && (by_distance || mask.causal)))
    return;
  mask.origin.reset();
}

template <class Args>
AttentionProblem problem_of(std::string_view op, const Args& args) {
  require_float(op, "q", args.q);
  require(args.q.rank() == 4, op, ": q must be [batch, queries, heads, head size], not ",
          args.q.shape());
  require(static_cast<bool>(args.k), op, ": k is missing");
  require(args.k.rank() == 4, op, ": k must be [batch, keys, key heads, head size], not ",
          args.k.shape());
  AttentionProblem p{.B = args.q.dim(0),
                     .Tq = args.q.dim(1),
                     .Tk = args.k.dim(1),
                     .H = args.q.dim(2),
                     .G = args.k.dim(2),
                     .D = args.q.dim(3),
                     .dtype = args.q.dtype(),
                     .device = args.q.device()};
  require(p.D > 0, op, ": the head size must not be 0");
  require(p.G > 0 && p.H % p.G == 0, op,
          ": the query heads must be a multiple of the key heads: ", p.H, " vs ", p.G);
  const Shape key_shape{p.B, p.Tk, p.G, p.D};
  require_heads(op, "k", args.k, p.dtype, key_shape);
  require_heads(op, "v", args.v, p.dtype, key_shape);
  p.q = HeadsView(args.q);
  p.k = HeadsView(args.k);
  p.v = HeadsView(args.v);
  p.scale = args.scale != 0.0 ? args.scale : 1.0 / std::sqrt(static_cast<double>(p.D));
  p.softcap = args.softcap;
  p.mask = args.mask;
  p.dropout = args.dropout;
  check_mask(op, p);
  forget_place(p.mask, p);
  return p;
}

// The pairs of one head with a layout.
int64_t pairs_of_layout(const AttentionProblem& p, int64_t h) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < p.Tq;) {
    const int64_t end = p.end_of_layout_row(i);
    const KeyRange first = p.keys_of(0, i), last = p.keys_of(0, end - 1);
    p.for_each_run(h, i, [&](const KeyRange& run) {
      // Ranges grow with the query.
      if (run.begin >= last.begin && run.end <= first.end) {
        pairs += (end - i) * (run.end - run.begin);
        return;
      }
      for (int64_t row = i; row < end; ++row) {
        const KeyRange seen = run.within(p.keys_of(0, row));
        if (!seen.empty()) pairs += seen.end - seen.begin;
      }
    });
    i = end;
  }
  return pairs;
}

// How many (query, key) pairs a shape has in all heads; masks that depend on values do not count.
int64_t visible_pairs(const ConstView& q, const ConstView& k, const AttentionMask& mask) {
  AttentionProblem p{.Tq = q.dim(1), .Tk = k.dim(1), .H = q.dim(2)};
  p.mask = {
      .causal = mask.causal, .window = mask.window, .origin = mask.origin, .layout = mask.layout};
  if (mask.layout.blocks) {
    if (mask.layout.blocks->heads() == 1) return p.H * pairs_of_layout(p, 0);
    int64_t pairs = 0;
    for (int64_t h = 0; h < p.H; ++h) pairs += pairs_of_layout(p, h);
    return pairs;
  }
  if (mask.window == 0 && !mask.origin) {
    const int64_t rows = std::min(p.Tq, p.Tk);  // queries that see a key
    return p.H * (mask.causal ? rows * (p.Tk - rows) + rows * (rows + 1) / 2 : p.Tq * p.Tk);
  }
  int64_t pairs = 0;
  for (int64_t i = 0; i < p.Tq; ++i) {
    const KeyRange keys = p.keys_of(0, i);
    if (!keys.empty()) pairs += keys.end - keys.begin;
  }
  return p.H * pairs;
}

int64_t bytes_of(const AttentionMask& mask) {
  return optional_bytes(mask.key_lengths) + optional_bytes(mask.key_begin) +
         optional_bytes(mask.key_end) + optional_bytes(mask.alibi_slopes) +
         optional_bytes(mask.bias) + optional_bytes(mask.layout.words);
}

void run_forward_on_cuda(const AttentionProblem& p, const HeadsView& out, void* lse,
                         StreamRef stream) {
  constexpr auto kPass = AttentionPass::forward;
  auto& library = Context::current().slot<LibraryAttention>();
  const int64_t bytes = library.workspace_bytes(kPass, p);
  Block workspace;
  if (bytes > 0) {
    workspace =
        Context::current().allocator().allocate(bytes, Tier::device, Label::workspace, stream);
  }
  if (p.device.meta) return;
  if constexpr (kHasCudaKernels) {
    auto* sums = static_cast<float*>(lse);
    const AttentionArrays arrays{.out = out, .lse = sums};
    if (bytes > 0 && library.run(kPass, p, arrays, static_cast<std::byte*>(workspace.data()),
                                 stream, cuda::attention_backend())) {
      return;
    }
    cuda::run_attention_forward(p, out, sums, stream);
  } else {
    require(false, "attention_forward: this build has no kernel for ", p.device);
  }
}

// One workspace for whoever takes it. The gradient of a bias is ours, and no library is asked
// there.
void run_backward_on_cuda(const AttentionProblem& p, const AttentionGradients& gradients,
                          StreamRef stream) {
  constexpr auto kPass = AttentionPass::backward;
  auto& library = Context::current().slot<LibraryAttention>();
  const int64_t bytes = library.workspace_bytes(kPass, p);
  const Block workspace = Context::current().allocator().allocate(
      std::max(bytes, cuda::attention_backward_workspace_bytes(p)), Tier::device, Label::workspace,
      stream);
  if (p.device.meta) return;
  if constexpr (kHasCudaKernels) {
    auto* sums = static_cast<float*>(const_cast<void*>(gradients.lse));
    const AttentionArrays arrays{.out = gradients.out,
                                 .lse = sums,
                                 .dout = gradients.dout,
                                 .dq = gradients.dq,
                                 .dk = gradients.dk,
                                 .dv = gradients.dv};
    if (bytes > 0 && library.run(kPass, p, arrays, static_cast<std::byte*>(workspace.data()),
                                 stream, cuda::attention_backend())) {
      return;
    }
    cuda::run_attention_backward(p, gradients, static_cast<float*>(workspace.data()), stream);
  } else {
    require(false, "attention_backward: this build has no kernel for ", p.device);
  }
}

}  // namespace

std::string attention_outlook(DType dtype) {
  LibraryAttention::Backend device;
  if constexpr (kHasCudaKernels) device = cuda::attention_backend();
  return Context::current().slot<LibraryAttention>().outlook(dtype, device);
}

LibraryAttention::Opened open_attention_library() {
  if constexpr (kHasCudaKernels) {
    return cuda::open_cudnn();
  } else {
    return {.library = nullptr, .why_not = "this build has no CUDA"};
  }
}

void attention_forward(const AttentionForward& args, StreamRef stream) {
  constexpr auto kOp = "attention";
  const AttentionProblem p = problem_of(kOp, args);
  require_heads(kOp, "out", args.out, p.dtype, args.q.shape());
  for (const auto& [name, view] :
       {std::pair{"q", args.q}, std::pair{"k", args.k}, std::pair{"v", args.v}}) {
    require_apart(kOp, "out", args.out, name, view);
  }
  if (args.lse) require_dense_operand(kOp, "lse", args.lse, p.wide(), Shape{p.B, p.H, p.Tq});
  require_same_device(
      kOp, {args.q, args.k, args.v, args.out, args.lse, p.mask.key_lengths, p.mask.key_begin,
            p.mask.key_end, p.mask.alibi_slopes, p.mask.bias, p.mask.layout.words});
  if (args.q.numel() == 0) return;
  if (p.device.meta) note_kernel(kOp, cost(args), p.device, stream, WorkKind::attention, p.dtype);
  const HeadsView out(args.out);
  if (p.device.is_cuda()) return run_forward_on_cuda(p, out, args.lse.data(), stream);
  cpu::run_attention_forward(p, out, args.lse.data(), stream);
}

void attention_backward(const AttentionBackward& args, StreamRef stream) {
  constexpr auto kOp = "attention_backward";
  const AttentionProblem p = problem_of(kOp, args);
  require_heads(kOp, "out", args.out, p.dtype, args.q.shape());
  require_heads(kOp, "dout", args.dout, p.dtype, args.q.shape());
  require_dense_operand(kOp, "lse", args.lse, p.wide(), Shape{p.B, p.H, p.Tq});
  require_heads(kOp, "dq", args.dq, p.dtype, args.q.shape());
  require_heads(kOp, "dk", args.dk, p.dtype, args.k.shape());
  require_heads(kOp, "dv", args.dv, p.dtype, args.k.shape());
  for (const auto& [name, view] :
       {std::pair{"dq", args.dq}, std::pair{"dk", args.dk}, std::pair{"dv", args.dv}}) {
    for (const auto& [input_name, input] :
         {std::pair{"q", args.q}, std::pair{"k", args.k}, std::pair{"v", args.v},
          std::pair{"out", args.out}, std::pair{"dout", args.dout}}) {
      require_apart(kOp, name, view, input_name, input);
    }
  }
  if (args.dbias) {
    require(static_cast<bool>(p.mask.bias), kOp, ": dbias needs a bias");
    require_dense_operand(kOp, "dbias", args.dbias, p.wide(), p.mask.bias.shape());
    require_apart(kOp, "dbias", args.dbias, "bias", p.mask.bias);
  }
  require_same_device(kOp, {args.q, args.k, args.v, args.out, args.lse, args.dout, args.dq, args.dk,
                            args.dv, args.dbias, p.mask.key_lengths, p.mask.key_begin,
                            p.mask.key_end, p.mask.alibi_slopes, p.mask.bias, p.mask.layout.words});
  if (p.B == 0 || p.H == 0) {
    if (args.dbias) fill({.y = args.dbias, .value = 0.0}, stream);
    return;
  }
  if (p.device.meta) note_kernel(kOp, cost(args), p.device, stream, WorkKind::attention, p.dtype);
  const AttentionGradients gradients{.out = HeadsView(args.out),
                                     .dout = HeadsView(args.dout),
                                     .lse = args.lse.data(),
                                     .dq = HeadsView(args.dq),
                                     .dk = HeadsView(args.dk),
                                     .dv = HeadsView(args.dv),
                                     .dbias = args.dbias};
  if (p.device.is_cuda()) return run_backward_on_cuda(p, gradients, stream);
  cpu::run_attention_backward(p, gradients, stream);
}

// Two products of D multiply-adds per visible pair.
Cost cost(const AttentionForward& args) {
  const int64_t pairs = visible_pairs(args.q, args.k, args.mask);
  return {.bytes_read = args.q.bytes() + args.k.bytes() + args.v.bytes() + bytes_of(args.mask),
          .bytes_written = args.out.bytes() + optional_bytes(args.lse),
          .flops = 2 * 2 * args.q.dim(0) * args.q.dim(3) * pairs};
}

// Five products.
Cost cost(const AttentionBackward& args) {
  const int64_t pairs = visible_pairs(args.q, args.k, args.mask);
  return {.bytes_read = args.q.bytes() + args.k.bytes() + args.v.bytes() + args.out.bytes() +
                        args.dout.bytes() + args.lse.bytes() + bytes_of(args.mask),
          .bytes_written =
              args.dq.bytes() + args.dk.bytes() + args.dv.bytes() + optional_bytes(args.dbias),
          .flops = 5 * 2 * args.q.dim(0) * args.q.dim(3) * pairs};
}

}  // namespace zinc::kernels
