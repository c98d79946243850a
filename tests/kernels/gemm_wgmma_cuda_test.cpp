// The kernel of products for compute capability 9.0, which no table chooses yet, against f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/work_log.h"
#include "kernels/cuda/gemm.h"
#include "kernels/gemm.h"
#include "kernels/gemm_choice.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels {
namespace gemm_wgmma_cuda_test {

using namespace zinc::test;
using ::testing::ValuesIn;

enum Feature : unsigned {
  kTransposeA = 1,
  kTransposeB = 2,
  kF32 = 4,  // c
  kBeta = 8,
  kBias = 16,
  kF32Bias = 32,
  kValue = 64,  // the value of an activation
  kPre = 128,
  kDerivative = 256,
  kPadded = 512,  // rows of everything
  kAlpha = 1024,
  kAddend = 2048,
  kFactor = 4096,  // with kSlope
  // Sums of a where it is transposed, else of b; with kBeta they are added to the old values.
  kSums = 8192,
  kSumsOfB = 16384,
};

// Tiles are 128 x 128, 64 deep; a GPU of the emulator has four multiprocessors.
struct Case {
  const char* name;
  int64_t m, n, k;
  unsigned features = 0;
  Activation activation = Activation::gelu_tanh;
};
constexpr Case kCases[] = {
    {"OneTile", 128, 128, 64},
    {"Transposed", 128, 128, 128, kTransposeB},
    {"OfGradients", 128, 128, 128, kTransposeA},
    {"Tails", 70, 40, 104, kTransposeB},
    {"TailsByRows", 70, 40, 88},
    {"TailsOfGradients", 72, 40, 37, kTransposeA},
    {"OneRow", 1, 264, 72, kTransposeB},
    {"ManyTiles", 400, 392, 200},
    {"ManyTilesTransposed", 1200, 200, 136, kTransposeB},
    {"Padded", 140, 136, 72, kPadded | kBeta},
    {"F32", 144, 136, 72, kTransposeA | kF32},
    {"F32Accumulated", 136, 136, 72, kTransposeA | kF32 | kBeta},
    {"Accumulated", 140, 136, 72, kTransposeB | kBeta | kAlpha},
    {"Bias", 140, 136, 72, kBias},
    {"F32Bias", 140, 136, 72, kTransposeB | kF32Bias | kBeta},
    {"Gelu", 140, 136, 72, kBias | kValue | kPre},
    {"GeluAlone", 140, 136, 72, kTransposeB | kValue},
    {"Erf", 70, 136, 72, kBias | kValue | kPre, Activation::gelu_erf},
    {"Silu", 70, 136, 72, kValue | kPre | kPadded, Activation::silu},
    {"Derivative", 140, 136, 72, kTransposeB | kDerivative},
    {"DerivativeOfErf", 70, 136, 72, kDerivative | kPadded, Activation::gelu_erf},
    {"DerivativeOfSilu", 70, 136, 72, kDerivative, Activation::silu},
    {"Factor", 140, 136, 72, kTransposeB | kDerivative | kFactor, Activation::silu},
    {"FactorOfErf", 70, 136, 72, kDerivative | kFactor | kPadded, Activation::gelu_erf},
    {"PartsAndFactor", 40, 40, 2200, kDerivative | kFactor, Activation::silu},
    {"SumsOfA", 136, 136, 136, kTransposeA | kSums},
    {"SumsOfB", 140, 264, 136, kSums | kBeta},
    {"SumsOfBWhereAIsTransposed", 264, 136, 72, kTransposeA | kSums | kSumsOfB | kF32},
    {"SumsOfManyTiles", 400, 392, 200, kTransposeA | kSums | kBeta | kF32},
    {"PartsAndSumsOfA", 72, 136, 2100, kTransposeA | kSums | kBeta},
    {"PartsAndSumsOfB", 136, 72, 2100, kTransposeA | kSums | kSumsOfB},
    {"PartsAndSumsAccumulated", 40, 136, 1100, kTransposeA | kSums | kF32 | kBeta},
    {"Parts", 128, 136, 2100, kTransposeA},
    {"PartsOfAWideSum", 40, 40, 2200, kBias | kValue | kPre},
    {"Addend", 140, 136, 72, kBias | kAddend},
    {"AddendOfRowsApart", 70, 136, 72, kTransposeB | kAddend | kPadded | kValue | kPre},
    {"PartsAndAddend", 40, 40, 2200, kBias | kAddend},
    {"PartsAndAddendAlone", 40, 40, 2200, kAddend},
    {"PartsAccumulated", 40, 136, 1100, kTransposeA | kF32 | kBeta},
};

struct Arrays {
  const Case& c;
  HostArray a, b, bias, addend, x, u, z, sums, out;

