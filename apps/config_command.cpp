// zinc config: looks at a configuration without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/command.h"
#include "core/exit_codes.h"
#include "train/config/config.h"
#include "train/config/key.h"

namespace zinc::apps {
namespace {

struct ConfigArguments {
  std::string file;
  int64_t world = 1;
  train::Overrides flags;
  bool json = false;
};

int check(const ConfigArguments& options) {
  const train::Config config = train::load_config(options.file, options.world, options.flags);
  for (const std::string& notice : config.notices) fmt::print("note: {}\n", notice);
  fmt::print("{}: good for {} ranks\n", options.file, options.world);
  return kDone;
}

int show(const ConfigArguments& options) {
  const train::Config config = train::load_config(options.file, options.world, options.flags);
  fmt::print("{}", train::resolved_json(config, options.world));
  return kDone;
}

int keys(bool json) {
  fmt::print("{}", json ? train::config_keys_json() : train::config_keys_markdown());
  return kDone;
}

void add_options(CLI::App& verb, ConfigArguments& options) {
  verb.add_option("file", options.file, "DeepSpeed JSON configuration")->required();
  verb.add_option("--world", options.world, "Ranks (default 1)")->check(CLI::PositiveNumber);
  verb.add_option("--batch", options.flags.micro_batch, "As in zinc train");
  verb.add_option("--grad-accum", options.flags.accumulation, "As in zinc train");
  verb.add_option("--steps", options.flags.total_steps, "As in zinc train");
}

}  // namespace

void add_config_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ConfigArguments>();
  CLI::App* verb = app.add_subcommand("config", "Check or show a configuration");
  verb->require_subcommand(1);
  CLI::App* check_verb = verb->add_subcommand("check", "Report all problems of a file");
  add_options(*check_verb, *options);
  check_verb->callback([options, &action] { action = [options] { return check(*options); }; });
  CLI::App* show_verb = verb->add_subcommand("show", "Print every value as it will be used");
  add_options(*show_verb, *options);
  show_verb->callback([options, &action] { action = [options] { return show(*options); }; });
  CLI::App* keys_verb =
      verb->add_subcommand("keys", "List every known key: the table of docs/config.md");
  keys_verb->add_flag("--json", options->json, "As JSON");
  keys_verb->callback([options, &action] { action = [options] { return keys(options->json); }; });
}

}  // namespace zinc::apps
