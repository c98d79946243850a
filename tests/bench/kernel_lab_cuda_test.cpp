// The kernel lab on a GPU, emulated or real: arrays in its memory, results against the CPU's f64
// path.
#include <gtest/gtest.h>

#include "bench/ceilings.h"
#include "bench/kernel_bench.h"
#include "core/context.h"

namespace zinc::bench {
namespace kernel_lab_cuda_test {

constexpr Device kGpu{.kind = DeviceKind::cuda};

KernelReport run(Context& context, const char* filter) {
  return run_kernel_benches(context, {.filter = filter,
                                      .extent = Extent::cache,
                                      .min_seconds = 0.0,
                                      .min_samples = 2,
                                      .max_samples = 2});
}

TEST(KernelLabOnAGpu, EntriesOfEveryKind_AreVerifiedAndTimed) {
  Context context({.device = kGpu, .num_threads = 1});
  const ContextScope scope(context);
  // Plain arrays, integers, f64 sums, in place.
  const KernelReport report = run(context, "^(scale|gather_rows|finite_norm|adamw) forward bf16");
  ASSERT_EQ(report.results.size(), 4u);
  EXPECT_TRUE(report.all_verified());
  for (const KernelResult& r : report.results) {
    EXPECT_EQ(r.device, "cuda:0");
    EXPECT_EQ(r.ceiling, "stream") << r.name();
    EXPECT_GT(r.median_us, 0.0) << r.name();
    EXPECT_GT(r.percent_of_ceiling, 0.0) << r.name();
  }
  EXPECT_FALSE(report.machine.gpu.empty());
}

TEST(KernelLabOnAGpu, StreamProbe_MovesWhatItSays) {
  Context context({.device = kGpu, .num_threads = 1});
  const ContextScope scope(context);
  const auto probe = make_cuda_stream_probe(2, 1, 1, 5 * 16 * 1000);
  EXPECT_EQ(probe->work_per_run(), 5 * 16 * 1000);
  probe->run();
  context.synchronize();
}

// With cuDNN, the library's attention is timed, too; without it the report has the reason.
TEST(KernelLabOnAGpu, AttentionHasABaselineOrTheReasonWhyNot) {
  Context context({.device = kGpu, .num_threads = 1});
  const ContextScope scope(context);
  const KernelReport report =
      run_kernel_benches(context, {.filter = "^attention (forward|backward) bf16.*causal",
                                   .shapes = free_shapes("B=1,T=32,H=2,G=2,D=64", {}),
                                   .min_seconds = 0.0,
                                   .min_samples = 2,
                                   .max_samples = 2});
  ASSERT_EQ(report.results.size(), 2u);
  EXPECT_TRUE(report.all_verified());
  for (const KernelResult& result : report.results) {
    EXPECT_NE(result.baseline.empty(), result.baseline_missing.empty()) << result.name();
    EXPECT_EQ(result.timer, "events");
  }
}

}  // namespace kernel_lab_cuda_test
}  // namespace zinc::bench
