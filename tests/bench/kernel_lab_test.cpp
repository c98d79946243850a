// The kernel lab on the CPU: what it writes it reads, and what it says of two runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "bench/free_shape.h"
#include "bench/imported_results.h"
#include "bench/kernel_bench.h"
#include "bench/kernel_compare.h"
#include "bench/kernel_report.h"
#include "bench/roofline.h"
#include "core/error.h"
#include "files/atomic_file.h"

namespace zinc::bench {
namespace kernel_lab_test {

using testing::HasSubstr;

KernelResult result(const char* op, double median_us, double noise_percent) {
  return {.op = op,
          .pass = "forward",
          .dtype = "bf16",
          .shape = "rows=64,cols=768",
          .device = "cpu",
          .samples = 7,
          .median_us = median_us,
          .noise_percent = noise_percent,
          .bytes = 4000,
          .flops = 2000,
          .gb_per_s = 4.0 / median_us,
          .gflop_per_s = 2.0 / median_us,
          .ceiling = "stream",
          .ceiling_value = 0.1,
          .percent_of_ceiling = 4000.0 / median_us,
          .deviation = {.relative_l2 = 1e-4, .tolerance = 1e-3}};
}

Verdict verdict_of(const KernelResult& before, const KernelResult& after,
                   const CompareOptions& options = {}) {
  return compare({.results = {before}}, {.results = {after}}, options).at(0).verdict;
}

TEST(KernelCompare, AChangeCountsBeyondTheNoiseOfBothRuns) {
  EXPECT_EQ(verdict_of(result("gelu", 100, 0.1), result("gelu", 102.9, 0.1)), Verdict::same);
  EXPECT_EQ(verdict_of(result("gelu", 100, 0.1), result("gelu", 103.1, 0.1)), Verdict::slower);
  EXPECT_EQ(verdict_of(result("gelu", 100, 0.1), result("gelu", 96.0, 0.1)), Verdict::faster);
  // 3 * hypot(3, 4) = 15 percent.
  EXPECT_EQ(verdict_of(result("gelu", 100, 3), result("gelu", 114.9, 4)), Verdict::same);
  EXPECT_EQ(verdict_of(result("gelu", 100, 3), result("gelu", 115.1, 4)), Verdict::slower);
  EXPECT_EQ(verdict_of(result("gelu", 100, 3), result("gelu", 84.9, 4)), Verdict::faster);
}

TEST(KernelCompare, ByCeiling_TimesThatMoveWithTheMachineAreNoChange) {
  const KernelResult before = result("gelu", 100, 0.1);
  KernelResult after = result("gelu", 150, 0.1);
  after.percent_of_ceiling = before.percent_of_ceiling;
  EXPECT_EQ(verdict_of(before, after), Verdict::slower);
  EXPECT_EQ(verdict_of(before, after, {.by_ceiling = true}), Verdict::same);
}

TEST(KernelCompare, RowsThatAreGoneNewOrWrongAreNamed) {
  KernelResult wrong = result("silu", 50, 0.1);
  wrong.deviation.relative_l2 = 1.0;
  const auto all = compare({.results = {result("gelu", 1, 0), result("silu", 50, 0.1)}},
                           {.results = {result("tanh", 1, 0), wrong}});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].verdict, Verdict::only_after);
  EXPECT_EQ(all[1].verdict, Verdict::now_wrong);
  EXPECT_EQ(all[2].verdict, Verdict::only_before);
  EXPECT_TRUE(has_regression(all));
  EXPECT_FALSE(has_regression({all[0], all[2]}));
  EXPECT_THAT(table_of(all), HasSubstr("WRONG NOW"));
}

