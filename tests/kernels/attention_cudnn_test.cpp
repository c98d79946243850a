// The start-up check of cuDNN's attention on this machine's GPU; tests/cudnn has the tests that
// need no GPU.
#include <gtest/gtest.h>

#include "core/context.h"
#include "kernels/cuda/attention.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels::cuda {
namespace attention_cudnn_test {

TEST(CudnnOnAGpu, WhatItTakesAgreesWithOurKernels) {
  if (!test::runs_on_cuda()) GTEST_SKIP() << "needs a GPU";
  test::CpuContext context;
  const LibraryAttention::Opened opened = open_cudnn();
  if (opened.library == nullptr) GTEST_SKIP() << opened.why_not;
  const auto check = [&](AttentionKey kind, const char* mask) {
    for (const AttentionKey& small : small_problems(kind)) {
      const Block workspace = Context::current().allocator().allocate(
          kAttentionCheckBytes + attention_plan_bytes(small), Tier::device, Label::workspace,
          context.stream());
      EXPECT_EQ(
          check_attention_library(*opened.library, small, static_cast<std::byte*>(workspace.data()),
                                  context.stream()),
          "")
          << (kind.pass == AttentionPass::forward ? "forward of " : "backward of ")
          << name_of(kind.dtype) << ", head size " << kind.D << ", " << mask << ", " << small.Tq
          << " tokens" << (kind.H != kind.G ? ", grouped" : "");
    }
  };
  AttentionKey kind;
  kind.H = 4;
  for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
    kind.pass = pass;
    for (const DType dtype : {DType::bf16, DType::f16}) {
      kind.dtype = dtype;
      for (const int64_t head_size : {64, 128}) {
        kind.D = head_size;
        for (const int64_t groups : {2, 4}) {
          kind.G = groups;
          AttentionKey causal = kind;
          causal.causal = true;
          check(kind, "full");
          check(causal, "causal");
          AttentionKey masked = causal;
          masked.window = 100;
          check(masked, "window");
          masked = causal;
          masked.alibi = true;
          check(masked, "ALiBi");
          masked = causal;
          masked.lengths = true;
          check(masked, "lengths");
        }
      }
    }
  }
}

}  // namespace attention_cudnn_test
}  // namespace zinc::kernels::cuda
