// What cuDNN says of our graphs: it finalizes them without a GPU. That its engines compute them is
// for the start-up check to say, on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/attention.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels::cuda {
namespace attention_cudnn_test {

using ::testing::AnyOf;
using ::testing::HasSubstr;

AttentionKey key_of(DType dtype, int64_t heads, int64_t groups, int64_t head_size, bool causal,
                    bool lengths) {
  AttentionKey key;
  key.H = heads;
  key.G = groups;
  key.D = head_size;
  key.dtype = dtype;
  key.causal = causal;
  key.lengths = lengths;
  return small_problems(key)[1];
}

class CudnnGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = why_no_cudnn_graph(key_of(DType::bf16, 2, 2, 64, false, false));
    if (missing.find("not found") != std::string::npos ||
        missing.find("too old") != std::string::npos) {
      GTEST_SKIP() << missing;
    }
    ASSERT_EQ(missing, "");
  }
};

TEST_F(CudnnGraph, FullAttentionIsAccepted) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int64_t head_size : {32, 64, 96, 128, 256}) {
      for (const bool lengths : {false, true}) {
        EXPECT_EQ(why_no_cudnn_graph(key_of(dtype, 4, 4, head_size, false, lengths)), "");
        EXPECT_EQ(why_no_cudnn_graph(key_of(dtype, 8, 2, head_size, false, lengths)), "");
      }
    }
  }
}

// 9.19 has no operation for the mask; 9.26 accepts the graph.
TEST_F(CudnnGraph, CausalAttentionIsAcceptedOrItsMaskIsUnknown) {
  for (const bool lengths : {false, true}) {
    EXPECT_THAT(why_no_cudnn_graph(key_of(DType::bf16, 4, 4, 64, true, lengths)),
                AnyOf("", HasSubstr("cudnnBackendCreateDescriptor")));
  }
}

TEST_F(CudnnGraph, AWrongGraphIsRefusedInItsOwnWords) {
  AttentionKey key = key_of(DType::bf16, 3, 2, 64, false, false);
  key.H = 3;
  key.G = 2;
  EXPECT_THAT(why_no_cudnn_graph(key), HasSubstr("cuDNN: "));
}

// What the start-up check says on this machine; a kind that the library refuses is no error.
TEST(CudnnOnAGpu, WhatItTakesAgreesWithOurKernels) {
  if (!test::runs_on_cuda()) GTEST_SKIP() << "needs a GPU";
  test::CpuContext context;
  const LibraryAttention::Opened opened = open_cudnn();
  if (opened.library == nullptr) GTEST_SKIP() << opened.why_not;
  const Block workspace =
      Context::current().allocate(kAttentionPlanBytes + kAttentionCheckBytes, Label::workspace);
  int taken = 0;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int64_t head_size : {64, 128}) {
      for (const bool causal : {false, true}) {
        const AttentionKey kind = key_of(dtype, 4, 2, head_size, causal, false);
        if (opened.library->make_plan(kind).plan == nullptr) continue;
        ++taken;
        for (const AttentionKey& small : small_problems(kind)) {
          EXPECT_EQ(
              check_attention_library(*opened.library, small,
                                      static_cast<std::byte*>(workspace.data()), context.stream()),
              "")
              << name_of(dtype) << ", head size " << head_size << (causal ? ", causal" : "") << ", "
              << small.Tq << " tokens";
        }
      }
    }
  }
  EXPECT_GT(taken, 0) << opened.library->name() << " takes nothing";
}

}  // namespace attention_cudnn_test
}  // namespace zinc::kernels::cuda