TEST(KernelReport, Json_IsReadAsItWasWritten) {
  KernelReport report{.machine = {.cpu = "a \"cpu\"", .threads = 2, .library = "oneDNN"},
                      .preset = "llama-1b",
                      .results = {result("gelu", 12.25, 0.5), result("silu", 3, 1)}};
  report.results[1].cold = false;
  report.results[1].deviation.relative_l2 = std::numeric_limits<double>::quiet_NaN();
  const auto path =
      std::filesystem::temp_directory_path() / str("zinc_kernel_report_", ::getpid(), ".json");
  files::write_file_atomically(path.string(), json_of(report));
  const KernelReport again = read_kernel_report(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(json_of(again), json_of(report));
  EXPECT_EQ(again.machine.cpu, "a \"cpu\"");
  EXPECT_EQ(again.results[0].median_us, 12.25);
  EXPECT_TRUE(again.results[0].verified());
  EXPECT_FALSE(again.results[1].verified());
  const std::string csv = csv_of(report);
  EXPECT_THAT(csv, HasSubstr("op,pass,dtype,shape,"));
  EXPECT_THAT(csv, HasSubstr("gelu,forward,bf16,\"rows=64,cols=768\","));
  EXPECT_THAT(markdown_of(report), HasSubstr("| gelu | forward | bf16 |"));
}

TEST(Roofline, AllowsTheLowerOfBothRoofs) {
  KernelResult gemm = result("gemm", 10, 0.1);
  gemm.flops = 4'000'000;
  gemm.gflop_per_s = 300;
  gemm.ceiling = "gemm";
  gemm.ceiling_value = 400;
  const KernelReport report{.results = {result("gelu", 100, 0.1), gemm}};
  const Roof roof = roof_of(report);
  EXPECT_EQ(roof.gb_per_s, 0.1);
  EXPECT_EQ(roof.gflop_per_s, 400);
  // 0.5 flops per byte at 0.1 GB/s allow 0.05 GFLOP/s; 0.02 were reached.
  const std::string text = roofline_text(report, roof);
  EXPECT_THAT(text, testing::ContainsRegex("gelu.* 0\\.500 .* 0\\.0 .* 0\\.1 +40  memory"));
  EXPECT_THAT(text, testing::ContainsRegex("gemm.* 300\\.0 .* 100\\.0 +300  memory"));
  const std::string svg = roofline_svg(report, roof);
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("<title>gemm forward bf16"));
  EXPECT_THROW(roof_of({}), InvalidArgument);
  EXPECT_EQ(roof_of(report, 7, 9).gb_per_s, 7);
}

TEST(KernelBench, PresetsShapeTheEntries) {
  KernelBenchOptions options{.filter = "^(rmsnorm|rotary)", .model = shape_of_preset("llama-8b")};
  std::string shapes;
  for (const Entry& entry : chosen_entries(options, kCpu)) shapes += entry.shape + "\n";
  EXPECT_THAT(shapes, HasSubstr("cols=4096"));
  EXPECT_THAT(shapes, HasSubstr(",32,128"));
  options.passes = {"backward"};
  options.dtypes = {DType::bf16};
  EXPECT_EQ(chosen_entries(options, kCpu).size(), 1u);
  options.filter = "nothing of this name";
  EXPECT_THROW(chosen_entries(options, kCpu), InvalidArgument);
  options.filter = "(";
  EXPECT_THROW(chosen_entries(options, kCpu), InvalidArgument);
  EXPECT_THROW(shape_of_preset("gpt5"), ConfigError);
}

TEST(KernelBench, SmallArrays_AreVerifiedAndTimed) {
  Context context({.num_threads = 1});
  const KernelReport report = run_kernel_benches(context, {.filter = "^(gelu|adamw) .*bf16",
                                                           .extent = Extent::cache,
                                                           .min_seconds = 0.001,
                                                           .min_samples = 3});
  ASSERT_EQ(report.results.size(), 4u);  // gelu both ways, adamw with states in f32 and in blocks
  EXPECT_TRUE(report.all_verified());
  for (const KernelResult& r : report.results) {
    EXPECT_GE(r.samples, 3) << r.name();
    EXPECT_GT(r.percent_of_ceiling, 0.0) << r.name();
    EXPECT_LE(r.min_us, r.median_us) << r.name();
  }
}

