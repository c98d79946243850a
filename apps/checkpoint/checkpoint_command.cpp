// zinc checkpoint: what runs can go on from, on the disk.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/input_file.h"
#include "files/json/writer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/compare.h"
#include "train/convert_checkpoint.h"
#include "train/export_checkpoint.h"
#include "train/metrics/progress.h"

namespace zinc::apps {
namespace {

using train::Checkpoint;
using train::FoundCheckpoint;

struct CheckpointArguments {
  std::string folder, other, dtype, format = "huggingface", from, tag, model, base;
  uint64_t seed = 1234;
  int64_t keep = 0;
  bool json = false, merge_lora = false;
};

constexpr const char* kFolderHelp =
    "A checkpoint, a folder of them, or a run's folder; of convert: what the other engine saved";

// The checkpoints' folder of a run's folder; any other folder itself.
std::string checkpoints_in(const std::string& folder) {
  const std::string inside = folder + "/checkpoints";
  return files::folder_exists(inside) ? inside : folder;
}

// The checkpoint that `folder` is, or those in it, the newest first. DataError where there is none.
std::vector<std::string> all_of(const std::string& folder) {
  if (files::file_exists(folder + "/manifest.json")) return {folder};
  std::vector<std::string> paths;
  for (const FoundCheckpoint& found : train::find_checkpoints(checkpoints_in(folder))) {
    paths.push_back(found.path);
  }
  if (paths.empty()) throw DataError(folder + ": there is no checkpoint");
  return paths;
}

// Opens the checkpoint that `folder` is, or the newest in it.
Checkpoint open_one(const std::string& folder) { return Checkpoint::open(all_of(folder).front()); }

// Opens the checkpoint, and with `whole` reads everything. Returns the problem; empty: none.
std::string problem_of(const std::string& path, bool whole, std::optional<Checkpoint>& checkpoint) {
  try {
    checkpoint.emplace(Checkpoint::open(path));
    if (whole) {
      checkpoint->verify();
      checkpoint->verify_frozen();
    }
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

int show(const CheckpointArguments& options, bool verifies) {
  bool damaged = false;
  files::json::Writer json;
  json.begin_array();
  for (const std::string& path : all_of(options.folder)) {
    std::optional<Checkpoint> checkpoint;
    const std::string problem = problem_of(path, verifies, checkpoint);
    damaged |= !problem.empty();
    json.begin_object();
    json.member("path", path).member("whole", problem.empty());
    if (!problem.empty()) json.member("problem", problem);
    if (problem.empty()) {
      const train::Manifest& manifest = checkpoint->manifest();
      json.member("step", manifest.state.steps)
          .member("world", manifest.world)
          .member("bytes", checkpoint->bytes())
          .member("optimizer", manifest.state.optimizer)
          .member("tensors", static_cast<int64_t>(checkpoint->tensors().size()));
    }
    json.end_object();
    if (options.json) continue;
    if (!problem.empty()) {
      fmt::print("{}: {}\n", path, problem);
      continue;
    }
    fmt::print("{}: step {}, {}, by {} ranks with {}{}\n", path, checkpoint->state().steps,
               train::format_bytes(checkpoint->bytes()), checkpoint->manifest().world,
               checkpoint->state().optimizer, verifies ? ": every byte is as written" : "");
  }
  json.end_array();
  if (options.json) fmt::print("{}\n", json.take());
  return damaged ? kBadData : kDone;
}

void add_strings(files::json::Writer& json, std::string_view key,
                 const std::vector<std::string>& values) {
  json.key(key).begin_array();
  for (const std::string& value : values) json.value(value);
  json.end_array();
}

int diff(const CheckpointArguments& options) {
  const Checkpoint a = open_one(options.folder), b = open_one(options.other);
  const train::CheckpointDifference difference = compare(a, b);
  if (options.json) {
    files::json::Writer json;
    json.begin_object();
    json.member("equal", difference.empty()).member("compared", difference.compared);
    add_strings(json, "counters", difference.counters);
    add_strings(json, "only_a", difference.only_a);
    add_strings(json, "only_b", difference.only_b);
    json.key("values").begin_array();
    for (const train::ValueDifference& values : difference.values) {
      json.begin_object();
      json.member("name", values.name).member("kind", values.kind).member("numel", values.numel);
      json.member("differing", values.differing).member("greatest", values.greatest);
      json.end_object();
    }
    json.end_array();
    json.end_object();
    fmt::print("{}\n", json.take());
    return difference.empty() ? kDone : kRegression;
  }
  for (const std::string& line : difference.counters) fmt::print("{}\n", line);
  for (const std::string& what : difference.only_a) fmt::print("only {}: {}\n", a.path(), what);
  for (const std::string& what : difference.only_b) fmt::print("only {}: {}\n", b.path(), what);
  for (const train::ValueDifference& values : difference.values) {
    fmt::print("{} of {}: {} of {} elements differ, by {:g} at most\n", values.kind, values.name,
               values.differing, values.numel, values.greatest);
  }
  if (difference.empty()) fmt::print("equal: {} values\n", difference.compared);
  return difference.empty() ? kDone : kRegression;
}

int export_to(const CheckpointArguments& options) {
  Checkpoint checkpoint = open_one(options.folder);
  if (!options.base.empty()) {
    checkpoint.look_for_frozen_in(options.base);
    checkpoint.verify_frozen();  // another folder may hold other weights
  }
  std::optional<DType> dtype;
  if (!options.dtype.empty()) dtype = parse_dtype(options.dtype);
  if (options.format == "llmc") {
    export_llmc(checkpoint, options.other, dtype.value_or(DType::f32));
  } else {
    export_weights(checkpoint, options.other, {.dtype = dtype, .merge_lora = options.merge_lora});
  }
  if (options.json) {
    files::json::Writer json;
    json.begin_object();
    json.member("from", checkpoint.path()).member("to", options.other);
    json.end_object();
    fmt::print("{}\n", json.take());
  } else {
    fmt::print("weights of {} in {}\n", checkpoint.path(), options.other);
  }
  return kDone;
}

int convert(const CheckpointArguments& options) {
  const auto from = files::DeepSpeedCheckpoint::open(options.folder, options.tag);
  std::optional<hub::ModelConfigFile> model;
  if (!options.model.empty()) model = hub::find_model_config(options.model);
  const std::string path = train::convert_deepspeed(
      from, options.other, {.seed = options.seed, .model = model ? &*model : nullptr});
  files::json::Writer json;
  json.begin_object();
  json.member("from", from.folder()).member("to", path);
  json.member("parameters", static_cast<int64_t>(from.parameters().size()));
  json.end_object();
  if (options.json) {
    fmt::print("{}\n", json.take());
  } else {
    fmt::print("{} parameters of {} in {}\n", from.parameters().size(), from.folder(), path);
  }
  return kDone;
}

int prune(const CheckpointArguments& options) {
  const std::string folder = checkpoints_in(options.folder);
  const std::vector<std::string> removed =
      train::prune_checkpoints(folder, options.keep, /*verifies=*/true);
  files::json::Writer json;
  json.begin_object();
  add_strings(json, "deleted", removed);
  json.end_object();
  if (options.json) {
    fmt::print("{}\n", json.take());
    return kDone;
  }
  for (const std::string& path : removed) fmt::print("deleted {}\n", path);
  if (removed.empty()) fmt::print("nothing to delete\n");
  return kDone;
}

}  // namespace

void add_checkpoint_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<CheckpointArguments>();
  CLI::App* group = app.add_subcommand("checkpoint", "What runs can go on from");
  group->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& what, const auto& work) {
    CLI::App* verb = group->add_subcommand(name, what);
    verb->add_option("folder", options->folder, kFolderHelp)->required();
    verb->add_flag("--json", options->json, "Print the result as JSON");
    verb->callback([=, &action] { action = [=] { return work(*options); }; });
    return verb;
  };
  add("list", "Steps, sizes and worlds, the newest first",
      [](const CheckpointArguments& given) { return show(given, false); });
  add("verify", "Read every byte and compare it with its checksum; 65 where one is damaged",
      [](const CheckpointArguments& given) { return show(given, true); });
  CLI::App* differ = add("diff", "In what two checkpoints differ; 1 where they do", diff);
  differ->add_option("other", options->other, "The other one")->required();
  CLI::App* exporter = add("export", "Write the weights as a Hugging Face folder", export_to);
  exporter->add_option("to", options->other, "The folder to make")->required();
  exporter
      ->add_option("--format", options->format,
                   "huggingface (default), or llmc: a model_*.bin of llm.c, of GPT-2")
      ->check(CLI::IsMember({"huggingface", "llmc"}));
  exporter->add_option("--dtype", options->dtype, "f32, bf16 or f16 (default: as it was trained)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  exporter->add_flag("--merge-lora", options->merge_lora,
                     "Of a run that trains adapters: the whole model with them added (default: the "
                     "adapter's folder)");
  exporter->add_option("--base", options->base,
                       "Where the frozen weights are that the checkpoint does not hold (default: "
                       "where the run found them)");
  CLI::App* converter = add("convert", "Make a checkpoint of what another engine saved", convert);
  converter->add_option("to", options->other, "The folder to make it in, as step-<n>")->required();
  converter->add_option("--from", options->from, "deepspeed: ZeRO 0 to 3, or universal")
      ->required()
      ->check(CLI::IsMember({"deepspeed"}));
  converter->add_option("--tag", options->tag, "Default: the one that the file latest names");
  converter->add_option("--model", options->model,
                        "Of the weights: preset, config.json or its folder; to export them");
  converter->add_option("--seed", options->seed, "Of the run that goes on (default 1234)");
  CLI::App* pruner = add("prune", "Delete all but the newest, and the newest that is whole", prune);
  pruner->add_option("--keep", options->keep, "Checkpoints that stay")
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 53));
}

}  // namespace zinc::apps
