#include "plan/fill.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "train/config/key.h"
#include "zero/layout/shard_group.h"

namespace zinc::plan {
namespace {

constexpr int64_t kRatioSteps = 1024;
// Memory is the same from three micro-batches on.
constexpr int64_t kFilledBatches = 4;
constexpr int64_t kLongSegment = 4;  // blocks, of recomputed segments

// A key with the values that it may become: the larger the number, the more memory it takes and
// the shorter the step.
struct Knob {
  std::string path;
  int64_t least = 0;  // takes least memory, where 0 does not yet
  int64_t most = 0;
  int64_t grain = 1;  // smaller differences change nothing
  std::function<void(train::Config&, int64_t)> set;
};

class Filling {
 public:
  Filling(const hub::ModelConfigFile& model, const train::Config& config,
          const PlanOptions& options, const FillLimit& limit)
      : model_(model), config_(config), options_(options), limit_(limit) {
    options_.program = false;
    options_.device_room = limit.device;
    make_knobs();
  }

  MemoryFill run();

 private:
  using Values = std::vector<int64_t>;  // values of the knobs
  struct Bytes {
    int64_t device = 0;
    bool fit = false;
    std::optional<zero::OffloadStep> step{};
  };

  bool is_open(std::string_view path) const {
    return std::ranges::find(config_.open, path) != config_.open.end();
  }
  void make_knobs();
  void add_recomputation(int64_t num_blocks);
  train::Config with(const Values& values) const;
  const Bytes& bytes_of(const Values& values);
  Plan plan(train::Config config, bool whole, bool timed);
  Values least();
  Values fill(const Values& from, const std::vector<size_t>& order);
  std::string words(const train::Config& filled, int64_t device) const;

