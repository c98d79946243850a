// The plans that cuDNN makes of our graphs for a described H100 and H200: they exist, forward and
// backward, for every mask, and take the expected workspace. The start-up check, on a GPU, compares
// their results.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "core/error.h"
#include "kernels/cuda/attention.h"
#include "nn/models/gpt2_config.h"
#include "nn/models/llama_config.h"

namespace zinc::kernels::cuda {
namespace attention_plans_test {

using ::testing::HasSubstr;

// cuDNN's own description of an H100 or H200 with 132 multiprocessors. Only their memory differs.
std::string gpu(const std::string& name, int64_t memory_bytes) {
  return str(R"({"deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
    "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "l2CacheSize": 62914560, "totalGlobalMem": )",
             memory_bytes, R"(, "deviceName": ")", name, R"("})");
}
std::string h200() { return gpu("NVIDIA H200", 150'000'000'000); }
std::string h100() { return gpu("NVIDIA H100", 85'000'000'000); }

struct Heads {
  int64_t H, G, D;
};

// q, k and v in one buffer, their gradients in another, as training has them.
AttentionKey key_of(AttentionPass pass, DType dtype, int64_t B, int64_t T, const Heads& heads) {
  AttentionKey key;
  key.pass = pass;
  key.dtype = dtype;
  key.B = B;
  key.Tq = key.Tk = T;
  key.H = heads.H;
  key.G = heads.G;
  key.D = heads.D;
  key.causal = key.lse = true;
  const int64_t of_heads = heads.H * heads.D, of_all = of_heads + 2 * heads.G * heads.D;
  size_t at = 0;
  for (const int64_t row : {of_all, of_all, of_all, of_heads, of_heads, of_all, of_all, of_all}) {
    for (const int64_t stride : {T * row, row, heads.D}) key.strides[at++] = stride;
  }
  return key;
}

std::string name_of(const AttentionKey& key) {
  return str(key.pass == AttentionPass::forward ? "forward " : "backward ", key.dtype, " B=", key.B,
             " T=", key.Tq, "x", key.Tk, " H=", key.H, " G=", key.G, " D=", key.D,
             key.causal ? " causal" : "", key.lengths ? " lengths" : "", key.alibi ? " ALiBi" : "",
             " window=", key.window);
}

class CudnnPlans : public ::testing::Test {
 protected:
  // Loads the library by its name: later requests for the driver's library get this one.
  static void SetUpTestSuite() {
    ASSERT_NE(dlopen(ZINC_DRIVER_STAND_IN, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  }
  void SetUp() override {
    const CudnnPlanReport report =
        report_cudnn_plan(key_of(AttentionPass::forward, DType::bf16, 1, 128, {2, 2, 64}), h200());
    if (report.is_missing) GTEST_SKIP() << report.why_not;
  }
  // A plan within the rule, none of whose bytes the rule invents.
  static void expect_plan(const AttentionKey& key, const std::string& device = h200()) {
    const CudnnPlanReport report = report_cudnn_plan(key, device);
    EXPECT_EQ(report.why_not, "") << name_of(key);
    EXPECT_EQ(report.workspace_bytes, attention_plan_bytes(key)) << name_of(key);
  }
  static void expect_plans(const Heads& heads, const std::string& device) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const int64_t tokens : {1024, 2048, 4096}) {
        for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
          const AttentionKey key = key_of(pass, dtype, 4096 / tokens, tokens, heads);
          expect_plan(key, device);
          EXPECT_LE(attention_plan_bytes(key), kMaxAttentionPlanBytes) << name_of(key);
        }
      }
    }
  }
};

TEST_F(CudnnPlans, Gpt2_124m) {
  const nn::Gpt2Config c = nn::Gpt2Config::preset("gpt2-124m");
  expect_plans({c.num_heads, c.num_heads, c.head_dim()}, h200());
}
TEST_F(CudnnPlans, Llama_1b) {
  const nn::LlamaConfig c = nn::LlamaConfig::preset("llama-1b");
  expect_plans({c.num_heads, c.kv_heads(), c.head_dim()}, h200());
}
TEST_F(CudnnPlans, Llama_8b_OnAnH100) {
  const nn::LlamaConfig c = nn::LlamaConfig::preset("llama-8b");
  expect_plans({c.num_heads, c.kv_heads(), c.head_dim()}, h100());
}

// The batch that gpt2-124m trains with, whose workspace is just below the limit.
TEST_F(CudnnPlans, ALargeBatch) {
  expect_plan(key_of(AttentionPass::backward, DType::bf16, 64, 1024, {12, 12, 64}));
}

TEST_F(CudnnPlans, EveryMask) {
  using Change = std::function<void(AttentionKey&)>;
  const Change changes[] = {
      [](AttentionKey& key) { key.causal = false; },
      [](AttentionKey& key) { key.lengths = true; },
      [](AttentionKey& key) { key.window = 256; },
      [](AttentionKey& key) { key.alibi = true; },
      [](AttentionKey& key) { key.causal = false, key.lengths = true; },
      [](AttentionKey& key) { key.window = 256, key.lengths = key.alibi = true; },
  };
  for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
    for (const Change& change : changes) {
      for (const Heads& heads : {Heads{4, 4, 64}, Heads{4, 2, 128}}) {
        AttentionKey key = key_of(pass, DType::bf16, 3, 1024, heads);
        change(key);
        expect_plan(key);
      }
    }
  }
}

// Without statistics, as evaluation asks for it.
TEST_F(CudnnPlans, ForwardAlone) {
  AttentionKey key = key_of(AttentionPass::forward, DType::bf16, 2, 1024, {12, 12, 64});
  key.lse = false;
  expect_plan(key);
}

// Numbers of tokens that end within a tile of queries or keys, and other numbers of keys.
TEST_F(CudnnPlans, AnyNumberOfTokens) {
  for (const int64_t tokens : {2, 40, 136, 200, 384, 1000}) {
    for (const Heads& heads : {Heads{3, 3, 128}, Heads{8, 1, 64}}) {
      expect_plan(key_of(AttentionPass::backward, DType::bf16, 3, tokens, heads));
    }
    expect_plan(key_of(AttentionPass::forward, DType::bf16, 3, tokens, {3, 3, 128}));
  }
  AttentionKey key = key_of(AttentionPass::backward, DType::bf16, 2, 136, {4, 4, 64});
  key.causal = false;
  key.Tk = 520;
  for (const size_t at : {3, 6, 18, 21}) key.strides[at] = key.Tk * key.strides[at + 1];
  expect_plan(key);
}

// The problems of the check at the first use.
TEST_F(CudnnPlans, TheProblemsOfTheCheck) {
  for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
    AttentionKey kind = key_of(pass, DType::f16, 4, 2048, {32, 8, 128});
    kind.window = 512;
    kind.lengths = true;
    for (const AttentionKey& small : small_problems(kind)) expect_plan(small);
  }
}

TEST_F(CudnnPlans, AWrongGraphIsRefusedInItsOwnWords) {
  const AttentionKey key = key_of(AttentionPass::forward, DType::bf16, 2, 136, {3, 2, 64});
  EXPECT_THAT(report_cudnn_plan(key, h200()).why_not, HasSubstr("cuDNN: "));
}

TEST_F(CudnnPlans, AWrongDeviceIsRefusedInItsOwnWords) {
  const AttentionKey key = key_of(AttentionPass::forward, DType::bf16, 2, 136, {2, 2, 64});
  EXPECT_THAT(report_cudnn_plan(key, "{}").why_not, HasSubstr("cuDNN: "));
}

}  // namespace attention_plans_test
}  // namespace zinc::kernels::cuda
