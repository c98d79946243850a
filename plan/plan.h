// plan/plan.h: the bytes, the traffic and the time of a run, before it runs.
//
// A plan is a run: model, engine, loader and trainer are the real ones, on a meta device and among
// phantom ranks, for three steps with a save between them, an evaluation and a last save. So its
// peak is the peak that a real run takes from zinc's allocators, to the byte, wherever its steps
// are skipped and whenever it evaluates and saves; libraries' own memory and the program itself are
// not in it. The time of a step comes from what the run issues, played through at the speeds of a
// hardware file (plan/playback.h): a model, not a promise. Takes time in proportion to the
// model's number of kernels, not to its size or the world's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/phantom/phantom.h"
#include "core/allocator.h"
#include "core/work_log.h"
#include "data/dataset.h"
#include "hub/model_config.h"
#include "plan/hardware.h"
#include "plan/offload_choice.h"
#include "plan/planned_program.h"
#include "plan/playback.h"
#include "train/config/config.h"
#include "zero/engine.h"

namespace zinc::plan {

struct PlanOptions {
  int world = 1;
  // Whose plan it is. Absent: of the fullest. All ranks take the same memory, those of a pipeline
  // apart: their shards are equal, and so are the rooms that are sized for what any rank has. Of
  // sequence ranks that exchange keys the first takes most.
  std::optional<int> rank{};
  int64_t seq = 0;  // tokens per sequence, > 0
  // Tokens of the longest sample, at most `seq`, where a batch is as long as its longest sample
  // (train::Config::pad_multiple()). 0: every batch has `seq`. The engine is made for `seq`.
  int64_t longest = 0;
  // The tensors of a batch: those of the data, where it is known. Absent: tokens and labels alone.
  std::optional<data::BatchFields> fields{};
  int num_threads = 1;          // per rank: the CPU kernels' workspaces depend on it
  Device device = kCpu;         // whose kernels and workspaces; its memory is not touched
  std::string backend = "mpi";  // of the communicator: "single", "local", "mpi", "nccl"
  // Samples and client code come on top where they need more than training does. To load a
  // checkpoint never takes more than the steps that follow.
  bool evaluate = true;
  bool save = true;  // as train::Run does: weights at the end, and a checkpoint when told to stop
  // Checkpoints hold frozen weights: train::SaveCheckpointOptions::frozen_from. With tensor ranks
  // they always do.
  bool save_frozen = true;
  int ranks_per_host = 1;              // that share a host; for the time alone
  std::optional<Hardware> hardware{};  // whose times are wanted
  // Bytes that a rank may reserve on the device, for the choice of an offload_step; 0: not known.
  int64_t device_room = 0;
  bool program = false;  // Plan::program is wanted
  // For a search, which asks no more of what does not fit. Asked during the step that is looked at:
  // whether what was taken until then says enough, and the plan ends with that step; may be empty.
  // And bytes of the device, handed out, that a plan ends at, wherever it is.
  std::function<bool(const MemoryReport&)> is_enough{};
  std::optional<int64_t> hopeless_bytes{};
  std::vector<std::string> without_passes{};  // zero::EngineOptions
  // Of a pipeline, those of its ranks that are planned where `rank` is absent; empty: all.
  std::vector<int> pipe_ranks{};
};

// The tensors of the batches that files of records make for the model. `packed`: records share
// rows; ConfigError where the model reads a text whole.
data::BatchFields fields_of(const hub::ModelConfig& model, bool packed);

// Bytes between host memory and device in one step.
struct CopyTraffic {
  int64_t to_device = 0;
  int64_t to_host = 0;
  friend bool operator==(const CopyTraffic&, const CopyTraffic&) = default;
};

// What stays on the device through the micro-batches of a step, apart from what passes need beside
// it: bounds for configurations that share a part of it (plan/fit.h).
struct StandingBytes {
  int64_t weights = 0;      // as the last micro-batch of the step begins
  int64_t states = 0;       // likewise
  int64_t gradients = 0;    // sums of the micro-batches before it, where one came before
  int64_t activations = 0;  // most of a step
};

// What a step moves and lasts.
struct StepFigures {
  int64_t bytes_sent = 0;  // to other ranks
  offload::SwapTraffic swap;
  CopyTraffic copies;
  std::optional<StepTime> time;
};

// One kind of kernel, or of copies of its name, in one step.
struct KernelFigures {
  std::string name;
  WorkKind kind = WorkKind::other;
  WorkPlace place = WorkPlace::device;
  int64_t launches = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t flops = 0;
  std::optional<double> seconds{};  // alone on the machine, where the plan was given the hardware
};

// What one rank takes.
struct RankPlan {
  int rank = 0;
  MemoryReport peaks;                  // `peak` of every tier and label, over the whole run
  MemoryReport at_peak;                // `live` at the moment when the device tier is fullest
  std::string peak_moment;             // what the engine was at then
  StandingBytes standing;              // of the device, in the second step
  comm::PhantomLedger step;            // traffic of one optimizer step, after the first
  offload::SwapTraffic swap;           // of the same step, with the disk
  CopyTraffic copies;                  // likewise
  int64_t kernel_flops = 0;            // of that step: all kernels, recomputation included
  std::vector<KernelFigures> kernels;  // of that step; those that take or move most come first
  std::optional<StepTime> time;        // of that step, where the plan was given the hardware
  std::string no_time;                 // why there is none although it was
  // The first micro-batch of that step, until the next begins, where there are several of them one
  // after the other.
  std::optional<double> pass_seconds;
  int64_t pass_flops = 0;
  // That step with one micro-batch less: where it has four or more, one after the other, and those
  // in its middle do the same.
  std::optional<StepFigures> shorter;
  // False: PlanOptions::is_enough or hopeless_bytes ended the plan, whose peaks are lower bounds;
  // the latter before the step that is looked at was over, of which nothing is known then.
  bool is_whole = true;
  bool has_step = true;
  int64_t device_peak() const { return peaks.at(Tier::device).peak; }
};

struct Plan {
  PlanOptions options;
  RankPlan fullest;  // or options.rank
  // Of a pipeline, where options.rank is absent: one of each of its ranks, in their order; those
  // with the same layers take the same memory.
  std::vector<RankPlan> pipe{};
  int64_t num_parameters = 0;
  int64_t tokens_per_step = 0;  // of all ranks
  double flops_per_step = 0.0;  // model FLOP of one rank: nn::Model::flops_per_token
  std::optional<OffloadChoice> offload_choice{};  // where the configuration leaves it open
  // Absent where there is no time.
  std::optional<double> tokens_per_second() const;
  uint64_t program_hash = 0;
  std::optional<PlannedProgram> program{};  // where the options ask for it
};

// `config` is for options.world ranks; an offload_step that it leaves open is chosen, and the plan
// is that of the choice. Throws what a run would throw: ConfigError, OutOfMemory where the
// configuration limits a tier.
Plan make_plan(const hub::ModelConfigFile& model, const train::Config& config,
               const PlanOptions& options);

// A change of the configuration, as words for a person: `"stage": 2`.
struct PlanChange {
  std::string words;
  int64_t device_peak = 0;
};
// The first of these that takes at most `bytes` on the device tier, cheapest first: higher stages
// below 3, recomputation of every block, stage 3, smaller micro-batches with more accumulation, and
// their combinations. Empty where nothing helps.
std::optional<PlanChange> cheapest_change(const hub::ModelConfigFile& model,
                                          const train::Config& config, const PlanOptions& options,
                                          int64_t bytes);

// For people and for programs.
std::string describe(const Plan& plan);
std::string describe_kernels(const Plan& plan);
std::string json_of(const Plan& plan);

}  // namespace zinc::plan
