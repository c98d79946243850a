// Our graphs express attention and its gradients: computed operation by operation, they give the
// results of the CPU's f64 kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <ostream>
#include <vector>

#include "core/context.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_graph_cudnn.h"
#include "tests/cudnn/recorded_graph.h"

namespace zinc::kernels::cuda {
namespace attention_graph_test {

struct Case {
  const char* name;
  int64_t Tq, Tk, H, G;
  bool causal = true, lengths = false, alibi = false;
  int64_t window = 0;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr int64_t kBatch = 2, kHeadSize = 8;

std::vector<double> numbers(int64_t count, uint32_t seed) {
  std::vector<double> made(static_cast<size_t>(count));
  for (double& value : made) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<double>(seed >> 8) * 0x1p-23 - 1.0;
  }
  return made;
}

// [B, T, heads, D] as part of a buffer whose tokens have other heads before and behind.
struct Heads {
  int64_t tokens, heads;
  std::vector<double> buffer;

  Heads(int64_t of_tokens, int64_t of_heads, uint32_t seed)
      : tokens(of_tokens),
        heads(of_heads),
        buffer(numbers(kBatch * of_tokens * (of_heads + 3) * kHeadSize, seed)) {}
  double* data() { return buffer.data() + kHeadSize; }
  int64_t row() const { return (heads + 3) * kHeadSize; }
  View view() {
    return View(data(), DType::f64, {kBatch, tokens, heads, kHeadSize},
                {tokens * row(), row(), kHeadSize, 1}, kCpu, Tier::device);
  }
};

struct Problem {
  Case c;
  Heads q, k, v, out, dout, dq, dk, dv;
  std::vector<double> lse, slopes, key_lengths, query_lengths;
  std::vector<float> slopes_f32;
  std::vector<int32_t> lengths;
  AttentionMask mask;

  explicit Problem(const Case& the_case)
      : c(the_case),
        q(c.Tq, c.H, 1),
        k(c.Tk, c.G, 2),
        v(c.Tk, c.G, 3),
        out(c.Tq, c.H, 4),
        dout(c.Tq, c.H, 5),
        dq(c.Tq, c.H, 6),
        dk(c.Tk, c.G, 7),
        dv(c.Tk, c.G, 8),
        lse(static_cast<size_t>(kBatch * c.H * c.Tq)) {
    for (int64_t h = 0; h < c.H; ++h) slopes_f32.push_back(std::exp2(-static_cast<float>(h)));
    slopes.assign(slopes_f32.begin(), slopes_f32.end());
    for (int64_t b = 0; b < kBatch; ++b) lengths.push_back(static_cast<int32_t>(c.Tk - 4 * b));
    key_lengths.assign(lengths.begin(), lengths.end());
    query_lengths.assign(kBatch, static_cast<double>(c.Tq));
    mask = {.causal = c.causal, .window = c.window};
    if (c.lengths) mask.key_lengths = ConstView(lengths.data(), DType::i32, {kBatch});
    if (c.alibi) mask.alibi_slopes = ConstView(slopes_f32.data(), DType::f32, {c.H});
  }

  View lse_view() { return View(lse.data(), DType::f64, {kBatch, c.H, c.Tq}); }

  AttentionKey key(AttentionPass pass) {
    AttentionKey made;
    made.pass = pass;
    made.B = kBatch;
    made.Tq = c.Tq;
    made.Tk = c.Tk;
    made.H = c.H;
    made.G = c.G;
    made.D = kHeadSize;
    made.dtype = DType::bf16;
    made.causal = c.causal;
    made.lengths = c.lengths;
    made.alibi = c.alibi;
    made.window = c.window;
    made.lse = true;
    size_t at = 0;
    for (const Heads* one : {&q, &k, &v, &out, &dout, &dq, &dk, &dv}) {
      for (const int64_t stride : {one->tokens * one->row(), one->row(), kHeadSize}) {
        made.strides[at++] = stride;
      }
    }
    return made;
  }