TEST(FreeShapes, SweepsAreCombinedInOrder) {
  using testing::ElementsAre;
  EXPECT_THAT(free_shapes("", {}), ElementsAre(FreeShape{}));
  EXPECT_THAT(free_shapes("rows=64,cols=8", {}), ElementsAre(FreeShape{{"rows", 64}, {"cols", 8}}));
  EXPECT_THAT(
      free_shapes("rows=64", {"cols=16:70:x2"}),
      ElementsAre(FreeShape{{"rows", 64}, {"cols", 16}}, FreeShape{{"rows", 64}, {"cols", 32}},
                  FreeShape{{"rows", 64}, {"cols", 64}}));
  EXPECT_THAT(free_shapes("", {"M=1:2:+1", "N=5:9:+4"}),
              ElementsAre(FreeShape{{"M", 1}, {"N", 5}}, FreeShape{{"M", 1}, {"N", 9}},
                          FreeShape{{"M", 2}, {"N", 5}}, FreeShape{{"M", 2}, {"N", 9}}));
}

TEST(FreeShapes, WhatCannotBeReadIsNamed) {
  for (const char* shape : {"rows", "rows=", "=3", "rows=0", "rows=-1", "rows=1,", "rows=1,rows=2",
                            "rows=9999999999999999999", "rows=1.5"}) {
    EXPECT_THROW(free_shapes(shape, {}), ConfigError) << shape;
  }
  for (const char* sweep : {"cols", "cols=1:2", "cols=2:1:x2", "cols=1:2:x1", "cols=1:2:+0",
                            "cols=1:2:*2", "cols=1:257:+1", "=1:2:x2"}) {
    EXPECT_THROW(free_shapes("", {sweep}), ConfigError) << sweep;
  }
  EXPECT_THROW(free_shapes("cols=1", {"cols=1:2:x2"}), ConfigError);
  EXPECT_THROW(free_shapes("", {"M=1:20:+1", "N=1:20:+1"}), ConfigError);
}

