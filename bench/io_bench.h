// bench/io_bench.h: what storage moves per second on a directory's disk, by block size, queue depth
// and threads, with and without checksums, beside fio on the same file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "offload/storage.h"

namespace zinc::bench {

struct IoBenchOptions {
  std::string directory = ".";
  int64_t file_bytes = int64_t{256} << 20;
  int repetitions = 3;
  std::vector<int64_t> block_sizes{1 << 18, 1 << 20, 8 << 20};
  std::vector<int> queue_depths{4, 8, 32};
  std::vector<int> threads{1, 2};
  bool fio = true;  // if the program is installed
};

// Bytes per second; medians over the repetitions.
struct IoRates {
  double read = 0.0;
  double write = 0.0;
  double mixed = 0.0;  // half of the file is read while the other half is written
  // The smallest of the three.
  double worst() const;
};

struct IoBenchResult {
  offload::StorageOptions options;
  IoRates zinc;
  IoRates checked;             // with a CRC of every byte; `mixed` is not measured
  std::optional<IoRates> fio;  // `mixed` is not measured
};

struct IoBenchReport {
  bool aio = false;     // false: the thread pool
  bool direct = false;  // past the page cache
  std::vector<IoBenchResult> results;
  // The one with the highest mixed rate.
  const IoBenchResult& best() const;
};

// Works on an unnamed file, for fio a named one that is removed. Runs of zinc and fio take turns.
// Throws IoError.
IoBenchReport run_io_bench(const IoBenchOptions& options,
                           const std::function<void(const IoBenchResult&)>& done);

std::string io_table_header();
std::string io_table_row(const IoBenchResult& result);
// The section of a configuration, with a line for nvme_path's file system where it is not direct.
std::string aio_section(const IoBenchReport& report);

}  // namespace zinc::bench
