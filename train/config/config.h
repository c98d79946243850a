// train/config/config.h: a DeepSpeed JSON configuration as typed values.
//
// Files may hold comments (//, #, /* */), trailing commas, integers written as 1e9, and "auto". All
// problems of a file are reported together in one ConfigError, each as file:line:column with the
// line and a caret; unknown keys name the nearest known one. Every key: key.h, docs/config.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "nn/sequence_ranks.h"
#include "zero/engine_config.h"

namespace zinc::train {

// The values of the command line's flags. A flag gives a value to a key that the file leaves out or
// sets to "auto"; a flag that contradicts a fixed value of the file is a problem of the
// configuration.
struct Overrides {
  std::optional<int64_t> micro_batch;       // --batch
  std::optional<int64_t> accumulation;      // --grad-accum
  std::optional<double> lr;                 // --lr
  std::optional<double> weight_decay;       // --weight-decay
  std::optional<int64_t> warmup_steps;      // --warmup-steps
  std::optional<int64_t> total_steps;       // --steps: for a scheduler whose total is "auto"
  std::optional<DType> dtype;               // --dtype
  std::optional<uint64_t> seed;             // --seed
  std::optional<int64_t> hidden_size;       // the model's: for bucket sizes that are "auto"
  std::optional<int64_t> sequence;          // tokens of the longest sequence, --seq
  std::optional<int64_t> save_every;        // --save-every
  std::optional<double> save_minutes;       // --save-minutes
  std::optional<int64_t> save_total_limit;  // --save-total-limit
  std::optional<double> label_smoothing;    // --label-smoothing-factor
};

// Values of "zinc" keys that the file leaves out, where they are not those of a Config{}.
struct RankDefaults {
  std::optional<uint64_t> seed;
  std::optional<int> num_threads;
  std::optional<int64_t> device_memory_limit;
  std::optional<std::chrono::milliseconds> comm_deadline;
};

// tensorboard, csv_monitor
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;  // folder; empty: the run's own
  std::string job_name = "DeepSpeedJobName";
};

// "zinc": {"checkpoint": ...}: docs/checkpoints.md.
struct CheckpointConfig {
  int64_t every = 0;     // steps between checkpoints; 0: not by steps
  double minutes = 0.0;  // between checkpoints; 0: not by time
  int64_t keep = 3;      // the newest; 0: all
  // Written beside training from a copy in host memory; where states are on the device.
  bool asynchronous = true;
  bool required = false;  // a checkpoint that cannot be saved ends the run

  bool has_intervals() const { return every > 0 || minutes > 0.0; }
};

// wandb: an offline run of Weights & Biases in the run's folder.
struct WandbConfig {
  bool enabled = false;
  std::optional<std::string> group;
  std::optional<std::string> team;
  std::string project = "deepspeed";
};

struct Config {
  zero::EngineConfig engine{};
  MonitorConfig tensorboard{};
  MonitorConfig csv_monitor{};
  WandbConfig wandb{};
  int64_t steps_per_print = 0;  // steps between printed lines; 0: not given
  bool dump_state = false;
  // --- zinc's own, under "zinc"
  uint64_t seed = 1234;
  int num_threads = 0;                         // per rank; 0: the processors of the rank
  std::optional<int64_t> device_memory_limit;  // bytes of the device tier
  std::chrono::milliseconds comm_deadline{10 * 60 * 1000};  // for one collective
  comm::Mesh mesh{};
  // Ranks of a world that see different batches.
  int64_t data_ranks(int64_t world_size) const { return world_size / mesh.ranks_per_batch(); }
  // Tokens: a batch of samples of unequal length is as long as its longest one, rounded up to a
  // multiple of this. 0: as long as any of the run, as CUDA graphs need it.
  int64_t pad_multiple() const {
    constexpr int64_t kTokens = 8;
    if (engine.cuda_graph) return 0;
    // Ranks that share a sequence have equal parts of it.
    return std::lcm(kTokens, nn::parts_of_sequence(engine.sequence_exchange, mesh.sequence));
  }
  // How the ranks of a pipeline work on the micro-batches of a step.
  parallel::PipelineShape pipeline_shape() const {
    return {.schedule = engine.pipeline.schedule,
            .ranks = mesh.pipe,
            .micro_batches = engine.batch.accumulation,
            .parts = engine.pipeline.interleave};
  }

  std::string trace;  // file of the trace; empty: none
  CheckpointConfig checkpoint{};
  // Whether due checkpoints are written beside training. A rank then keeps a copy of the weights
  // and states on the device in host memory, from the first checkpoint on.
  bool saves_beside() const {
    const zero::OffloadConfig& states = engine.zero.offload_optimizer;
    const bool is_split = states.device == zero::OffloadDevice::cpu && states.ratio < 1.0;
    return checkpoint.asynchronous && checkpoint.has_intervals() && !is_split;
  }

  // Paths of keys that are "auto" and whose values follow from the device's memory; the members
  // have their defaults until plan/fill.h finds the values. A run does not begin while a key is
  // open.
  std::vector<std::string> open{};
  // Lines for the user: deprecated names, keys without an effect, values that "auto" became.
  std::vector<std::string> notices{};
};

// Throws IoError where the file cannot be read, ConfigError where it is wrong or absent.
Config load_config(const std::string& path, int64_t world_size, const Overrides& flags = {},
                   const RankDefaults& defaults = {});
// `name` stands in messages.
Config parse_config(std::string text, std::string name, int64_t world_size,
                    const Overrides& flags = {}, const RankDefaults& defaults = {});

// The configuration as a file that loads to the same values: every key that counts.
std::string resolved_json(const Config& config, int64_t world_size);
// Throws ConfigError that names the keys in Config::open, unless there are none.
void require_filled(const Config& config);
// A hash that ranks compare to know that they train with the same settings: it differs if any key
// differs.
uint64_t fingerprint_of(const Config& config, int64_t world_size);

}  // namespace zinc::train