  void by_kernels(AttentionPass pass) {
    const StreamRef stream = Context::current().compute();
    if (pass == AttentionPass::forward) {
      attention_forward({.q = q.view(),
                         .k = k.view(),
                         .v = v.view(),
                         .out = out.view(),
                         .lse = lse_view(),
                         .scale = kScaleFactor,
                         .mask = mask},
                        stream);
    } else {
      attention_backward({.q = q.view(),
                          .k = k.view(),
                          .v = v.view(),
                          .out = out.view(),
                          .lse = lse_view(),
                          .dout = dout.view(),
                          .dq = dq.view(),
                          .dk = dk.view(),
                          .dv = dv.view(),
                          .dbias = {},
                          .scale = kScaleFactor,
                          .mask = mask},
                         stream);
    }
    stream->synchronize();
  }

  void by_graph(AttentionPass pass) {
    const CudnnFunctions functions = test::recording_functions();
    const AttentionKey of_pass = key(pass);
    double scale = kScaleFactor, hidden = -INFINITY, one = 1.0;
    auto window = static_cast<double>(c.window);
    std::vector<double> delta(lse.size());
    test::compute(attention_graph(functions, of_pass, nullptr),
                  {{kQ, q.data()},
                   {kK, k.data()},
                   {kV, v.data()},
                   {kOut, out.data()},
                   {kDout, dout.data()},
                   {kDq, dq.data()},
                   {kDk, dk.data()},
                   {kDv, dv.data()},
                   {kLse, lse.data()},
                   {kSlopes, slopes.data()},
                   {kKeyLengths, key_lengths.data()},
                   {kQueryLengths, query_lengths.data()},
                   {kDelta, delta.data()},
                   {kScale, &scale},
                   {kWindow, &window},
                   {kHidden, &hidden},
                   {kOne, &one}});
  }

  static constexpr double kScaleFactor = 1.7;
};

// The parts of a buffer beside the heads are equal if nothing wrote them. 1e-12: sums of some
// dozens of f64 in another order.
void expect_near(const std::vector<double>& left, const std::vector<double>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) ASSERT_NEAR(left[i], right[i], 1e-12) << "element " << i;
}

class AttentionGraph : public ::testing::TestWithParam<Case> {
 protected:
  Context context_;
  ContextScope scope_{context_};
  Problem kernels_{GetParam()}, graph_{GetParam()};
};

TEST_P(AttentionGraph, ForwardSaysAttention) {
  kernels_.by_kernels(AttentionPass::forward);
  graph_.by_graph(AttentionPass::forward);
  expect_near(graph_.out.buffer, kernels_.out.buffer);
  expect_near(graph_.lse, kernels_.lse);
}

TEST_P(AttentionGraph, BackwardSaysItsGradients) {
  kernels_.by_kernels(AttentionPass::forward);
  graph_.by_kernels(AttentionPass::forward);
  kernels_.by_kernels(AttentionPass::backward);
  graph_.by_graph(AttentionPass::backward);
  expect_near(graph_.dq.buffer, kernels_.dq.buffer);
  expect_near(graph_.dk.buffer, kernels_.dk.buffer);
  expect_near(graph_.dv.buffer, kernels_.dv.buffer);
}

INSTANTIATE_TEST_SUITE_P(Masks, AttentionGraph,
                         ::testing::Values(Case{"Causal", 11, 11, 2, 2},
                                           Case{"Grouped", 11, 11, 6, 2},
                                           Case{"Full", 11, 11, 2, 2, false},
                                           Case{"OtherKeys", 5, 13, 4, 2, false},
                                           Case{"Lengths", 11, 11, 2, 1, true, true},
                                           Case{"FullLengths", 7, 11, 2, 2, false, true},
                                           Case{"Alibi", 11, 11, 4, 2, true, false, true},
                                           Case{"Window", 11, 11, 2, 2, true, false, false, 3},
                                           Case{"All", 13, 13, 4, 2, true, true, true, 9}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace attention_graph_test
}  // namespace zinc::kernels::cuda
