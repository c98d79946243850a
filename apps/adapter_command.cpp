// zinc adapter: LoRA adapters as folders.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/command.h"
#include "core/context.h"
#include "core/dtype.h"
#include "core/exit_codes.h"
#include "hub/merged_weights.h"

namespace zinc::apps {
namespace {

struct AdapterArguments {
  std::string model, adapter, out, dtype;
};

int merge(const AdapterArguments& options) {
  Context context;
  const ContextScope scope(context);
  hub::MergeOptions merging;
  if (!options.dtype.empty()) merging.dtype = parse_dtype(options.dtype);
  hub::merge_adapter(options.model, options.adapter, options.out, merging);
  fmt::print("{} with {} in {}\n", options.model, options.adapter, options.out);
  return kDone;
}

}  // namespace

void add_adapter_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<AdapterArguments>();
  CLI::App* group = app.add_subcommand("adapter", "LoRA adapters, zinc's and peft's");
  group->require_subcommand(1);
  CLI::App* verb = group->add_subcommand("merge", "Write a model with an adapter added to it");
  verb->add_option("--model", options->model, "Folder of the model that it was trained on")
      ->required();
  verb->add_option("--adapter", options->adapter, "Folder of the adapter")->required();
  verb->add_option("--out", options->out, "The folder to make")->required();
  verb->add_option("--dtype", options->dtype, "f32, bf16 or f16 (default: as the model's config)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  verb->callback([options, &action] { action = [options] { return merge(*options); }; });
}

}  // namespace zinc::apps