TEST(FreeShapes, EntriesHaveThem_OthersAreLeftOut) {
  const auto names = [](const char* filter, const FreeShape& shape) {
    std::vector<std::string> found;
    for (const Entry& e : chosen_entries({.filter = filter, .shapes = {shape}}, kCpu)) {
      found.push_back(e.op + " " + e.pass + " " + e.shape);
    }
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(names("^(gelu|scale|softmax) forward bf16", {{"rows", 96}, {"cols", 48}}),
              ElementsAre("gelu forward rows=96,cols=48", "softmax forward rows=96,cols=48"));
  EXPECT_THAT(names("^(gelu|scale) forward bf16", {{"n", 1000}}),
              ElementsAre("scale forward n=1000"));
  EXPECT_THAT(names("^gemm .* bf16", {{"M", 8}, {"N", 16}, {"K", 32}}),
              ElementsAre("gemm forward M=8,N=16,K=32,NT", "gemm backward-x M=8,N=16,K=32,NN",
                          "gemm backward-w M=8,N=16,K=32,TN"));
  EXPECT_THAT(
      names("^attention forward bf16", {{"B", 1}, {"T", 64}, {"H", 4}, {"G", 2}, {"D", 16}}),
      ElementsAre("attention forward B=1,T=64,H=4,G=2,D=16,causal",
                  "attention forward B=1,T=64,H=4,G=2,D=16"));
  EXPECT_THROW(names("^gelu", {{"M", 8}}), InvalidArgument);
  EXPECT_THROW(names("^attention", {{"H", 6}, {"G", 4}}), InvalidArgument);
}

TEST(FreeShapes, AreVerifiedAndTimed) {
  Context context({.num_threads = 1});
  const KernelReport report =
      run_kernel_benches(context, {.filter = "^gelu forward bf16",
                                   .shapes = free_shapes("rows=33", {"cols=24:48:x2"}),
                                   .min_seconds = 0.0,
                                   .min_samples = 2,
                                   .max_samples = 2});
  ASSERT_EQ(report.results.size(), 2u);
  EXPECT_TRUE(report.all_verified());
  EXPECT_EQ(report.results[0].shape, "rows=33,cols=24");
  EXPECT_EQ(report.results[1].bytes, 2 * 33 * 48 * 2);
  EXPECT_EQ(report.results[0].timer, "host");
}

TEST(KernelBench, AGraphNeedsAGpu) {
  Context context({.num_threads = 1});
  EXPECT_THROW(run_kernel_benches(context, {.filter = "^gelu forward bf16",
                                            .extent = Extent::cache,
                                            .min_samples = 1,
                                            .timer = KernelTimer::graph}),
               InvalidArgument);
}

class ImportedBaselines : public testing::Test {
 protected:
  ~ImportedBaselines() override { std::filesystem::remove(path_); }
  Baselines read(const std::string& text) {
    files::write_file_atomically(path_.string(), text);
    return read_baselines(path_.string());
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / str("zinc_others_", ::getpid(), ".csv");
};

TEST_F(ImportedBaselines, TheFastestOfAKernelIsCompared) {
  const Baselines others = read(
      "name,op,pass,dtype,shape,median_us\n"
      "A,gelu,forward,bf16,\"rows=33,cols=24\",40\n"
      "B,gelu,forward,bf16,\"rows=33,cols=24\",20.5\r\n\n"
      "C,gelu,forward,f32,n=1,7\n");
  ASSERT_EQ(others.size(), 2u);
  Context context({.num_threads = 1});
  const KernelReport report =
      run_kernel_benches(context, {.filter = "^gelu .* bf16",
                                   .shapes = free_shapes("rows=33,cols=24", {}),
                                   .min_seconds = 0.0,
                                   .min_samples = 2,
                                   .max_samples = 2,
                                   .imported = others});
  ASSERT_EQ(report.results.size(), 2u);
  EXPECT_EQ(report.results[0].baseline, "B");
  EXPECT_DOUBLE_EQ(report.results[0].speed_to_baseline, 20.5 / report.results[0].median_us);
  EXPECT_EQ(report.results[1].baseline, "");
  EXPECT_THAT(table_row(report.results[0]), HasSubstr(" x B"));
  EXPECT_THAT(markdown_of(report), HasSubstr(" x B |"));
}

TEST_F(ImportedBaselines, OurOwnCsvIsRead) {
  const KernelReport report{.results = {result("gelu", 12.5, 0.5)}};
  const Baselines others = read(csv_of(report));
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others.begin()->first, "gelu forward bf16 rows=64,cols=768");
  EXPECT_EQ(others.begin()->second.median_us, 12.5);
  EXPECT_EQ(others.begin()->second.name, path_.stem().string());
}

TEST_F(ImportedBaselines, WhatCannotBeReadIsNamedWithItsLine) {
  EXPECT_THAT(error_of(""), HasSubstr("empty"));
  EXPECT_THAT(error_of("op,pass,dtype,median_us\n"),
              HasSubstr(":1: the heading has no column \"shape\""));
  const std::string heading = "op,pass,dtype,shape,median_us\n";
  EXPECT_THAT(error_of(heading + "a,b,c,d\n"), HasSubstr(":2: 4 fields"));
  EXPECT_THAT(error_of(heading + "a,b,c,d,fast\n"), HasSubstr(":2: median_us is \"fast\""));
  EXPECT_THAT(error_of(heading + "a,b,c,d,-1\n"), HasSubstr("not a time"));
  EXPECT_THAT(error_of(heading + "a,b,c,d,inf\n"), HasSubstr("not a time"));
  EXPECT_THAT(error_of(heading + "a,b,c,\"d,1\n"), HasSubstr("quote"));
  EXPECT_THROW(read_baselines("/no/such/file.csv"), DataError);
}

}  // namespace kernel_lab_test
}  // namespace zinc::bench
