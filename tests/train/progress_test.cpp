#include "train/metrics/progress.h"

#include <gtest/gtest.h>

#include <limits>

namespace zinc::train {
namespace progress_test {

Progress example() {
  return {.step = 120,
          .total_steps = 37256,
          .epoch = 0.0123,
          .loss = 3.78123,
          .lr = 1e-4,
          .grad_norm = 0.87,
          .seconds_per_step = 0.1423,
          .tokens_per_second = 57569,
          .peak_bytes = 19756849561};
}

TEST(ProgressLine, HasFixedColumns) {
  EXPECT_EQ(progress_line(example()),
            "step   120/37256 | epoch 0.01 | loss 3.7812 | gnorm 0.870 | lr 1.00e-04 | 142.3 ms | "
            "57.6k tok/s | mem 18.4 GiB | ETA 1h28m");
}

TEST(ProgressLine, ShowsWhatIsKnown) {
  Progress p = example();
  p.val_loss = 3.5;
  p.loss_scale = 32768.0;
  p.flops_per_second = 1.234e12;
  p.flops_utilisation = 0.412;
  EXPECT_EQ(progress_line(p),
            "step   120/37256 | epoch 0.01 | loss 3.7812 | val 3.5000 | gnorm 0.870 | lr 1.00e-04 "
            "| 142.3 ms | 57.6k tok/s | 1.23TFLOP/s | 41.2% MFU | mem 18.4 GiB | scale 32768 | "
            "ETA 1h28m");
  p = example();
  p.swap = offload::SwapTraffic{.busy_ns = 80'100'000, .stall_ns = 12'000'000};
  EXPECT_NE(progress_line(p).find("57.6k tok/s | swap 80.1 ms, waited 12.0 ms | mem"),
            std::string::npos);
  p = {.step = 1, .total_steps = 5, .loss = 11.0, .peak_bytes = 512};
  p.skipped = true;
  EXPECT_EQ(progress_line(p),
            "step 1/5 | epoch 0.00 | loss 11.0000 | overflow: skipped | lr 0.00e+00 | mem 512 B");
}

TEST(LiveLine, DropsTheLeastImportantFigures) {
  EXPECT_EQ(live_line(example(), 200),
            "[----------------] 120/37256 | loss 3.7812 | ETA 1h28m | 57.6k tok/s | gnorm 0.870 | "
            "lr 1.00e-04 | mem 18.4 GiB | 142.3 ms");
  EXPECT_EQ(live_line(example(), 70),
            "[----------------] 120/37256 | loss 3.7812 | ETA 1h28m | 57.6k tok/s");
  for (int width = 0; width < 130; ++width) {
    EXPECT_LE(live_line(example(), width).size(), static_cast<size_t>(width));
  }
}

TEST(LiveLine, BarFollowsTheSteps) {
  const auto bar = [](int64_t step, int64_t total) {
    return live_line({.step = step, .total_steps = total}, 18);
  };
  EXPECT_EQ(bar(0, 4), "[----------------]");
  EXPECT_EQ(bar(1, 4), "[####------------]");
  EXPECT_EQ(bar(4, 4), "[################]");
  EXPECT_EQ(bar(9, 4), "[################]");
  EXPECT_EQ(bar(0, 0), "[----------------]");
}

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(185), "3m05s");
  EXPECT_EQ(format_duration(5220), "1h27m");
  EXPECT_EQ(format_duration(183600), "2d03h");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(-1), "?");
}

TEST(EvaluationLine, SaysHowFarAndHowLong) {
  EXPECT_EQ(evaluation_line({.batches = 0, .total_batches = 800}), "evaluation 0/800 batches");
  EXPECT_EQ(evaluation_line({.set = "held", .batches = 0, .total_batches = 8}),
            "evaluation of held 0/8 batches");
  EXPECT_EQ(evaluation_line({.batches = 40, .total_batches = 800, .seconds = 12.0}),
            "evaluation 40/800 batches | 12 s | ETA 3m48s");
  EXPECT_EQ(evaluation_line({.batches = 800, .total_batches = 800, .seconds = 240.0}),
            "evaluation 800/800 batches | 4m00s | ETA 0 s");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(int64_t{1536} << 20), "1.5 GiB");
}

TEST(Format, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(9994), "9.99k");
  EXPECT_EQ(format_count(9996), "10.0k");
  EXPECT_EQ(format_count(999600), "1.00M");
  EXPECT_EQ(format_count(1.24e6), "1.24M");
  EXPECT_EQ(format_count(1e18), "1000000T");
}

}  // namespace progress_test
}  // namespace zinc::train
