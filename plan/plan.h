// plan/plan.h: the bytes, the traffic and the time of a run, before it runs.
//
// A plan is a run: model, engine, loader and trainer are the real ones, on a meta device and among
// phantom ranks, for three steps with a save between them, an evaluation and a last save; with an
// optimizer that sends signs for two before it does and three after that. So the
// plan's peak is the peak that a real run takes from zinc's allocators, to the byte, whichever
// steps are skipped and whenever the run evaluates and saves. Libraries' own memory and the program
// itself do not count. The time of a step comes from the work that the run issues, played through
// at the speeds of a hardware file (plan/playback.h): a model, not a promise. A plan takes time in
// proportion to the model's number of kernels, not to its size or the world's.
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
  // The rank that is planned. Absent: the fullest one. Outside of a pipeline all ranks take the
  // same memory: their shards are equal, and buffers are sized for any rank. Only among sequence
  // ranks that exchange keys the first one takes most.
  std::optional<int> rank{};
  int64_t seq = 0;  // tokens per sequence, > 0
  // Tokens of the longest sample, at most `seq`, where a batch is as long as its longest sample
  // (train::Config::pad_multiple()). 0: every batch has `seq`. The engine is made for `seq`.
  int64_t longest = 0;
  // The tensors of a batch, if the data are known. Absent: tokens and labels only.
  std::optional<data::BatchFields> fields{};
  int num_threads = 1;          // per rank: the CPU kernels' workspaces depend on it
  Device device = kCpu;         // its kernels and workspaces count; its memory is not touched
  std::string backend = "mpi";  // of the communicator: "single", "local", "mpi", "nccl"
  // Samples and client code need memory in addition, where they take more than training. Loading a
  // checkpoint never takes more than the steps that follow.
  bool evaluate = true;
  bool save = true;  // as train::Run does: weights at the end, and a checkpoint when told to stop
  // Checkpoints hold frozen weights: train::SaveCheckpointOptions::frozen_from. With tensor ranks
  // they always do.
  bool save_frozen = true;
  int ranks_per_host = 1;              // ranks that share a host; matters for the time alone
  std::optional<Hardware> hardware{};  // the machine whose times are wanted
  // Bytes that a rank may reserve on the device, for the choice of an offload_step; 0: not known.
  int64_t device_room = 0;
  bool program = false;  // Plan::program is wanted
  // For a search, which needs less of a plan that does not fit. is_enough is asked during the
  // measured step, with the memory taken so far; if it returns true the plan ends with that step.
  // May be empty. hopeless_bytes: the plan ends wherever it is when this many bytes of the device
  // are handed out.
  std::function<bool(const MemoryReport&)> is_enough{};
  std::optional<int64_t> hopeless_bytes{};
  std::vector<std::string> without_rewrites{};  // zero::EngineOptions
  // In a pipeline, the ranks that are planned if `rank` is absent; empty: all.
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

// Bytes that stay on the device through the micro-batches of a step, without the needs of passes:
// bounds for configurations that share a part of it (plan/fit.h).
struct StandingBytes {
  int64_t weights = 0;      // as the last micro-batch of the step begins
  int64_t states = 0;       // likewise
  int64_t gradients = 0;    // sums of the micro-batches before it, where one came before
  int64_t activations = 0;  // most of a step
};

// The traffic and the time of a step.
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

// The plan of one rank.
struct RankPlan {
  int rank = 0;
  MemoryReport peaks;        // `peak` of every tier and label, over the whole run
  MemoryReport at_peak;      // `live` at the moment when the device tier is fullest
  std::string peak_moment;   // the engine's activity at that moment
  StandingBytes standing;    // on the device, in the measured step
  comm::PhantomLedger step;  // traffic of one optimizer step, after those in which anything is new
  // Where gradients travel as signs, in a step: what a rank sends before that.
  int64_t bytes_sent_before_signs = 0;
  offload::SwapTraffic swap;  // of the same step, with the disk
  CopyTraffic copies;         // likewise
  int64_t kernel_flops = 0;   // of the same step: all kernels, recomputation included
  // Kernels of the same step; those that take or move most come first.
  std::vector<KernelFigures> kernels;
  std::optional<StepTime> time;  // of the second step, if the plan was given the hardware
  std::string no_time;           // the reason why there is no time although it was
  // Seconds of the first micro-batch of the second step, until the next begins, where the step has
  // several, one after the other.
  std::optional<double> pass_seconds;
  int64_t pass_flops = 0;
  // The second step with one micro-batch less, if the step has four or more, one after the other,
  // and the middle ones do the same work.
  std::optional<StepFigures> shorter;
  // False: PlanOptions::is_enough or hopeless_bytes ended the plan, whose peaks are lower bounds.
  // hopeless_bytes ends it before the second step is over, whose figures are then unknown.
  bool is_whole = true;
  bool has_step = true;
  int64_t device_peak() const { return peaks.at(Tier::device).peak; }
};

struct Plan {
  PlanOptions options;
  RankPlan fullest;  // or the rank of options.rank
  // In a pipeline, if options.rank is absent: one plan for each rank, in order. Ranks with the same
  // layers take the same memory.
  std::vector<RankPlan> pipe{};
  int64_t num_parameters = 0;
  int64_t tokens_per_step = 0;  // of all ranks
  double flops_per_step = 0.0;  // model FLOP of one rank: nn::Model::flops_per_token
  std::optional<OffloadChoice> offload_choice{};  // if the configuration leaves it open
  // Absent if there is no time.
  std::optional<double> tokens_per_second() const;
  uint64_t program_hash = 0;
  std::optional<PlannedProgram> program{};  // if the options ask for it
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
