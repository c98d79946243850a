#include "bench/io_bench.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/offload/swap_folder.h"

namespace zinc::bench {
namespace io_bench_test {

TEST(IoBench, MeasuresEveryRowNamesTheBestAndLeavesNothing) {
  const offload::SwapFolder folder;
  const IoBenchOptions options{.directory = folder.path(),
                               .file_bytes = 2 << 20,
                               .repetitions = 1,
                               .block_sizes = {4096, 1 << 20},
                               .queue_depths = {1, 8},
                               .threads = {2},
                               .fio = false};
  int rows = 0;
  const IoBenchReport report = run_io_bench(options, [&](const IoBenchResult& result) {
    ++rows;
    EXPECT_GT(result.zinc.worst(), 0.0);
    EXPECT_GT(result.checked.read, 0.0);
    EXPECT_GT(result.checked.write, 0.0);
    EXPECT_FALSE(result.fio.has_value());
  });
  EXPECT_EQ(rows, 4);
  EXPECT_TRUE(folder.is_empty());
  for (const IoBenchResult& result : report.results) {
    EXPECT_LE(result.zinc.mixed, report.best().zinc.mixed);
  }
  const std::string section = aio_section(report);
  EXPECT_NE(section.find("\"block_size\": " + std::to_string(report.best().options.block_size)),
            std::string::npos)
      << section;
}

TEST(IoBench, ADirectoryThatIsNotThereIsNamed) {
  const IoError error = offload::io_error_of(
      [] { run_io_bench({.directory = "/nonexistent", .file_bytes = 1 << 20}, {}); });
  EXPECT_EQ(error.error_number(), ENOENT);
  EXPECT_NE(error.path().find("/nonexistent"), std::string::npos);
}

}  // namespace io_bench_test
}  // namespace zinc::bench
