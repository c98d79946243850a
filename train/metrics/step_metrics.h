// train/metrics/step_metrics.h: the figures of one optimizer step, and where they go.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/phase_clock.h"
#include "offload/swap_traffic.h"
#include "train/metrics/histogram.h"

namespace zinc::train {

// Seconds since the epoch.
inline double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The mean loss over a validation set.
struct SetLoss {
  std::string name;  // empty: the only set
  double loss = 0.0;
};

struct StepMetrics {
  // Optimizer steps so far, this one included. 0: these are figures of an evaluation before the
  // first step, and nothing of a step is known.
  int64_t step = 0;
  double loss = 0.0;       // mean over the step's targets, all ranks
  double lr = 0.0;         // of the first parameter group, as used in this step
  double grad_norm = 0.0;  // before clipping; not a number or infinite on a skipped step
  double loss_scale = 1.0;
  bool skipped = false;  // an overflow: nothing was changed
  std::string overflow;  // skipped: where, as in zero::StepResult
  // Positions of this step's batches, padding included, all ranks: each as many as this one.
  int64_t tokens = 0;
  double seconds = 0.0;                      // the step took
  double tokens_per_second = 0.0;            // tokens / seconds
  MemoryReport memory{};                     // of rank 0; the peaks are printed
  std::optional<double> val_loss;            // if an evaluation followed; of the set that decides
  std::vector<SetLoss> validation{};         // likewise, for each set
  std::optional<PhaseSeconds> breakdown;     // of rank 0; with wall_clock_breakdown
  std::optional<offload::SwapTraffic> swap;  // of rank 0 in this step; if the run swaps

  int64_t samples = 0;     // sequences so far, all ranks: the x axis of DeepSpeed's monitors
  double wall_time = 0.0;  // seconds since the epoch, for TensorBoard
};

// The figures that the files of a continued run already hold.
struct FiguresSoFar {
  int64_t step = 0;
  int64_t samples = 0;  // StepMetrics::samples of that step
};

// A text that the model wrote behind a prompt.
struct SampleText {
  std::string prompt;
  std::string text;
};

// When a figure was made: the step, and the axes of TensorBoard.
struct FigureTime {
  int64_t step = 0;
  int64_t samples = 0;
  double wall_time = 0.0;
};

// Takes the steps in order, and each step's other figures behind it. A failure is an IoError.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void write(const StepMetrics& metrics) = 0;
  virtual void write_samples(const FigureTime&, std::span<const SampleText>) {}
  // For a run that continues behind `step`: true if the samples of that step were not written.
  virtual bool lacks_samples_of(int64_t step) const {
    static_cast<void>(step);
    return false;
  }
  virtual void write_histograms(const FigureTime&, std::span<const Histogram>) {}
};

// The curves that DeepSpeed's monitors know, and zinc's own beside them.
struct Scalar {
  std::string tag;  // "Train/Samples/train_loss"
  double value;
};
// Train/Samples/{train_loss, lr, loss_scale, grad_norm, tokens_per_second} and, where there was an
// evaluation, Validation/Samples/val_loss and eval/<name>/loss of sets with names.
std::vector<Scalar> scalars(const StepMetrics& metrics);

}  // namespace zinc::train