  const hub::ModelConfigFile& model_;
  const train::Config& config_;
  PlanOptions options_;
  const FillLimit limit_;
  std::vector<Knob> knobs_;
  std::map<Values, Bytes> known_;
  int num_plans_ = 0;
};

void Filling::add_recomputation(int64_t num_blocks) {
  if (num_blocks == 0) return;
  if (config_.engine.recompute.most_blocks) {
    throw ConfigError(str(kCheckpointsKey, " \"auto\" finds ", kRecomputeBlocksKey,
                          ", which is given: leave one of them out"));
  }
  const bool has_segments = config_.engine.recompute.every_blocks > 0;
  int64_t least = 0;  // -1, -2: segments of 2 and of 4 blocks
  for (int64_t blocks = 2; !has_segments && blocks <= kLongSegment; blocks *= 2) {
    if (2 * blocks <= num_blocks) --least;
  }
  knobs_.push_back({.path = kCheckpointsKey,
                    .least = least,
                    .most = num_blocks,
                    .set = [num_blocks, has_segments](train::Config& config, int64_t kept) {
                      zero::RecomputeConfig& recompute = config.engine.recompute;
                      const int64_t every = kept < 0 ? int64_t{1} << -kept : 1;
                      const bool is_off = kept == num_blocks && !has_segments;
                      if (!has_segments)
                        recompute.num_checkpoints = (num_blocks + every - 1) / every;
                      if (kept > 0) recompute.most_blocks = num_blocks - kept;
                      if (is_off) recompute.num_checkpoints = 0, recompute.most_blocks.reset();
                    }});
}

void Filling::make_knobs() {
  const zero::EngineConfig& engine = config_.engine;
  const auto model = hub::make_model(model_);
  if (is_open(kCheckpointsKey)) add_recomputation(model->num_blocks());
  if (is_open(kRatioKey) && engine.zero.offload_optimizer.device == zero::OffloadDevice::cpu) {
    knobs_.push_back(
        {.path = kRatioKey, .most = kRatioSteps, .set = [](train::Config& config, int64_t kept) {
           config.engine.zero.offload_optimizer.ratio =
               1.0 - static_cast<double>(kept) / static_cast<double>(kRatioSteps);
         }});
  }
  if (engine.zero.stage < 3) return;
  model->set_dtype(engine.precision.dtype);
  Knob resident{.path = kResidentKey,
                .grain = std::numeric_limits<int64_t>::max(),
                .set = [](train::Config& config, int64_t bytes) {
                  config.engine.zero.resident_memory = bytes;
                }};
  Knob live{.path = kMaxLiveKey,
            .grain = resident.grain,
            .set = [](train::Config& config, int64_t numel) {
              config.engine.zero.max_live_parameters = numel;
            }};
  for (const zero::ShardGroup& group :
       zero::make_shard_groups(*model, options_.world, engine.zero.param_persistence_threshold)) {
    if (group.gathered_bytes() == 0) continue;
    resident.most += group.gathered_bytes();
    resident.grain = std::min(resident.grain, group.gathered_bytes());
    live.most += group.gathered_numel();
    live.grain = std::min(live.grain, group.gathered_numel());
  }
  if (is_open(kResidentKey) && !engine.cuda_graph) knobs_.push_back(std::move(resident));
  if (is_open(kMaxLiveKey)) knobs_.push_back(std::move(live));
}

train::Config Filling::with(const Values& values) const {
  train::Config config = config_;
  config.open.clear();
  for (size_t i = 0; i < knobs_.size(); ++i) knobs_[i].set(config, values[i]);
  return config;
}

// `whole`: with all micro-batches.
Plan Filling::plan(train::Config config, bool whole, bool timed) {
  config.device_memory_limit.reset();
  const bool vertical = config.engine.pass_order == zero::PassOrder::vertical;
  int64_t& steps = config.engine.batch.accumulation;
  if (!whole && !vertical) steps = std::min(steps, kFilledBatches);
  PlanOptions options = options_;
  if (!timed && !leaves_offload_step_open(config.engine)) options.hardware.reset();
  ++num_plans_;
  return make_plan(model_, config, options);
}

const Filling::Bytes& Filling::bytes_of(const Values& values) {
  const auto found = known_.find(values);
  if (found != known_.end()) return found->second;
  const Plan made = plan(with(values), false, false);
  const MemoryReport& peaks = made.fullest.peaks;
  const auto reserved = [&](Tier tier) { return peaks.reserved[static_cast<size_t>(tier)].peak; };
  Bytes bytes{.device = reserved(Tier::device)};
  if (limit_.one_pool) bytes.device += reserved(Tier::pinned_host);
  bytes.fit = bytes.device <= limit_.device;
  if (made.offload_choice) bytes.step = made.offload_choice->step;
  return known_.emplace(values, bytes).first->second;
}

// The values that take least memory and fit. Longer segments of recomputation are a last resort.
Filling::Values Filling::least() {
  Values values(knobs_.size(), 0);
  const int64_t lowest = knobs_.front().least;
  int64_t nearest = std::numeric_limits<int64_t>::max();
  for (; values[0] >= lowest; --values[0]) {
    const Bytes& bytes = bytes_of(values);
    if (bytes.fit) return values;
    nearest = std::min(nearest, bytes.device);
  }
  throw OutOfMemory(
      str("\"auto\" of ", knobs_.front().path, knobs_.size() > 1 ? " and others" : "",
          " cannot make the run fit: a rank reserves ", nearest, " bytes at least and may ",
          limit_.device, "; zinc plan --fit looks at the other keys, too"),
      nearest, limit_.device);
}

Filling::Values Filling::fill(const Values& from, const std::vector<size_t>& order) {
  Values values = from;
  for (const size_t knob : order) {
    int64_t& value = values[knob];
    const int64_t start = value;
    value = knobs_[knob].most;
    if (bytes_of(values).fit) continue;
    int64_t fits = start;
    int64_t fails = knobs_[knob].most;
    while (fails - fits > knobs_[knob].grain) {
      value = fits + (fails - fits) / 2;
      (bytes_of(values).fit ? fits : fails) = value;
    }
    value = fits;
  }
  return values;
}

std::string Filling::words(const train::Config& filled, int64_t device) const {
  std::string text;
  const auto add = [&](const char* path) {
    const files::json::Value value = train::find_key(path)->setting.get(filled, options_.world);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", path, files::json::write(value));
  };
  for (const Knob& knob : knobs_) {
    add(knob.path.c_str());
    if (knob.path == kCheckpointsKey && filled.engine.recompute.most_blocks)
      add(kRecomputeBlocksKey);
  }
  return fmt::format("\"auto\" fills {:.2f} of {:.2f} MiB: {}",
                     static_cast<double>(device) / 0x1p20,
                     static_cast<double>(limit_.device) / 0x1p20, text);
}

MemoryFill Filling::run() {
  MemoryFill result;
  if (knobs_.empty()) {
    result.config = with({});
    return result;
  }
  const Values from = least();
  std::vector<size_t> order(knobs_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Values best = fill(from, order);
  std::optional<double> shortest;
  std::map<Values, bool> seen;
  if (options_.hardware && knobs_.size() > 1) {
    do {
      const Values values = fill(from, order);
      if (!seen.emplace(values, true).second) continue;
      const std::optional<StepTime> time = plan(with(values), true, true).fullest.time;
      if (!time || (shortest && time->step_seconds >= *shortest)) continue;
      shortest = time->step_seconds;
      best = values;
    } while (std::ranges::next_permutation(order).found);
  }
  const Bytes& bytes = bytes_of(best);
  result.config = with(best);
  if (bytes.step) result.config.engine.offload_step = *bytes.step;
  result.device_bytes = bytes.device;
  result.num_plans = num_plans_;
  result.line = words(result.config, bytes.device);
  return result;
}

}  // namespace

MemoryFill fill_memory(const hub::ModelConfigFile& model, const train::Config& config,
                       const PlanOptions& options, const FillLimit& limit) {
  if (config.open.empty()) return {.config = config};
  require(limit.device > 0, "fill_memory: the limit of the device must be positive, not ",
          limit.device);
  return Filling(model, config, options, limit).run();
}

std::vector<double> filled_values(const train::Config& config) {
  const zero::EngineConfig& engine = config.engine;
  return {static_cast<double>(engine.recompute.num_checkpoints),
          static_cast<double>(engine.recompute.most_blocks.value_or(-1)),
          engine.zero.offload_optimizer.ratio,
          static_cast<double>(engine.zero.resident_memory),
          static_cast<double>(engine.zero.max_live_parameters),
          static_cast<double>(engine.offload_step)};
}

void take_filled_values(std::span<const double> values, train::Config& config) {
  bug_check(values.size() == 6, "fill: ", values.size(), " values instead of 6");
  zero::EngineConfig& engine = config.engine;
  engine.recompute.num_checkpoints = static_cast<int64_t>(values[0]);
  engine.recompute.most_blocks.reset();
  if (values[1] >= 0.0) engine.recompute.most_blocks = static_cast<int64_t>(values[1]);
  engine.zero.offload_optimizer.ratio = values[2];
  engine.zero.resident_memory = static_cast<int64_t>(values[3]);
  engine.zero.max_live_parameters = static_cast<int64_t>(values[4]);
  engine.offload_step = static_cast<zero::OffloadStep>(static_cast<int>(values[5]));
  config.open.clear();
}

}  // namespace zinc::plan
