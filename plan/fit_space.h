// plan/fit_space.h: the configurations among which plan/fit.h searches.
//
// A candidate has a mesh of ranks, a micro-batch, an order of micro-batches, a ZeRO stage, and of
// each kind of saving a level: 0 saves nothing and is the fastest, each further level leaves less
// on the device and costs time. Keys that the user's file gives stay as they are: levels that
// contradict one of them are left out, and levels that differ in such keys alone are one.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "files/json/value.h"
#include "hub/model_config.h"
#include "parallel/pipeline.h"
#include "train/config/config.h"

namespace zinc::plan {

// recompute: none, results of norms and activations (selective_recompute), every block, segments of
//            2 and of 4 (number_checkpoints)
// inputs:    of recomputed blocks on the device, in host memory, on NVMe (activation_offload)
// states:    on the device, half in host memory, all, on NVMe, gradients there too
//            (offload_optimizer, gradient_offload; stages 1 to 3)
// weights:   on the device, in host memory, on NVMe (offload_param; stage 3)
// residency: all weights stay gathered through a step, through a micro-batch, a half of them, a
//            quarter, three blocks, those in use (zinc.resident_memory,
//            stage3_max_live_parameters, stage3_max_reuse_distance; stage 3)
// buffers:   large and overlapped, smaller, small and in turn
//            (reduce_bucket_size, allgather_bucket_size, overlap_comm, sub_group_size)
// moments:   f32, bf16 (zinc.moments; only where the file has "auto" there, because results
// change).
//            bf16 may even be faster; it counts as a saving all the same
enum class Saving : uint8_t { recompute, inputs, states, weights, residency, buffers, moments };
inline constexpr int kNumSavings = 7;
inline constexpr int kLastStage = 3;      // ZeRO stage
std::string_view name_of(Saving saving);  // "recompute", ...

// In which order the passes of a step's micro-batches are made.
struct FitOrder {
  bool vertical = false;  // zinc.schedule
  // For a pipeline (zinc.pipeline_schedule, zinc.pipeline_interleave).
  parallel::PipelineSchedule schedule = parallel::PipelineSchedule::one_forward_one_backward;
  int parts = 1;
  friend auto operator<=>(const FitOrder&, const FitOrder&) = default;
};

struct FitCandidate {
  int tensor = 1, sequence = 1, pipe = 1;  // ranks of the mesh's axes
  int64_t micro_batch = 1;
  int64_t accumulation = 1;
  FitOrder order{};
  int stage = 0;
  std::array<int, kNumSavings> level{};
  // Between two levels, where the search filled memory up: of offload_optimizer.ratio,
  // stage3_max_live_parameters, zinc.resident_memory and zinc.recompute_blocks, behind which
  // selective_recompute serves the other blocks.
  std::optional<double> ratio{};
  std::optional<int64_t> max_live{};
  std::optional<int64_t> resident{};
  std::optional<int64_t> recomputed{};

  int at(Saving saving) const { return level[static_cast<size_t>(saving)]; }
  int& at(Saving saving) { return level[static_cast<size_t>(saving)]; }
  comm::Mesh mesh() const { return {.tensor = tensor, .pipe = pipe, .sequence = sequence}; }
  // How the ranks of the candidate's pipeline work on its micro-batches.
  parallel::PipelineShape pipeline() const {
    return {.schedule = order.schedule,
            .ranks = pipe,
            .micro_batches = accumulation,
            .parts = order.parts};
  }
  bool splits_backward() const {
    return pipe > 1 && order.schedule == parallel::PipelineSchedule::zero_bubble;
  }
  bool is_flat() const { return mesh().is_flat(); }
  friend auto operator<=>(const FitCandidate&, const FitCandidate&) = default;
};

struct FitSpaceOptions {
  int world = 1;
  int ranks_per_host = 1;     // tensor groups stay on a host
  bool meshes = false;        // true: meshes with several ranks; false: only the mesh of the file
  int64_t global_batch = 0;   // sequences of a step over all ranks
  bool host = false;          // host memory may be used for offload
  std::string nvme_path{};    // a directory; empty: no NVMe
  std::string config = "{}";  // the user's file as text: DeepSpeed's JSON
  std::string config_name = "the configuration";
  train::Overrides flags{};
};

class FitSpace {
 public:
  // Throws ConfigError: where the world does not divide the global batch, where keys and flags that
  // are fixed contradict it, and as load_config() does where no candidate is left for the others.
  FitSpace(const hub::ModelConfigFile& model, FitSpaceOptions options);

