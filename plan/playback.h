// plan/playback.h: the time of a run, played through from the work that it would issue.
//
// Every stream does its work in order, each piece with the duration of RankSpeed. A piece begins
// when the stream is free, its waits are over and the host has issued it. So communication overlaps
// with compute exactly where the engine's own events allow it. On a CPU the issuing thread computes
// itself, and the streams of a rank share its cores: where more threads are busy than there are
// cores, all of them go on more slowly, in proportion. On a GPU the host issues ahead of the
// device, in no time, until it waits for a result; kernels and copies between devices do not slow
// each other down.
//
// Copies between host and device have the link of their direction to themselves. Computations of a
// GPU's host for offload run on a separate stream beside the device.
//
// Not modelled: caches (every kernel reads and writes memory), ranks that are slower than others,
// reading data, what the host itself does between kernels on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/work_log.h"
#include "parallel/pipeline.h"
#include "plan/hardware.h"

namespace zinc::plan {

// The times of copies between host and device, and of computations of a GPU's host, each as if
// alone.
struct OffloadTime {
  double to_device = 0.0;
  double to_host = 0.0;
  double on_host = 0.0;
  friend bool operator==(const OffloadTime&, const OffloadTime&) = default;
};

// The state of the playback at a mark of the log.
struct PlayedMoment {
  std::string_view label;
  double seconds = 0.0;        // the clock, when the issuing thread reaches the mark
  double reached = 0.0;        // when the compute stream has done all that it was given before
  double compute = 0.0;        // kernels of the compute stream, each alone on the machine
  double communication = 0.0;  // collectives of all streams, likewise
  OffloadTime offload;         // likewise
  int64_t flops = 0;           // of all kernels
};

// A stretch in which a stream, or the issuing thread, did one work.
struct PlayedSpan {
  int stream = 0;
  std::string_view label;  // of the work; empty: it waited for `source`
  int source = 0;          // a stream
  double begin = 0.0, end = 0.0;
  size_t marks = 0;  // marks that had been issued before
};
// The number of the issuing thread, which only waits: on a CPU its computations are on the compute
// stream.
inline constexpr int kIssuingThread = kHostStream + 1;
// "gather", "host", "issuing thread"
std::string_view name_of_stream(int stream);

// One moment for each mark. `free_offload`: work that is_offload() takes no time. `spans`, unless
// null, receives the work and the waits, in the order of their ends. Throws ConfigError as
// RankSpeed does.
std::vector<PlayedMoment> play(const WorkLog& log, const RankSpeed& speed,
                               bool free_offload = false, std::vector<PlayedSpan>* spans = nullptr);

// `log` without its entries [second, end), where they do the same work as those of [first, second):
// what waited for one of them waits for its like. Empty: they do not.
std::optional<WorkLog> without_repeat(const WorkLog& log, size_t first, size_t second, size_t end);

// A step of one rank.
struct StepTime {
  double step_seconds = 0.0;
  double compute_seconds = 0.0;
  double communication_seconds = 0.0;
  // The time of the disk alone, if the run swaps and the hardware file knows the disk. It is not
  // played: swap is assumed to overlap with everything else, so a step lasts as long as the longer
  // of the two.
  std::optional<double> swap_seconds;
  double exposed_swap_seconds = 0.0;  // the part of it that lengthens step_seconds
  OffloadTime offload;
  double exposed_offload_seconds = 0.0;  // the part of it that lengthens step_seconds
  // In a pipeline: the wait for other ranks, while this rank has nothing to do; part of
  // step_seconds.
  double pipeline_wait_seconds = 0.0;
  // The part of step_seconds that communication adds.
  double exposed_seconds() const {
    const double rest = step_seconds - exposed_swap_seconds - exposed_offload_seconds -
                        pipeline_wait_seconds - compute_seconds;
    return std::max(0.0, rest);  // sums in another order
  }
};
StepTime between(const PlayedMoment& begin, const PlayedMoment& end);
// Turns the time of a rank's step into that of its pipeline: the work of the slowest rank, and its
// waits for the passes of the others.
inline void wait_in_pipeline(StepTime& time, double slowest_seconds,
                             const parallel::PipelineShape& pipeline) {
  const double step = slowest_seconds * (1.0 + parallel::bubble(pipeline));
  time.pipeline_wait_seconds = step - time.step_seconds;
  time.step_seconds = step;
}

}  // namespace zinc::plan
