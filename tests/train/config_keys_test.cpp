// The table of configuration keys, row by row: a value of every key that works is seen in the
// configuration, in the resolved file and in what ranks compare, and is there again when the
// resolved file is loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "plan/plan.h"
#include "train/config/key.h"

namespace zinc::train {
namespace config_keys_test {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

constexpr int64_t kRanks = 2;

Config parse(const files::json::Object& file, const Overrides& flags = {}) {
  return parse_config(files::json::write(file), "ds.json", kRanks, flags);
}

files::json::Object with(files::json::Object file, std::string_view path,
                         files::json::Value value) {
  const size_t dot = path.find('.');
  const std::string_view name = path.substr(0, dot);
  if (dot != std::string_view::npos) {
    const files::json::Value* inner = file.find(name);
    value = with(inner == nullptr ? files::json::Object() : inner->as_object(),
                 path.substr(dot + 1), std::move(value));
  }
  file.set(name, std::move(value));
  return file;
}

bool holds(const files::json::Object& file, std::string_view path) {
  const size_t dot = path.find('.');
  const files::json::Value* value = file.find(path.substr(0, dot));
  if (value == nullptr || dot == std::string_view::npos) return value != nullptr;
  return holds(value->as_object(), path.substr(dot + 1));
}

// The other settings that keys need for their value to count.
struct Need {
  std::string_view of;  // the key, or where its path begins
  std::string_view path;
  files::json::Value value;
};

std::vector<Need> needs() {
  const std::string_view states = "zero_optimization.offload_optimizer.";
  const std::string_view weights = "zero_optimization.offload_param.";
  const std::string_view inputs = "zinc.activation_offload.";
  return {
      {"", "train_micro_batch_size_per_gpu", 4},
      {"optimizer.params.adam_w_mode", "optimizer.type", "Adam"},
      {"optimizer.params.lr_decay", "optimizer.type", "Adagrad"},
      {"optimizer.params.warmup_steps", "optimizer.type", "ScheduleFreeAdamW"},
      {"optimizer.params.r", "optimizer.type", "ScheduleFreeAdamW"},
      {"optimizer.params.freeze_step", "optimizer.type", "OneBitAdam"},
      {"optimizer.params.parameter_scales", "optimizer.type", "OneBitAdam"},
      {"optimizer.params.weight_lr_power", "optimizer.type", "ScheduleFreeAdamW"},
      {"optimizer.params.momentum", "optimizer.type", "SGD"},
      {"optimizer.params.dampening", "optimizer.type", "SGD"},
      {"optimizer.params.dampening", "optimizer.params.momentum", 0.5},
      {"optimizer.params.nesterov", "optimizer.type", "SGD"},
      {"optimizer.params.nesterov", "optimizer.params.momentum", 0.5},
      {"optimizer.params.muon_lr", "optimizer.type", "Muon"},
      {"optimizer.params.adam_lr", "optimizer.type", "Muon"},
      {"optimizer.params.ns_steps", "optimizer.type", "Muon"},
      {"optimizer.params.adjust_lr_fn", "optimizer.type", "Muon"},
      {"optimizer.params.max_coeff", "optimizer.type", "Lamb"},
      {"optimizer.params.min_coeff", "optimizer.type", "Lamb"},
      {"optimizer.params.eps1", "optimizer.type", "Adafactor"},
      {"optimizer.params.eps2", "optimizer.type", "Adafactor"},
      {"optimizer.params.clip_threshold", "optimizer.type", "Adafactor"},
      {"optimizer.params.decay_rate", "optimizer.type", "Adafactor"},
      {"optimizer.params.scale_parameter", "optimizer.type", "Adafactor"},
      {"optimizer.params.relative_step", "optimizer.type", "Adafactor"},
      {"optimizer.params.relative_step", "optimizer.params.lr", 0.5},
      {"optimizer.params.warmup_init", "optimizer.type", "Adafactor"},
      {"zinc.muon.", "optimizer.type", "Muon"},
      {"scheduler.params.total_num_steps", "scheduler.params.warmup_num_steps", 3},
      {"scheduler.params.decay_", "scheduler.params.cycle_min_lr", 1e-4},
      {"scheduler.params.decay_", "scheduler.params.decay_step_size", 7},
      {"scheduler.params.decay_step_size", "scheduler.params.decay_lr_rate", 0.5},
      {"fp16.", "fp16.enabled", true},
      {"bf16.", "bf16.enabled", true},
      {"prescale_gradients", "zinc.reduce_algorithm", "native"},
      {"gradient_predivide_factor", "zinc.reduce_algorithm", "native"},
      {"zero_optimization.", "zero_optimization.stage", 3},
      {"zero_optimization.stage3_", "zero_optimization.stage3_param_persistence_threshold", 0},
      {weights, "zero_optimization.stage3_param_persistence_threshold", 0},
      {"zero_optimization.offload_param.buffer_", "zero_optimization.offload_param.max_in_cpu", 0},
      {"zero_optimization.sub_group_size", "bf16.enabled", true},
      {"zero_optimization.sub_group_size", "zero_optimization.offload_optimizer.device", "cpu"},
      {states, "zero_optimization.offload_optimizer.device", "nvme"},
      {states, "zero_optimization.offload_optimizer.nvme_path", "/d"},
      {"zero_optimization.offload_optimizer.ratio", "zero_optimization.offload_optimizer.device",
       "cpu"},
      {weights, "zero_optimization.offload_param.device", "nvme"},
      {weights, "zero_optimization.offload_param.nvme_path", "/d"},
      {"activation_checkpointing.c", "activation_checkpointing.number_checkpoints", 2},
      {"activation_checkpointing.p", "activation_checkpointing.number_checkpoints", 2},
      {"activation_checkpointing.partition_activations", "zinc.mesh.tensor", 2},
      {"zinc.reduce_schedule", "gradient_accumulation_steps", 2},
      {"zinc.schedule", "gradient_accumulation_steps", 2},
      {inputs, "zinc.recompute_every_blocks", 1},
      {inputs, "zinc.activation_offload.device", "nvme"},
      {inputs, "zinc.activation_offload.nvme_path", "/d"},
      {"sparse_attention.", "sparse_attention.mode", "dense"},
      {"zinc.fp8", "bf16.enabled", true},
      {"zinc.narrow_logits", "bf16.enabled", true},
      {"zinc.offload_step", "zero_optimization.stage", 1},
      {"zinc.offload_step", "zero_optimization.offload_optimizer.device", "cpu"},
      {"zinc.recompute_blocks", "zinc.recompute_every_blocks", 1},
      {"zinc.sequence_exchange", "zinc.mesh.sequence", 2},
      {"zinc.tensor_sequence_parallel", "zinc.mesh.tensor", 2},
      {"zinc.pipeline_", "zinc.mesh.pipe", 2},
      {"zinc.pipeline_", "gradient_accumulation_steps", 4},
      {"pipeline.partition", "zinc.mesh.pipe", 2},
      {"zinc.resident_memory", "zero_optimization.stage", 3},
      {"zinc.resident_memory", "zero_optimization.stage3_param_persistence_threshold", 0},
      {"zinc.resident_memory", "gradient_accumulation_steps", 3},
      {"zinc.gradient_offload", "gradient_accumulation_steps", 3},
      {"zinc.gradient_offload", "zero_optimization.stage", 2},
      {"zinc.gradient_offload", "zero_optimization.offload_optimizer.device", "nvme"},
      {"zinc.gradient_offload", "zero_optimization.offload_optimizer.nvme_path", "/d"},
  };
}

// Files in which a value of the key counts: one, or one per schedule that has the key.
std::vector<files::json::Object> files_for(const Key& key) {
  files::json::Object file;
  for (const Need& need : needs()) {
    if (key.path.starts_with(need.of)) file = with(std::move(file), need.path, need.value);
  }
  if (!key.unknown_without) return {file};
  std::vector<files::json::Object> files;
  std::istringstream kinds(key.only_with);
  for (std::string kind; std::getline(kinds >> std::ws, kind, ',');) {
    const files::json::Object of_kind = with(file, "scheduler.type", kind);
    const bool long_name = kind.starts_with("Warmup");
    const bool has_total =
        kind == "Linear" || kind == "Cosine" || kind == "WarmupDecayLR" || kind == "WarmupCosineLR";
    const char* total =
        long_name ? "scheduler.params.total_num_steps" : "scheduler.params.total_steps";
    files.push_back(has_total ? with(of_kind, total, 50) : of_kind);
  }
  return files;
}

// A value of the key that is not `now`.
files::json::Value other_value(const Key& key, const files::json::Value& now) {
  if (key.path == "train_batch_size") return 8 * kRanks;
  if (key.path == "optimizer.type") return "SGD";
  switch (key.setting.type) {
    case KeyType::boolean:
      return now.is_null() || !now.as_bool();
    case KeyType::integer: {
      if (now.is_null()) return static_cast<int64_t>(std::max(1.0, key.range.least));
      const int64_t next = now.as_int64() + key.range.multiple_of;
      return static_cast<double>(next) <= key.range.most ? next : now.as_int64() - 1;
    }
    case KeyType::unsigned_integer:
      return std::numeric_limits<uint64_t>::max();
    case KeyType::number:
    case KeyType::quoted_number:
      return now.is_null() || now.as_double() == 0.0 ? 0.5 : now.as_double() / 2.0;
    case KeyType::choice:
    case KeyType::name:
      return key.setting.choices[now.is_string(key.setting.choices[0]) ? 1 : 0];
    case KeyType::dtype:
      return "bf16";
    case KeyType::bytes:
      return "3GiB";
    case KeyType::pair:
      return files::json::Array{0.5, 0.25};
    case KeyType::texts:
      return files::json::Array{"*.mlp.*"};
    case KeyType::integers:
      return files::json::Array{5};
    case KeyType::block:
      return with({}, "enabled", true);
    default:
      return "other";
  }
}

bool has_value(const Key& key) {
  return key.setting.get != nullptr && key.stands_for.empty() && !key.is_block();
}

void expect_equal_values(const Config& a, const Config& b, const std::string& what) {
  for (const Key& key : config_keys()) {
    if (!has_value(key)) continue;
    ASSERT_EQ(key.counts(a), key.counts(b)) << key.path << ", " << what;
    if (key.unknown_without && !key.counts(a)) continue;
    EXPECT_TRUE(key.setting.get(a, kRanks) == key.setting.get(b, kRanks))
        << key.path << ", " << what;
  }
  EXPECT_EQ(fingerprint_of(a, kRanks), fingerprint_of(b, kRanks)) << what;
}

// Values in force that differ, of keys that count in both.
std::vector<std::string> differences(const Config& a, const Config& b) {
  std::vector<std::string> paths;
  for (const Key& key : config_keys()) {
    if (!has_value(key) || !key.counts(a) || !key.counts(b)) continue;
    if (key.setting.get(a, kRanks) != key.setting.get(b, kRanks)) paths.push_back(key.path);
  }
  return paths;
}

// Keys whose value in force follows from that of `path`, too.
std::vector<std::string> followers_of(const std::string& path) {
  if (path == "train_batch_size") return {"train_micro_batch_size_per_gpu"};
  if (path == "train_micro_batch_size_per_gpu") return {"train_batch_size"};
  if (path == "gradient_accumulation_steps") return {"train_batch_size"};
  if (path == "optimizer.params.adam_w_mode") return {"optimizer.type"};
  if (path == "optimizer.params.adam_lr") return {"optimizer.params.lr"};
  if (path == "zero_optimization.stage") {
    return {"zero_optimization.overlap_comm"};
  }
  if (path == "zinc.mesh.tensor") return {"train_batch_size", "tensor_parallel.autotp_size"};
  if (path == "tensor_parallel.autotp_size") return {"train_batch_size", "zinc.mesh.tensor"};
  if (path == "zinc.mesh.sequence") return {"train_batch_size", "sequence_parallel_size"};
  if (path == "sequence_parallel_size") return {"train_batch_size", "zinc.mesh.sequence"};
  if (path == "zinc.mesh.pipe") return {"train_batch_size", "pipeline.stages"};
  if (path == "pipeline.stages") return {"train_batch_size", "zinc.mesh.pipe"};
  if (path == "zinc.recompute_every_blocks") return {"pipeline.activation_checkpoint_interval"};
  if (path == "pipeline.activation_checkpoint_interval") return {"zinc.recompute_every_blocks"};
  if (path == "zinc.determinism" || path == "zinc.schedule") return {"zinc.reduce_schedule"};
  return {};
}

Config reloaded(const Config& config) {
  return parse_config(resolved_json(config, kRanks), "resolved.json", kRanks);
}

TEST(ConfigKeys, EveryKeyThatWorks_MovesSomething_AndIsKept) {
  int checked = 0;
  for (const Key& key : config_keys()) {
    const bool works = key.key_class == KeyClass::works && !key.is_block();
    if (!works && key.key_class != KeyClass::deprecated) continue;
    for (const files::json::Object& file : files_for(key)) {
      const Config without = parse(file);
      const files::json::Value now = key.setting.get && !key.is_block()
                                         ? key.setting.get(without, kRanks)
                                         : files::json::Value();
      const files::json::Value value = other_value(key, now);
      files::json::Object given = with(file, key.path, value);
      if (key.path == "train_batch_size") given = with({}, key.path, value);
      const Config config = parse(given);
      const std::string what = str(key.path, " ", files::json::write(value));
      if (has_value(key)) {
        std::vector<std::string> moved = followers_of(key.path);
        moved.push_back(key.path);
        EXPECT_THAT(differences(config, without), UnorderedElementsAreArray(moved)) << what;
      }
      EXPECT_NE(fingerprint_of(config, kRanks), fingerprint_of(without, kRanks)) << what;
      expect_equal_values(config, reloaded(config), what);
      EXPECT_EQ(resolved_json(reloaded(config), kRanks), resolved_json(config, kRanks)) << what;
      ++checked;
    }
  }
  EXPECT_GE(checked, 120);
}

// The memory and the transfers of a rank of a small model; the learning rates of a run, and its
// loss scales when every third step overflows.
std::string behaviour_of(const Config& config) {
  nn::LlamaConfig model;
  model.vocab_size = 200;
  model.max_positions = 32;
  model.hidden_size = 64;
  model.intermediate_size = 160;
  model.num_layers = 5;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  std::string text;
  try {
    text = plan::json_of(plan::make_plan({.config = model}, config, {.world = kRanks, .seq = 16}));
  } catch (const ConfigError& error) {
    text = error.what();
  }
  const optim::Schedule schedule(config.engine.schedule, config.engine.optimizer, 100);
  optim::LossScaler scaler(config.engine.precision.loss_scale);
  for (int64_t update = 0; update < 5000; ++update) {
    text += str(' ', schedule.lr_at(update), ' ', schedule.beta1_at(update).value_or(-1.0));
  }
  for (int step = 0; step < 3000; ++step) {
    text += str(' ', scaler.scale());
    try {
      scaler.update(step % 3 == 0 && step < 60);
    } catch (const NumericsError&) {
      text += " the end";
    }
  }
  return text;
}

constexpr const char* kPlacesOfKeys = "tests/train/config_keys.txt";
std::map<std::string, std::string> places_of_keys() {
  std::ifstream file(kPlacesOfKeys);
  std::map<std::string, std::string> places;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key, place;
    if (!line.starts_with("#") && words >> key >> place) places[key] = place;
  }
  return places;
}

TEST(ConfigKeys, EveryKeyThatWorks_ChangesWhatARunDoes_WhereItsRowSaysSo) {
  const std::map<std::string, std::string> places = places_of_keys();
  for (const Key& key : config_keys()) {
    if (!has_value(key) || key.key_class != KeyClass::works || key.path == "train_batch_size") {
      continue;
    }
    const files::json::Object file = files_for(key).front();
    const Config without = parse(file);
    files::json::Value value = other_value(key, key.setting.get(without, kRanks));
    // The value is large enough, and small enough, for so small a model.
    if (key.unit == "elements") value = 5000;
    if (key.unit == "steps" && key.block() == "scheduler.params") value = 5;
    const bool moves = behaviour_of(parse(with(file, key.path, value))) != behaviour_of(without);
    const auto place = places.find(key.path);
    ASSERT_TRUE(place != places.end()) << key.path << " has no row in " << kPlacesOfKeys;
    EXPECT_EQ(moves, place->second == "plan")
        << key.path << (moves ? " moves" : " does not move") << " a run";
  }
}

TEST(ConfigKeys, ADefaultInTheFile_IsTheSameAsNone) {
  int checked = 0;
  for (const Key& key : config_keys()) {
    const files::json::Value standard = has_value(key) ? key.default_json() : files::json::Value();
    if (standard.is_null() || !key.default_note.empty()) continue;
    for (const files::json::Object& file : files_for(key)) {
      if (holds(file, key.path)) continue;
      expect_equal_values(parse(with(file, key.path, standard)), parse(file), key.path);
      ++checked;
    }
  }
  EXPECT_GE(checked, 70);
}

TEST(ConfigKeys, ValuesOutsideTheRange_NameTheKeyAndThePlace) {
  int checked = 0;
  for (const Key& key : config_keys()) {
    if (key.key_class != KeyClass::works || key.is_block()) continue;
    const bool is_list = key.setting.type == KeyType::integers;
    std::vector<files::json::Value> wrong{
        files::json::Array{is_list ? "1" : files::json::Value(1)}};
    if (is_list) wrong.emplace_back(files::json::Array{key.range.least - 1.0});
    const Bounds& range = key.range;
    if (std::isfinite(range.least)) wrong.emplace_back(range.least - 1.0);
    if (std::isfinite(range.most)) wrong.emplace_back(range.most * 2.0 + 1.0);
    if (range.positive) wrong.emplace_back(0);
    if (range.multiple_of != 1) wrong.emplace_back(range.multiple_of + 1);
    if (key.setting.type == KeyType::integer) wrong.emplace_back(1.5);
    if (key.setting.type == KeyType::integer) wrong.emplace_back(2.0 * kLargestCount);
    for (const files::json::Value& value : wrong) {
      try {
        parse(with(files_for(key).front(), key.path, value));
        ADD_FAILURE() << key.path << " takes " << files::json::write(value);
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr(key.path + " must be ")) << files::json::write(value);
        EXPECT_THAT(error.what(), HasSubstr("ds.json:1:"));
      }
      ++checked;
    }
  }
  EXPECT_GE(checked, 200);
}