  Arrays(const Case& chosen, DType dtype) : c(chosen) {
    const DType c_dtype = has(kF32) ? DType::f32 : dtype;
    const int64_t padding = has(kPadded) ? 8 : 0;
    const auto filled = [&](const Shape& shape, DType type, uint64_t seed) {
      const HostArray values = HostArray::random(shape, type, seed);
      return shape.rank() == 1 ? values : values.with_padding(padding);
    };
    a = filled(has(kTransposeA) ? Shape{c.k, c.m} : Shape{c.m, c.k}, dtype, 1);
    b = filled(has(kTransposeB) ? Shape{c.n, c.k} : Shape{c.k, c.n}, dtype, 2);
    bias = filled({c.n}, has(kF32Bias) ? DType::f32 : dtype, 3);
    x = filled({c.m, c.n}, c_dtype, 4);
    out = filled({c.m, c.n}, c_dtype, 5);
    z = filled({c.m, c.n}, c_dtype, 6);
    sums = filled({sums_of_a() ? c.m : c.n}, c_dtype, 9);
    u = HostArray::random({c.m, c.n}, c_dtype, 8).with_padding(24);
    addend = HostArray::random({c.m, c.n}, c_dtype, 7).with_padding(16);
  }
  bool sums_of_a() const { return has(kTransposeA) && !has(kSumsOfB); }
  bool has(unsigned features) const { return (c.features & features) != 0; }
  Arrays in_f64() const {
    Arrays exact(*this);
    for (HostArray* array : {&exact.a, &exact.b, &exact.bias, &exact.addend, &exact.x, &exact.u,
                             &exact.z, &exact.sums, &exact.out}) {
      *array = array->as(DType::f64);
    }
    return exact;
  }
  Gemm arguments() {
    Gemm args{.a = a.view(), .b = b.view(), .c = out.view()};
    args.transpose_a = has(kTransposeA);
    args.transpose_b = has(kTransposeB);
    if (has(kAlpha)) args.alpha = 0.5;
    if (has(kBeta | kAddend)) args.beta = has(kAlpha) ? -2.0 : 1.0;
    if (has(kAddend)) args.addend = addend.view();
    if (has(kBias | kF32Bias)) args.bias = bias.view();
    if (has(kValue | kDerivative)) args.activation = c.activation;
    if (has(kPre)) args.pre_activation = z.view();
    if (has(kDerivative)) args.activation_input = x.view();
    if (has(kSums)) {
      (sums_of_a() ? args.a_sums : args.b_sums) = sums.view();
      args.adds_to_sums = has(kBeta);
    }
    if (has(kFactor)) {
      args.factor = u.view();
      args.factor_gradient = z.view();
    }
    return args;
  }
};

class GemmWgmma : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  }
};
INSTANTIATE_TEST_SUITE_P(All, GemmWgmma, ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(GemmWgmma, MatchesF64) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    CpuContext context;
    auto& slot = Context::current().slot<GemmChoice>();
    slot.use = WgmmaUse::always;
    Arrays arrays(GetParam(), dtype);
    Arrays exact = arrays.in_f64();
    gemm(arrays.arguments(), context.stream());
    context.stream()->synchronize();
    ASSERT_EQ(slot.num_runs, 1);
    {
      const DeviceScope on_cpu(device_for(DType::f64));
      gemm(exact.arguments(), test_stream());
      test_stream()->synchronize();
    }
    // z and the result are each rounded once, partial sums sqrt(k) times in f32; what multiplies a
    // derivative, and what an activation reads, is rounded before.
    const double rounding = epsilon_of(arrays.has(kF32) ? DType::f32 : dtype);
    const double bound = (arrays.has(kValue | kDerivative) ? 2 : 1) * rounding +
                         4 * epsilon_of(DType::f32) * std::sqrt(static_cast<double>(GetParam().k));
    EXPECT_LE(relative_l2(arrays.out, exact.out), bound) << to_string(dtype);
    if (arrays.has(kSums)) {
      EXPECT_LE(relative_l2(arrays.sums, exact.sums), bound) << to_string(dtype);
    }
    if (!arrays.has(kPre | kFactor)) continue;
    EXPECT_LE(relative_l2(arrays.z, exact.z), bound) << to_string(dtype);
  }
}

