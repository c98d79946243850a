// The forward kernel for compute capability 9.0, which no table chooses yet, against f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/context.h"
#include "kernels/attention_library.h"
#include "tests/kernels/attention_inputs.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels {
namespace attention_wgmma_cuda_test {

using namespace zinc::test;
using ::testing::ValuesIn;

// A block has 128 queries, two warpgroups 64 of them; tiles have 128 keys and 64 elements of a
// head.
constexpr Case kCases[] = {
    {"OneToken", 1, 1, 1, 1, 1, 64, kCausal},
    {"Small", 2, 5, 7, 2, 1, 64, 0},
    {"OneTile", 1, 128, 128, 1, 1, 64, 0},
    {"Causal", 2, 300, 300, 2, 1, 64, kCausal},
    {"ManyKeys", 1, 70, 900, 2, 2, 64, 0},
    {"CachedKeys", 1, 3, 400, 2, 1, 128, kCausal},
    {"MoreQueriesThanKeys", 1, 200, 60, 2, 2, 64, kCausal},
    {"WideHead", 1, 260, 260, 2, 1, 128, kCausal},
    {"PaddedHead", 1, 140, 140, 2, 2, 40, kCausal},
    {"PaddedWideHead", 1, 140, 300, 1, 1, 72, 0},
    {"Lengths", 3, 140, 300, 2, 2, 64, kLengths},
    {"CausalLengths", 3, 140, 140, 2, 1, 64, kCausal | kLengths},
    {"Documents", 2, 300, 300, 2, 2, 64, kCausal | kDocuments},
    {"Window", 1, 300, 300, 2, 1, 64, kCausal | kWindow},
    {"Scale", 1, 140, 140, 1, 1, 64, kScale},
    {"Place", 1, 150, 300, 2, 1, 64, kCausal | kPlace},
    {"NoKeys", 1, 140, 40, 1, 1, 64, kFarPlace | kWindow | kCausal},
};

class AttentionWgmma : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  }
};
INSTANTIATE_TEST_SUITE_P(All, AttentionWgmma, ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AttentionWgmma, MatchesF64) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    CpuContext context;
    auto& kernel = Context::current().slot<WgmmaAttention>();
    kernel.use = WgmmaUse::always;
    Inputs x(GetParam(), dtype);
    Inputs exact = x.in_f64();
    x.forward(context.stream());
    exact.forward(context.stream());
    context.stream()->synchronize();
    ASSERT_EQ(kernel.num_runs, 1);
    // The bound of the other kernels: probabilities and the output are each rounded once, the f32
    // part loses epsilon * sqrt(D) * |score| with scores up to 16.
    const double scores =
        16 * epsilon_of(DType::f32) * std::sqrt(static_cast<double>(x.c.D + x.c.Tk));
    EXPECT_LE(relative_l2(x.out, exact.out), 2 * epsilon_of(dtype) + scores) << to_string(dtype);
    EXPECT_LE(max_relative_error(x.lse, exact.lse, 1.0), scores) << to_string(dtype);
  }
}

TEST_P(AttentionWgmma, GivesTheSameBitsUnderEverySchedule) {
  EXPECT_TRUE(same_bits_for_contexts([&](StreamRef stream) {
    Context::current().slot<WgmmaAttention>().use = WgmmaUse::always;
    Inputs x(GetParam(), DType::bf16);
    x.forward(stream);
    return std::vector<HostArray>{x.out, x.lse};
  }));
}

int64_t runs_of(const Case& c, DType dtype, WgmmaUse use, std::span<const AttentionRule> table) {
  CpuContext context;
  auto& kernel = Context::current().slot<WgmmaAttention>();
  kernel.use = use;
  kernel.table = table;
  Inputs x(c, dtype);
  x.forward(context.stream());
  context.stream()->synchronize();
  return kernel.num_runs;
}

TEST(AttentionWgmmaChoice, IsTheTables) {
  if (!runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  const Case c{"", 1, 40, 40, 1, 1, 64, kCausal}, full{"", 1, 40, 40, 1, 1, 64, 0};
  const AttentionRule line{.dtype = DType::bf16, .head_size = 64, .causal = true, .min_keys = 40};
  EXPECT_EQ(runs_of(c, DType::bf16, WgmmaUse::by_table, wgmma_table()), 0);
  EXPECT_EQ(runs_of(c, DType::bf16, WgmmaUse::by_table, {&line, 1}), 1);
  EXPECT_EQ(runs_of(full, DType::bf16, WgmmaUse::by_table, {&line, 1}), 0);
  EXPECT_EQ(runs_of(c, DType::f16, WgmmaUse::by_table, {&line, 1}), 0);
  EXPECT_EQ(runs_of(c, DType::bf16, WgmmaUse::never, {&line, 1}), 0);
}

TEST(AttentionWgmmaChoice, LeavesWhatItCannotDo) {
  if (!runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  for (const unsigned features : {+kAlibi, +kDropout, +kSoftcap, +kBias, +kOneLayout}) {
    EXPECT_EQ(runs_of({"", 1, 40, 40, 1, 1, 64, features}, DType::bf16, WgmmaUse::always, {}), 0);
  }
  EXPECT_EQ(runs_of({"", 1, 40, 40, 1, 1, 136, 0}, DType::bf16, WgmmaUse::always, {}), 0);
  EXPECT_EQ(runs_of({"", 1, 40, 40, 1, 1, 12, 0}, DType::bf16, WgmmaUse::always, {}), 0);
  EXPECT_EQ(runs_of({"", 1, 40, 40, 1, 1, 64, 0}, DType::f32, WgmmaUse::always, {}), 0);
}

}  // namespace attention_wgmma_cuda_test
}  // namespace zinc::kernels