  // One for each mesh, micro-batch, order and stage, with nothing saved; flat meshes, smaller
  // micro-batches and higher stages first. A pipeline has only the first of its orders here: 1F1B,
  // unless the file has another.
  const std::vector<FitCandidate>& roots() const { return roots_; }
  // The candidate in the other orders of its pipeline, if it has the first one. The other orders
  // wait less, do as much work, and keep at least as many activations.
  std::vector<FitCandidate> in_other_orders(const FitCandidate& candidate) const;
  // The candidates with one level more of one kind.
  std::vector<FitCandidate> next(const FitCandidate& candidate) const;
  // The root with the last level of each kind; of `recompute` the level of every block.
  FitCandidate most_saving(FitCandidate root) const;
  bool is_valid(const FitCandidate& candidate) const;
  int num_levels(Saving saving) const { return static_cast<int>(of(saving).size()); }
  // Blocks of a recomputed segment; 0: none is, -1: the file says.
  int64_t blocks_per_segment(int level) const {
    return of(Saving::recompute)[level_at(level)].blocks;
  }
  // The share of the states that stays on the device at this level, at least.
  double states_on_device(int level) const { return of(Saving::states)[level_at(level)].on_device; }
  // The level of recomputing every block, or of none if the file rules that out.
  int every_block_level() const;
  // Leaves out every candidate with this many tensor and sequence ranks.
  void refuse(int tensor, int sequence);
  // Why the world cannot divide the global batch among its ranks.
  std::string undivided() const { return undivided(options_.global_batch, options_.world); }
  int64_t size() const;  // valid candidates
  int64_t num_parameters() const { return num_parameters_; }
  int64_t num_blocks() const { return num_blocks_; }
  // The file or a flag gives the key.
  bool is_fixed(std::string_view path) const { return fixed(path) != nullptr; }

  // The user's file with the candidate's keys: what `zinc train --config` takes.
  files::json::Value file_of(const FitCandidate& candidate) const;
  train::Config config_of(const FitCandidate& candidate) const;
  train::Config config_of(const files::json::Value& file) const;
  // "stage 3, micro-batch 4 x 8, recomputes every block, states in host memory"
  std::string words(const FitCandidate& candidate) const;
  std::string words(Saving saving, int level) const;  // empty at level 0
  const FitSpaceOptions& options() const { return options_; }

 private:
  using Keys = std::vector<std::pair<std::string, files::json::Value>>;
  struct Level {
    std::string words;
    Keys keys;
    int64_t blocks = 0;      // recompute: of a segment
    double on_device = 0.0;  // states: a share
  };
  static std::string undivided(int64_t batch, int64_t ranks);
  static size_t level_at(int level) { return static_cast<size_t>(level); }
  const std::vector<Level>& of(Saving saving) const { return levels_[static_cast<size_t>(saving)]; }
  void read_fixed(std::string_view block, const files::json::Object& object);
  const files::json::Value* fixed(std::string_view path) const;
  bool allows(std::string_view path, const files::json::Value& value) const;
  void add_levels(Saving saving, std::vector<Level> levels);
  void make_levels(int64_t num_blocks);
  // False where no rule of the configuration goes with moments in bf16.
  bool may_narrow_moments() const;
  void make_roots();
  void make_roots(const comm::Mesh& mesh);
  std::vector<comm::Mesh> make_meshes() const;
  std::vector<FitOrder> orders_of(int pipe, int64_t micro_batches) const;
  int64_t fixed_extent(const char* path) const;
  void check_some_candidate() const;
  int64_t settle_global_batch() const;

  FitSpaceOptions options_;
  files::json::Value root_;
  std::map<std::string, files::json::Value, std::less<>> fixed_;
  int64_t num_parameters_ = 0;
  int64_t num_blocks_ = 0;
  bool has_stages_ = false;  // a pipeline can have the model
  std::array<std::vector<Level>, kNumSavings> levels_;
  std::vector<FitCandidate> roots_;
};

// `root` with the key at `path`, "zero_optimization.stage"; blocks on the way are made.
files::json::Value with_key(const files::json::Value& root, std::string_view path,
                            const files::json::Value& value);

}  // namespace zinc::plan