TEST(ConfigKeys, AValueThatDoesNotCount_IsNotInTheConfiguration) {
  const files::json::Object file = with({}, "train_micro_batch_size_per_gpu", 4);
  const Config plain = parse(file);
  int checked = 0;
  for (const Key& key : config_keys()) {
    if (!has_value(key) || !key.in_force || key.unknown_without || key.counts(plain)) continue;
    const files::json::Value value = other_value(key, key.setting.get(plain, kRanks));
    expect_equal_values(parse(with(file, key.path, value)), plain, key.path);
    ++checked;
  }
  EXPECT_GE(checked, 15);
}

TEST(ConfigKeys, RowsSayWhatAReaderNeeds) {
  for (const Key& key : config_keys()) {
    EXPECT_FALSE(key.note.empty()) << key.path;
    EXPECT_EQ(find_key(key.path), &key) << key.path << " stands twice";
    if (!key.block().empty()) {
      const Key* block = find_key(key.block());
      EXPECT_TRUE(block != nullptr && block->is_block()) << key.path;
    }
    const bool works = key.key_class == KeyClass::works && !key.is_block();
    EXPECT_EQ(works, key.setting.get != nullptr && key.key_class != KeyClass::deprecated)
        << key.path;
  }
}

TEST(ConfigKeys, TheTableForPrograms_HasEveryKey) {
  const files::json::Value table = files::json::parse(config_keys_json(), "keys.json");
  ASSERT_EQ(table.size(), config_keys().size());
  for (size_t i = 0; i < table.size(); ++i) {
    const Key& key = config_keys()[i];
    EXPECT_EQ(table.at(i).at("key").as_string(), key.path);
    EXPECT_EQ(table.at(i).at("class").as_string(), name_of(key.key_class));
  }
  const Key& stage = *find_key("zero_optimization.stage");
  const files::json::Value& row = table.at(static_cast<size_t>(&stage - config_keys().data()));
  EXPECT_EQ(row.at("type").as_string(), "integer");
  EXPECT_EQ(row.at("minimum").as_int64(), 0);
  EXPECT_EQ(row.at("maximum").as_int64(), 3);
  EXPECT_EQ(row.at("default").as_int64(), 0);
}

TEST(ConfigKeys, EveryFlag_IsSeenAndKept) {
  const files::json::Object open =
      with(with({}, "train_micro_batch_size_per_gpu", 4), "scheduler.type", "linear");
  const Config without = parse(open, {.total_steps = 50});
  for (const Overrides& flags : {
           Overrides{.accumulation = 2, .total_steps = 50},
           Overrides{.lr = 0.1, .total_steps = 50},
           Overrides{.weight_decay = 0.1, .total_steps = 50},
           Overrides{.warmup_steps = 7, .total_steps = 50},
           Overrides{.total_steps = 60},
           Overrides{.total_steps = 50, .dtype = DType::bf16},
           Overrides{.total_steps = 50, .seed = 9},
       }) {
    const Config config = parse(open, flags);
    EXPECT_NE(fingerprint_of(config, kRanks), fingerprint_of(without, kRanks));
    expect_equal_values(config, reloaded(config), "a flag");
  }
  const files::json::Object constant = with({}, "train_micro_batch_size_per_gpu", 4);
  EXPECT_THAT(resolved_json(parse(constant, {.warmup_steps = 7}), kRanks),
              HasSubstr("\"warmup_steps\": 7"));
}

}  // namespace config_keys_test
}  // namespace zinc::train
