#include "plan/fit_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "nn/stages.h"
#include "plan/fill.h"
#include "train/config/key.h"

namespace zinc::plan {
namespace {

constexpr const char* kStage = "zero_optimization.stage";
constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";
constexpr const char* kGlobalBatch = "train_batch_size";
constexpr const char* kSchedule = "zinc.schedule";
constexpr const char* kTensor = "zinc.mesh.tensor";
constexpr const char* kSequence = "zinc.mesh.sequence";
constexpr const char* kPipe = "zinc.mesh.pipe";
constexpr const char* kInterleave = "zinc.pipeline_interleave";
constexpr const char* kPipeOrder = "zinc.pipeline_schedule";
constexpr const char* kMomentsKey = "zinc.moments";
constexpr const char* kSelectiveKey = "zinc.selective_recompute";
// DeepSpeed's names for the mesh.
constexpr std::pair<const char*, const char*> kMeshNames[] = {
    {"tensor_parallel.autotp_size", kTensor},
    {"sequence_parallel_size", kSequence},
    {"pipeline.stages", kPipe}};
constexpr int kMostExtent = 64;  // of an axis that is searched

// Vertical order is planned with all its micro-batches side by side, and keeps an activation of
// each of them.
constexpr int64_t kMostVertical = 16;

constexpr int64_t kMostBytes = 8;  // of a gathered weight, with padding

// A value with which nothing is asked for: written only over another one.
bool is_off(const files::json::Value& value) { return value.is_null() || value.is_string("none"); }

// A value between the levels of a kind, which the file may fix on its own.
bool is_amount(std::string_view path) {
  const train::Key* key = train::find_key(path);
  return key != nullptr &&
         (key->setting.type == train::KeyType::integer ||
          key->setting.type == train::KeyType::number ||
          key->setting.type == train::KeyType::text ||
          key->setting.type == train::KeyType::bytes) &&
         path != kStage;
}

std::string joined(std::string_view block, std::string_view name) {
  return block.empty() ? std::string(name) : str(block, ".", name);
}

const files::json::Value* find_path(const files::json::Value& root, std::string_view path) {
  const size_t dot = path.find('.');
  if (!root.is_object()) return nullptr;
  const files::json::Value* member = root.find(path.substr(0, dot));
  if (member == nullptr || dot == std::string_view::npos) return member;
  return find_path(*member, path.substr(dot + 1));
}

}  // namespace

files::json::Value with_key(const files::json::Value& root, std::string_view path,
                            const files::json::Value& value) {
  files::json::Object object = root.is_object() ? root.as_object() : files::json::Object();
  const size_t dot = path.find('.');
  const std::string_view name = path.substr(0, dot);
  if (dot == std::string_view::npos) {
    object.set(name, value);
  } else {
    const files::json::Value* inner = object.find(name);
    object.set(name, with_key(inner == nullptr ? files::json::Value() : *inner,
                              path.substr(dot + 1), value));
  }
  return object;
}

std::string_view name_of(Saving saving) {
  constexpr std::array<std::string_view, kNumSavings> kNames{
      "recompute", "inputs", "states", "weights", "residency", "buffers", "moments"};
  return kNames[static_cast<size_t>(saving)];
}

FitSpace::FitSpace(const hub::ModelConfigFile& model, FitSpaceOptions options)
    : options_(std::move(options)) {
  try {
    root_ = files::json::parse(options_.config, options_.config_name,
                               files::json::ParseOptions::config());
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
  if (!root_.is_object()) {
    throw ConfigError(str(options_.config_name, ": a configuration must be a JSON object"));
  }
  if (const files::json::Value* old = root_.find("zero_optimization");
      old != nullptr && old->is_bool()) {
    root_ = with_key(root_, kStage, old->as_bool() ? 1 : 0);
  }
  read_fixed("", root_.as_object());
  for (const auto& [name, key] : kMeshNames) {
    const auto given = fixed_.find(name);
    if (given != fixed_.end() && fixed(key) == nullptr) fixed_[key] = given->second;
  }
  if (options_.flags.micro_batch) fixed_[kMicroBatch] = *options_.flags.micro_batch;
  if (options_.flags.accumulation) fixed_[kAccumulation] = *options_.flags.accumulation;
  const auto made = hub::make_model(model);
  num_parameters_ = made->num_parameters();
  num_blocks_ = made->num_blocks();
  has_stages_ = nn::find_interface<nn::Staged>(*made) != nullptr;
  options_.global_batch = settle_global_batch();
  make_levels(num_blocks_);
  make_roots();
  if (!roots_.empty() && !may_narrow_moments())
    levels_[static_cast<size_t>(Saving::moments)] = {{}};
  check_some_candidate();
}

// Reads the keys that the file fixes, under their present names.
void FitSpace::read_fixed(std::string_view block, const files::json::Object& object) {
  for (const files::json::Member& member : object) {
    std::string path = joined(block, member.key);
    const train::Key* key = train::find_key(path);
    if (key == nullptr || member.value.is_null() || member.value.is_string("auto")) continue;
    const bool was_flag = key->setting.type == train::KeyType::boolean;
    if (!key->stands_for.empty()) {
      key = train::find_key(key->stands_for);
      path = key->path;
    }
    if (!key->is_block()) {
      fixed_[path] = member.value;
    } else if (member.value.is_object()) {
      read_fixed(path, member.value.as_object());
    } else if (was_flag && member.value.is_bool()) {  // cpu_offload
      fixed_[path + ".device"] = member.value.as_bool() ? "cpu" : "none";
    }
  }
}

const files::json::Value* FitSpace::fixed(std::string_view path) const {
  const auto found = fixed_.find(path);
  return found == fixed_.end() ? nullptr : &found->second;
}

bool FitSpace::allows(std::string_view path, const files::json::Value& value) const {
  const files::json::Value* given = fixed(path);
  if (given == nullptr) return true;
  return value.is_null() ? is_off(*given) : *given == value;
}

// The extent of an axis that the file fixes; 1 if the file leaves it open.
int64_t FitSpace::fixed_extent(const char* path) const {
  const files::json::Value* given = fixed(path);
  if (given == nullptr || !given->is_integer()) return 1;
  return std::max<int64_t>(given->as_int64(), 1);
}

std::string FitSpace::undivided(int64_t batch, int64_t ranks) {
  const int64_t below = batch / ranks * ranks;
  const std::string nearest =
      below == 0 ? str(ranks) : str(batch - below <= below + ranks - batch ? below : below + ranks);
  return str("a global batch of ", batch, " sequences cannot be divided among ", ranks,
             " ranks; the nearest that can: ", nearest);
}

int64_t FitSpace::settle_global_batch() const {
  const auto given = [&](std::string_view path) -> int64_t {
    const files::json::Value* value = fixed(path);
    if (value == nullptr) return 0;
    if (!value->is_integer() || value->as_int64() < 1) {
      throw ConfigError(str(path, " must be a positive integer, not ", files::json::write(*value)));
    }
    return value->as_int64();
  };
  const int64_t total = given(kGlobalBatch);
  const int64_t micro = given(kMicroBatch);
  const int64_t steps = given(kAccumulation);
  // The ranks that see the same batches, if the file fixes them.
  const int64_t together = fixed_extent(kTensor) * fixed_extent(kSequence) * fixed_extent(kPipe);
  const bool is_open = options_.meshes && (fixed(kTensor) == nullptr ||
                                           fixed(kSequence) == nullptr || fixed(kPipe) == nullptr);
  if (options_.world % together != 0) {
    comm::Mesh mesh{.tensor = static_cast<int>(fixed_extent(kTensor)),
                    .pipe = static_cast<int>(fixed_extent(kPipe)),
                    .sequence = static_cast<int>(fixed_extent(kSequence))};
    mesh.require_fit(options_.world);
  }
  const int64_t ranks = options_.world / together;
  int64_t batch = options_.global_batch;
  if (batch > 0 && total > 0 && batch != total) {
    throw ConfigError(str("--global-batch ", batch, " contradicts train_batch_size ", total, " of ",
                          options_.config_name));
  }
  if (batch == 0) batch = total;
  if (batch == 0 && micro > 0 && steps > 0) batch = micro * steps * ranks;
  if (batch == 0) {
    throw ConfigError(
        "the global batch is open: give --global-batch, or train_batch_size in the configuration");
  }
  if (is_open) return batch;  // some of the meshes divide it, or none: make_roots()
  if (batch % ranks != 0) throw ConfigError(undivided(batch, ranks));
  const int64_t share = batch / ranks;
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(str(what, " contradicts a global batch of ", batch, " sequences: ", share,
                          " for each of ", ranks, " ranks"));
  };
  if (micro > 0 && steps > 0 && micro * steps != share) {
    refuse(str(kMicroBatch, " ", micro, " x ", kAccumulation, " ", steps));
  }
  if (micro > 0 && share % micro != 0) refuse(str(kMicroBatch, " ", micro));
  if (steps > 0 && share % steps != 0) refuse(str(kAccumulation, " ", steps));
  return batch;
}

void FitSpace::add_levels(Saving saving, std::vector<Level> levels) {
  std::vector<Level>& kept = levels_[static_cast<size_t>(saving)];
  for (Level& level : levels) {
    bool is_allowed = true;
    Keys keys;
    for (auto& [path, value] : level.keys) {
      if (allows(path, value)) {
        if (fixed(path) == nullptr) keys.emplace_back(path, value);
      } else {
        is_allowed = is_allowed && is_amount(path);
      }
    }
    if (!is_allowed) continue;
    level.keys = std::move(keys);
    const bool is_new =
        std::ranges::none_of(kept, [&](const Level& other) { return other.keys == level.keys; });
    if (is_new) kept.push_back(std::move(level));
  }
  if (kept.empty()) kept.push_back({});  // the file's own values
}

void FitSpace::make_levels(int64_t num_blocks) {
  const bool host = options_.host;
  const bool disk = !options_.nvme_path.empty();
  const files::json::Value path = options_.nvme_path;
  const std::string zero = "zero_optimization.";

  const std::string count = "activation_checkpointing.number_checkpoints";
  std::vector<Level> recompute{
      {"", {{count, nullptr}}},
      {"recomputes norms and activations", {{count, nullptr}, {kSelectiveKey, true}}}};
  for (const int64_t blocks : {1, 2, 4}) {
    if (blocks > 1 && 2 * blocks > num_blocks) break;
    recompute.push_back({.words = blocks == 1
                                      ? "recomputes every block"
                                      : fmt::format("recomputes segments of {} blocks", blocks),
                         .keys = {{count, (num_blocks + blocks - 1) / blocks}},
                         .blocks = blocks});
  }
  if (fixed("zinc.recompute_every_blocks") != nullptr || num_blocks == 0) recompute = {{}};
  if (fixed("zinc.recompute_every_blocks") != nullptr || fixed(count) != nullptr) {
    for (Level& level : recompute) level.blocks = -1;
  }
  add_levels(Saving::recompute, std::move(recompute));

  const std::string inputs = "zinc.activation_offload.";
  std::vector<Level> saved{{"", {{inputs + "device", "none"}}}};
  if (host) saved.push_back({"saved inputs in host memory", {{inputs + "device", "cpu"}}});
  if (disk) {
    saved.push_back(
        {"saved inputs on NVMe", {{inputs + "device", "nvme"}, {inputs + "nvme_path", path}}});
  }
  if (fixed("activation_checkpointing.cpu_checkpointing") != nullptr) saved = {{}};
  add_levels(Saving::inputs, std::move(saved));

  const std::string of_states = zero + "offload_optimizer.";
  const std::string gradients = "zinc.gradient_offload";
  std::vector<Level> states{{.keys = {{of_states + "device", "none"}}, .on_device = 1.0}};
  if (host) {
    states.push_back({.words = "half of the states in host memory",
                      .keys = {{of_states + "device", "cpu"}, {kRatioKey, 0.5}},
                      .on_device = fixed(kRatioKey) == nullptr ? 0.5 : 0.0});
    states.push_back({"states in host memory", {{of_states + "device", "cpu"}, {kRatioKey, 1}}});
  }
  if (disk) {
    const Keys on_nvme{{of_states + "device", "nvme"},
                       {of_states + "nvme_path", path},
                       {of_states + "pipeline_read", true},
                       {of_states + "pipeline_write", true}};
    states.push_back({"states on NVMe", on_nvme});
    states.push_back({"states and gradients on NVMe", on_nvme});
    states.back().keys.emplace_back(gradients, "nvme");
  }
  add_levels(Saving::states, std::move(states));

  const std::string of_weights = zero + "offload_param.";
  std::vector<Level> weights{{"", {{of_weights + "device", "none"}}}};
  if (host) weights.push_back({"weights in host memory", {{of_weights + "device", "cpu"}}});
  if (disk) {
    weights.push_back({"weights on NVMe",
                       {{of_weights + "device", "nvme"},
                        {of_weights + "nvme_path", path},
                        {of_weights + "max_in_cpu", 0}}});
  }
  add_levels(Saving::weights, std::move(weights));

  const int64_t all = num_parameters_;
  const int64_t three = 3 * all / std::max<int64_t>(num_blocks, 1);
  std::vector<Level> residency;
  const auto stay = [&](std::string words, int64_t numel, int64_t bytes = 0) {
    residency.push_back(
        {std::move(words),
         {{kMaxLiveKey, numel}, {zero + "stage3_max_reuse_distance", all}, {kResidentKey, bytes}}});
  };
  stay("", all, kMostBytes * all);
  stay("weights gathered once per micro-batch", all);
  stay("half of the weights gathered", all / 2);
  stay("a quarter of the weights gathered", all / 4);
  if (three < all / 4) stay("three blocks gathered", three);
  stay("the weights in use gathered", 0);
  add_levels(Saving::residency, std::move(residency));

  const auto buffers = [&](std::string words, bool overlap, int64_t bucket, int64_t tile) {
    return Level{std::move(words),
                 {{zero + "overlap_comm", overlap},
                  {zero + "reduce_bucket_size", bucket},
                  {zero + "allgather_bucket_size", bucket},
                  {zero + "sub_group_size", tile}}};
  };
  const int64_t part = std::max<int64_t>(all / options_.world, 1);
  const auto tile = [&](int64_t divisor, int64_t most) {
    return std::clamp<int64_t>(part / divisor, 4096, most);
  };
  const auto bucket = [&](int64_t divisor, int64_t most) {
    return std::clamp<int64_t>(all / divisor, 1024, most);
  };
  add_levels(Saving::moments,
             {{"", {{kMomentsKey, "f32"}}}, {"moments in bf16", {{kMomentsKey, "bf16"}}}});
  add_levels(Saving::buffers,
             {buffers("", true, 500'000'000, tile(8, int64_t{1} << 24)),
              buffers("smaller buffers", true, bucket(8, 50'000'000), tile(16, int64_t{1} << 23)),
              buffers("small buffers, no overlap", false, bucket(64, 5'000'000),
                      tile(64, int64_t{1} << 22))});
}

bool FitSpace::may_narrow_moments() const {
  const files::json::Value* given = find_path(root_, kMomentsKey);
  if (given == nullptr || !given->is_string("auto")) return false;
  try {
    FitCandidate candidate = roots_.front();
    candidate.at(Saving::moments) = 1;
    static_cast<void>(config_of(candidate));
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

// The extents that divide the world, from 1; or the file's own.
std::vector<comm::Mesh> FitSpace::make_meshes() const {
  const auto extents = [&](const char* path, int most) {
    std::vector<int> found;
    for (int extent = 1; extent <= std::min(options_.world, most); ++extent) {
      const bool is_given = fixed(path) != nullptr;
      const bool is_wanted =
          is_given ? extent == fixed_extent(path) : extent == 1 || options_.meshes;
      if (is_wanted && options_.world % extent == 0) found.push_back(extent);
    }
    return found;
  };
  const int on_host = std::max(options_.ranks_per_host, 1);
  const int64_t most_pipe = has_stages_ ? std::clamp<int64_t>(num_blocks_, 1, kMostExtent) : 1;
  const bool is_given = fixed(kTensor) != nullptr;
  std::vector<comm::Mesh> meshes;
  for (const int tensor :
       extents(kTensor, is_given ? options_.world : std::min(on_host, kMostExtent))) {
    for (const int sequence : extents(kSequence, fixed(kSequence) ? options_.world : kMostExtent)) {
      for (const int pipe :
           extents(kPipe, fixed(kPipe) ? options_.world : static_cast<int>(most_pipe))) {
        const comm::Mesh mesh{.tensor = tensor, .pipe = pipe, .sequence = sequence};
        if (options_.world % mesh.ranks_per_batch() == 0) meshes.push_back(mesh);
      }
    }
  }
  return meshes;
}

void FitSpace::make_roots() {
  for (const comm::Mesh& mesh : make_meshes()) make_roots(mesh);
  if (roots_.empty() && options_.global_batch % options_.world != 0) {
    throw ConfigError(undivided());
  }
}

void FitSpace::make_roots(const comm::Mesh& mesh) {
  const int64_t data = options_.world / mesh.ranks_per_batch();
  if (options_.global_batch % data != 0) return;
  const int64_t share = options_.global_batch / data;
  for (int64_t micro = 1; micro <= share; ++micro) {
    if (share % micro != 0) continue;
    const int64_t steps = share / micro;
    if (!allows(kMicroBatch, micro) || !allows(kAccumulation, steps)) continue;
    std::vector<FitOrder> orders = orders_of(mesh.pipe, steps);
    if (mesh.pipe > 1 && !orders.empty()) orders.resize(1);
    for (const FitOrder& order : orders) {
      for (int stage = kLastStage; stage >= 0; --stage) {
        if (!allows(kStage, stage)) continue;
        const bool is_asked = fixed(kSchedule) != nullptr;
        if (order.vertical && !is_asked && (stage < 2 || steps == 1 || steps > kMostVertical)) {
          continue;
        }
        if (mesh.pipe > 1 && stage > 2) continue;
        roots_.push_back({.tensor = mesh.tensor,
                          .sequence = mesh.sequence,
                          .pipe = mesh.pipe,
                          .micro_batch = micro,
                          .accumulation = steps,
                          .order = order,
                          .stage = stage});
      }
    }
  }
}

// The orders of a mesh. GPipe's order keeps more than 1F1B's and waits as long: it counts only if
// the file has it.
std::vector<FitOrder> FitSpace::orders_of(int pipe, int64_t micro_batches) const {
  using parallel::PipelineSchedule;
  std::vector<FitOrder> orders;
  const bool has_parts = fixed(kInterleave) != nullptr;
  const auto given = static_cast<int>(fixed_extent(kInterleave));
  if (pipe == 1) {
    for (const bool vertical : {false, true}) {
      const bool is_allowed = allows(kSchedule, vertical ? "vertical" : "horizontal");
      if (is_allowed && given == 1) orders.push_back({.vertical = vertical});
    }
    return orders;
  }
  if (!allows(kSchedule, "horizontal")) return orders;
  for (const auto schedule : {PipelineSchedule::one_forward_one_backward,
                              PipelineSchedule::zero_bubble, PipelineSchedule::gpipe}) {
    const bool is_open = fixed(kPipeOrder) == nullptr && schedule != PipelineSchedule::gpipe;
    if (!is_open &&
        (fixed(kPipeOrder) == nullptr || !allows(kPipeOrder, std::string(name_of(schedule))))) {
      continue;
    }
    for (const int parts : has_parts ? std::vector<int>{given} : std::vector<int>{1, 2, 4}) {
      const bool deals_out = schedule == PipelineSchedule::one_forward_one_backward &&
                             micro_batches % pipe == 0 && num_blocks_ >= int64_t{pipe} * parts;
      if (parts == 1 || deals_out) orders.push_back({.schedule = schedule, .parts = parts});
    }
  }
  return orders;
}

std::vector<FitCandidate> FitSpace::in_other_orders(const FitCandidate& c) const {
  std::vector<FitCandidate> found;
  if (c.pipe == 1) return found;
  const std::vector<FitOrder> orders = orders_of(c.pipe, c.accumulation);
  if (orders.empty() || c.order != orders.front()) return found;
  for (size_t i = 1; i < orders.size(); ++i) {
    found.push_back(c);
    found.back().order = orders[i];
    if (!is_valid(found.back())) found.pop_back();
  }
  return found;
}

// If the file itself is wrong, the error is that of the file as it was written, so that its lines
// are right.
void FitSpace::check_some_candidate() const {
  std::string problem = str("no stage, order and micro-batch agree with ", options_.config_name);
  for (const FitCandidate& root : roots_) {
    FitCandidate hosted = most_saving(root);
    if (hosted.at(Saving::states) > 0) hosted.at(Saving::states) = 1;
    for (const FitCandidate& candidate : {root, most_saving(root), hosted}) {
      try {
        static_cast<void>(config_of(candidate));
        return;
      } catch (const ConfigError& error) {
        problem = error.what();
      }
    }
  }
  if (!roots_.empty()) {
    train::Overrides flags = options_.flags;
    if (fixed(kMicroBatch) == nullptr) flags.micro_batch = roots_.front().micro_batch;
    if (fixed(kAccumulation) == nullptr) flags.accumulation = roots_.front().accumulation;
    train::parse_config(options_.config, options_.config_name, options_.world, flags);
  }
  throw ConfigError(problem);
}

bool FitSpace::is_valid(const FitCandidate& c) const {
  const auto has = [&](Saving saving) { return c.at(saving) > 0; };
  const bool recomputes = blocks_per_segment(c.at(Saving::recompute)) != 0;
  if (has(Saving::inputs) && !recomputes) return false;
  if (has(Saving::inputs) && c.pipe > 1) return false;
  if (recomputes && c.splits_backward()) return false;
  if (has(Saving::states) && c.stage == 0) return false;
  if ((has(Saving::weights) || has(Saving::residency)) && c.stage < 3) return false;
  return true;
}

std::vector<FitCandidate> FitSpace::next(const FitCandidate& candidate) const {
  std::vector<FitCandidate> found;
  for (int s = 0; s < kNumSavings; ++s) {
    FitCandidate one = candidate;
    int& level = one.level[static_cast<size_t>(s)];
    if (++level < num_levels(static_cast<Saving>(s)) && is_valid(one)) found.push_back(one);
  }
  return found;
}

FitCandidate FitSpace::most_saving(FitCandidate root) const {
  for (int s = 0; s < kNumSavings; ++s) {
    const auto saving = static_cast<Saving>(s);
    const int last = num_levels(saving) - 1;
    root.at(saving) = saving == Saving::recompute ? every_block_level() : last;
    if (!is_valid(root)) root.at(saving) = 0;
  }
  return root;
}

int FitSpace::every_block_level() const {
  for (int level = 0; level < num_levels(Saving::recompute); ++level) {
    if (blocks_per_segment(level) != 0) return level;
  }
  return num_levels(Saving::recompute) - 1;
}

void FitSpace::refuse(int tensor, int sequence) {
  std::erase_if(roots_, [&](const FitCandidate& root) {
    return root.tensor == tensor && root.sequence == sequence;
  });
}

// The valid candidates depend on the stage, on whether there is a pipeline, and on its order.
int64_t FitSpace::size() const {
  int64_t count = 0;
  std::map<std::tuple<int, bool, bool>, int64_t> known;
  const auto num_below = [&](const FitCandidate& root) {
    int64_t& number = known[{root.stage, root.pipe > 1, root.splits_backward()}];
    if (number > 0) return number;
    std::vector<FitCandidate> rows{root};
    for (int s = 0; s < kNumSavings; ++s) {
      std::vector<FitCandidate> longer;
      for (const FitCandidate& row : rows) {
        for (int level = 0; level < num_levels(static_cast<Saving>(s)); ++level) {
          longer.push_back(row);
          longer.back().level[static_cast<size_t>(s)] = level;
          if (!is_valid(longer.back())) longer.pop_back();
        }
      }
      rows = std::move(longer);
    }
    return number = static_cast<int64_t>(rows.size());
  };
  for (const FitCandidate& root : roots_) {
    count += num_below(root);
    for (const FitCandidate& other : in_other_orders(root)) count += num_below(other);
  }
  return count;
}

files::json::Value FitSpace::file_of(const FitCandidate& c) const {
  files::json::Value file = root_;
  const auto set = [&](std::string_view path, const files::json::Value& value) {
    if (fixed(path) != nullptr && path != kGlobalBatch) return;
    if (is_off(value) && find_path(file, path) == nullptr) return;
    file = with_key(file, path, value);
  };
  set(kGlobalBatch, options_.global_batch);
  set(kMicroBatch, c.micro_batch);
  set(kAccumulation, c.accumulation);
  if (options_.flags.micro_batch) file = with_key(file, kMicroBatch, c.micro_batch);
  if (options_.flags.accumulation) file = with_key(file, kAccumulation, c.accumulation);
  const bool has_dtype = find_path(file, "bf16") != nullptr || find_path(file, "fp16") != nullptr ||
                         find_path(file, "bfloat16") != nullptr;
  if (const std::optional<DType> dtype = options_.flags.dtype;
      dtype && !has_dtype && *dtype != DType::f32) {
    file = with_key(file, *dtype == DType::bf16 ? "bf16.enabled" : "fp16.enabled", true);
  }
  const auto set_extent = [&](const char* path, int extent) {
    if (extent > 1) set(path, extent);
  };
  set_extent(kTensor, c.tensor);
  set_extent(kSequence, c.sequence);
  set_extent(kPipe, c.pipe);
  set(kStage, c.stage);
  if (c.order.vertical) set(kSchedule, "vertical");
  if (c.order.schedule != FitOrder{}.schedule) {
    set(kPipeOrder, std::string(name_of(c.order.schedule)));
  }
  set_extent(kInterleave, c.order.parts);
  for (int s = 0; s < kNumSavings; ++s) {
    const auto saving = static_cast<Saving>(s);
    if (saving == Saving::residency && c.stage < 3) continue;
    for (const auto& [path, value] : of(saving)[static_cast<size_t>(c.at(saving))].keys) {
      const bool is_tile = path.ends_with("sub_group_size");
      if (is_tile && c.at(Saving::states) == 0) continue;
      set(path, value);
    }
  }
  if (c.ratio) set(kRatioKey, *c.ratio);
  if (c.max_live) set(kMaxLiveKey, *c.max_live);
  if (c.resident) set(kResidentKey, *c.resident);
  if (c.recomputed) {
    set(kRecomputeBlocksKey, *c.recomputed);
    set(kSelectiveKey, true);
  }
  for (const char* path : {kCheckpointsKey, kRatioKey, kResidentKey, kMaxLiveKey}) {
    const files::json::Value* open = find_path(file, path);
    if (open != nullptr && open->is_string("auto")) file = with_key(file, path, nullptr);
  }
  return file;
}

train::Config FitSpace::config_of(const FitCandidate& candidate) const {
  return config_of(file_of(candidate));
}

train::Config FitSpace::config_of(const files::json::Value& file) const {
  train::Config config = train::parse_config(files::json::write(file), options_.config_name,
                                             options_.world, options_.flags);
  config.open.clear();
  return config;
}

std::string FitSpace::words(Saving saving, int level) const {
  return of(saving)[static_cast<size_t>(level)].words;
}

std::string FitSpace::words(const FitCandidate& c) const {
  std::string text;
  if (!c.is_flat()) {
    const auto extent = [&](const char* name, int ranks) {
      if (ranks > 1) text += fmt::format("{}{} {}", text.empty() ? "mesh " : " x ", name, ranks);
    };
    extent("tensor", c.tensor);
    extent("sequence", c.sequence);
    extent("pipe", c.pipe);
    extent("data", options_.world / c.mesh().ranks_per_batch());
    text += ", ";
  }
  text += fmt::format("stage {}, micro-batch {} x {}", c.stage, c.micro_batch, c.accumulation);
  if (c.order.vertical) text += ", vertical";
  if (c.order.schedule != FitOrder{}.schedule) text += str(", ", name_of(c.order.schedule));
  if (c.order.parts > 1) text += str(", ", c.order.parts, " parts a rank");
  for (int s = 0; s < kNumSavings; ++s) {
    const auto saving = static_cast<Saving>(s);
    std::string one = words(saving, c.at(saving));
    if (saving == Saving::states && c.ratio) {
      one = fmt::format("{:.4g} of the states in host memory", *c.ratio);
    }
    if (saving == Saving::residency && c.max_live) {
      one = fmt::format("{} weights gathered", *c.max_live);
    }
    if (saving == Saving::residency && c.resident) {
      one += fmt::format("{}{:.2f} MiB resident", one.empty() ? "" : ", ",
                         static_cast<double>(*c.resident) / 0x1p20);
    }
    if (saving == Saving::recompute && c.recomputed) {
      one = fmt::format("recomputes the first {} blocks, of others norms and activations",
                        *c.recomputed);
    }
    if (!one.empty()) text += ", " + one;
  }
  return text;
}

}  // namespace zinc::plan