TEST_P(GemmWgmma, GivesTheSameBitsUnderEverySchedule) {
  EXPECT_TRUE(same_bits_for_contexts([&](StreamRef stream) {
    Context::current().slot<GemmChoice>().use = WgmmaUse::always;
    Arrays arrays(GetParam(), DType::bf16);
    gemm(arrays.arguments(), stream);
    return std::vector<HostArray>{arrays.out, arrays.z, arrays.sums};
  }));
}

// Note [Rounding of the pre-activation] holds for a kernel that does both in one pass.
TEST(GemmWgmmaEpilogue, GivesTheBitsOfTwoKernels) {
  if (!runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  for (const unsigned features : {kBias | kValue | kPre, kDerivative + 0u}) {
    const Case both{"", 140, 136, 72, features}, alone{"", 140, 136, 72, features & kBias};
    CpuContext context;
    Context::current().slot<GemmChoice>().use = WgmmaUse::always;
    Arrays fused(both, DType::bf16), plain(alone, DType::bf16);
    gemm(fused.arguments(), context.stream());
    gemm(plain.arguments(), context.stream());
    const View z = plain.out, x = fused.x;
    MatrixProduct p{.m = both.m, .n = both.n, .dtype = DType::bf16, .c_dtype = DType::bf16};
    p.device = z.device();
    p.activation = both.activation;
    p.c = z.data();
    p.ldc = p.x_stride = both.n;
    if (fused.has(kDerivative)) p.x = x.data();
    cuda::run_epilogue(p, nullptr, 1, context.stream());
    context.stream()->synchronize();
    EXPECT_EQ(fused.out.values(), plain.out.values()) << features;
  }
}

int64_t runs_of(const Case& c, DType dtype, WgmmaUse use, std::span<const GemmRule> table) {
  CpuContext context;
  auto& slot = Context::current().slot<GemmChoice>();
  slot.use = use;
  slot.table = table;
  Arrays arrays(c, dtype);
  gemm(arrays.arguments(), context.stream());
  context.stream()->synchronize();
  return slot.num_runs;
}

TEST(GemmWgmmaChoice, IsTheTables) {
  if (!runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  const Case c{"", 40, 40, 64, kTransposeB};
  const GemmRule line{.transpose_b = true, .min_m = 40, .min_n = 40, .min_k = 64, .wgmma = true};
  const auto by = [&](const GemmRule& rule, const Case& of, DType dtype = DType::bf16) {
    return runs_of(of, dtype, WgmmaUse::by_table, {&rule, 1});
  };
  EXPECT_EQ(runs_of(c, DType::bf16, WgmmaUse::by_table, gemm_table()), 0);
  EXPECT_EQ(by(line, c), 1);
  EXPECT_EQ(by(line, c, DType::f16), 0);
  EXPECT_EQ(by(line, {"", 39, 40, 64, kTransposeB}), 0);
  EXPECT_EQ(by(line, {"", 40, 32, 64, kTransposeB}), 0);
  EXPECT_EQ(by(line, {"", 40, 40, 56, kTransposeB}), 0);
  EXPECT_EQ(by(line, {"", 40, 40, 64}), 0);
  EXPECT_EQ(by(line, {"", 40, 40, 64, kTransposeB | kValue}), 0);
  EXPECT_EQ(runs_of(c, DType::bf16, WgmmaUse::never, {&line, 1}), 0);
}

TEST(GemmWgmmaChoice, FirstLineThatFitsIsTaken) {
  const CpuContext context;
  auto& slot = Context::current().slot<GemmChoice>();
  const GemmRule lines[] = {{.min_m = 100, .wgmma = true},
                            {.min_m = 50, .proposal = 3},
                            {.min_k = 8, .proposal = 1},
                            {.proposal = 2}};
  slot.table = lines;
  const MatrixProduct p{.m = 128, .n = 64, .k = 64, .dtype = DType::bf16, .lda = 64, .ldb = 64};
  EXPECT_TRUE(choose_gemm(p).wgmma);
  MatrixProduct q = p;
  q.lda = 68;  // our kernel does not take this stride
  EXPECT_FALSE(choose_gemm(q).wgmma);
  EXPECT_EQ(choose_gemm(q).proposal, 3);
  q.m = 40;
  EXPECT_EQ(choose_gemm(q).proposal, 1);
  q.k = 4;
  EXPECT_EQ(choose_gemm(q).proposal, 2);
  q.a_fp8 = Fp8::e4m3;
  EXPECT_EQ(choose_gemm(q).proposal, 0);
  q = p;
  q.batch_rank = 1;
  q.batch_extent[0] = 2;
  EXPECT_FALSE(choose_gemm(q).wgmma);
  EXPECT_EQ(choose_gemm(q).proposal, 0);
  slot.use = WgmmaUse::never;
  slot.proposal = 4;
  EXPECT_FALSE(choose_gemm(p).wgmma);
  EXPECT_EQ(choose_gemm(p).proposal, 4);
}

TEST(GemmWgmmaChoice, LeavesWhatItCannotDo) {
  if (!runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  const auto of = [](const Case& c, DType dtype = DType::bf16) {
    return runs_of(c, dtype, WgmmaUse::always, {});
  };
  EXPECT_EQ(of({"", 40, 40, 64}, DType::f32), 0);
  EXPECT_EQ(of({"", 40, 36, 64, kTransposeB}), 0);
  EXPECT_EQ(of({"", 40, 36, 64, kTransposeB | kF32}), 0);
  EXPECT_EQ(of({"", 40, 40, 60}), 0);  // rows of a
  EXPECT_EQ(of({"", 40, 40, 64, kTransposeA | kTransposeB}), 0);
  EXPECT_EQ(of({"", 40, 40, 0}), 0);
}

TEST(GemmWork, PartsFillAGpuAndLeaveNoneEmpty) {
  constexpr int64_t kRoom = cuda::kLibraryWorkspaceBytes;
  EXPECT_EQ(gemm_work(65536, 3072, 768, kRoom).parts, 1);
  EXPECT_EQ(gemm_work(768, 3072, 64, kRoom).parts, 1);
  const GemmWork small = gemm_work(768, 768, 65536, kRoom);
  EXPECT_EQ(small.tiles(), 36);
  EXPECT_EQ(small.parts, 7);  // 252 items: two of nearly each multiprocessor
  EXPECT_EQ(gemm_work(768, 3072, 65536, kRoom).parts, 3);  // 32 MiB hold no more
  EXPECT_EQ(gemm_work(768, 3072, 65536, 0).parts, 1);
  for (int64_t k = 64; k < 8192; k += 56) {
    const GemmWork work = gemm_work(128, 256, k, kRoom);
    EXPECT_GT(work.steps, (work.parts - 1) * work.part_steps) << k;
    EXPECT_LE(work.steps, work.parts * work.part_steps) << k;
  }
}

// Bytes that the passes behind a product move, by a plan.
int64_t bytes_behind(const Case& c, WgmmaUse use) {
  WorkLog log;
  Context context({.device = {.kind = DeviceKind::cuda, .meta = true}, .work_log = &log});
  const ContextScope scope(context);
  context.slot<GemmChoice>().use = use;
  std::vector<Block> blocks;
  const auto view = [&](const Shape& shape) {
    blocks.push_back(context.allocate(2 * shape.numel(), Label::activations));
    return View(blocks.back().data(), DType::bf16, shape, context.device());
  };
  const bool activates = (c.features & kValue) != 0;
  gemm({.a = view({c.m, c.k}),
        .b = view({c.k, c.n}),
        .c = view({c.m, c.n}),
        .activation = activates ? Activation::gelu_tanh : Activation::none},
       context.compute());
  int64_t bytes = 0;
  for (const WorkLog::Entry& entry : log.entries()) {
    if (entry.label == "gemm_epilogue") bytes += entry.cost.bytes_read + entry.cost.bytes_written;
  }
  return bytes;
}

TEST(GemmWork, APlanKnowsThePassesBehindProducts) {
  const Case plain{"", 128, 128, 64}, gelu{"", 128, 128, 64, kValue}, cut{"", 128, 128, 4096};
  constexpr int64_t kMatrix = 128 * 128;
  EXPECT_EQ(bytes_behind(plain, WgmmaUse::by_table), 0);
  EXPECT_EQ(bytes_behind(plain, WgmmaUse::always), 0);
  EXPECT_EQ(bytes_behind(gelu, WgmmaUse::by_table), 2 * 2 * kMatrix);
  EXPECT_EQ(bytes_behind(gelu, WgmmaUse::always), 0);
  const int64_t parts = gemm_work(cut.m, cut.n, cut.k, cuda::kLibraryWorkspaceBytes).parts;
  ASSERT_GT(parts, 1);
  EXPECT_EQ(bytes_behind(cut, WgmmaUse::by_table), 0);
  EXPECT_EQ(bytes_behind(cut, WgmmaUse::always), (4 * parts + 2) * kMatrix);
}

}  // namespace gemm_wgmma_cuda_test
}  // namespace zinc::kernels
