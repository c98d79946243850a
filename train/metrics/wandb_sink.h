// train/metrics/wandb_sink.h: a run of Weights & Biases that was made offline, without its package.
// `wandb sync FOLDER` uploads it.
//
// Format: wandb/sdk/internal/datastore.py and wandb/proto/wandb_internal.proto of the package. The
// file begins with ":W&B", u16 0xBEE1, u8 0. Then records as in LevelDB's log_format.md, in blocks
// of 32 KiB to which the first 7 bytes count: u32 CRC, u16 length, u8 type (1 whole, 2 first, 3
// middle, 4 last part), data; fewer than 7 bytes at the end of a block are zeros. Unlike LevelDB's,
// the CRC is zlib's CRC-32 of type and data, not masked. A record is a message
// wandb_internal.Record.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "files/append_file.h"
#include "train/metrics/step_metrics.h"

namespace zinc::train {

// CRC-32 of IEEE 802.3 (polynomial 0x04C11DB7, reflected), as zlib's crc32().
uint32_t crc32_ieee(std::string_view data);

// `record` in parts that fit the blocks, behind `written` bytes of the file.
std::string wandb_framed(std::string_view record, int64_t written);

struct WandbRun {
  std::string id;  // characters [a-z0-9]
  std::string project;
  std::string entity{};  // team; empty: the user's own
  std::string group{};
  std::string name{};  // shown; empty: the service makes one up
  // A JSON object: each member becomes a key of the run's configuration.
  std::string config{};
  double start_time = 0.0;  // seconds since the epoch
};

// "offline-run-20260131_235959-<id>", in UTC.
std::string wandb_folder_name(const WandbRun& run);
// An id of 8 characters that depends on all of `seed`.
std::string wandb_run_id(std::string_view seed);

class WandbSink final : public MetricsSink {
 public:
  // Makes <folder>/<wandb_folder_name()>/run-<id>.wandb, which must not exist. With `so_far` the
  // newest run of `folder` continues instead, if there is one: its end record, and records of later
  // steps, are cut off.
  WandbSink(const std::string& folder, const WandbRun& run,
            const std::optional<FiguresSoFar>& so_far = {});
  // Ends the run; the latest figures become its summary. Records that cannot be written are lost;
  // the file can be read without them.
  ~WandbSink() override;
  WandbSink(const WandbSink&) = delete;
  WandbSink& operator=(const WandbSink&) = delete;

  // The curves of metrics/step_metrics.h over the number of samples, as DeepSpeed's monitor has
  // them. NaN and infinities are written as Python's json does.
  void write(const StepMetrics& metrics) override;

  const std::string& path() const { return file_.path(); }

 private:
  // The records that a continued run has.
  struct Kept {
    std::string path;
    int64_t bytes = 0;  // 0: none; the run begins
    int64_t records = 0;
    double start_time = 0.0;
  };
  static Kept find_kept(const std::string& folder, const FiguresSoFar& so_far);
  WandbSink(const std::string& folder, const WandbRun& run, const Kept& kept);
  void append(std::string_view record);
  void write_summary();

  WandbRun run_;
  files::AppendFile file_;
  int64_t written_ = 0;  // bytes
  int64_t records_ = 0;
  int exceptions_at_start_;
  double last_time_;
  std::map<std::string, std::string> summary_;  // last value of each curve, as JSON
};

}  // namespace zinc::train
