// The zinc command: zinc VERB [OPTIONS].
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/help/help_text.h"
#include "apps/machine.h"
#include "apps/rank_failure.h"
#include "comm/world.h"
#include "core/build_info.h"
#include "core/edit_distance.h"
#include "core/error.h"
#include "core/exit_codes.h"

namespace zinc::apps {
namespace {

// The verb that the command line came to: of `zinc bench kernels --x` that is `kernels`.
const CLI::App& chosen_verb(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_verb(*chosen.back());
}

// "zinc bench kernels"
std::string full_name(const CLI::App& verb) {
  const CLI::App* above = verb.get_parent();
  return above == nullptr ? verb.get_name() : full_name(*above) + " " + verb.get_name();
}

std::vector<std::string> verbs_of(const CLI::App& place) {
  std::vector<std::string> names;
  for (const CLI::App* verb : place.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

// Names that can stand where `unknown` stood: options of the chosen verb, or its verbs.
std::vector<std::string> candidates(const CLI::App& place, const std::string& unknown) {
  if (!unknown.starts_with("-")) return verbs_of(place);
  std::vector<std::string> names;
  for (const CLI::Option* option : place.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& place = chosen_verb(app);
  const bool lacks_verb = place.get_require_subcommand_min() > 0;
  std::string message = lacks_verb ? fmt::format("'{}' needs a verb: {}", full_name(place),
                                                 fmt::join(verbs_of(place), ", "))
                                   : error.what();
  std::vector<std::string> words = app.remaining(true);
  // What follows belongs to the verb that is missing, or to the program of zinc launch.
  if ((lacks_verb || app.got_subcommand("launch")) && words.size() > 1) words.resize(1);
  for (const std::string& unknown : words) {
    message += "\n  '" + unknown + "' is not known";
    const std::string nearest = nearest_name(unknown, candidates(place, unknown));
    if (!nearest.empty()) message += ": did you mean " + nearest + "?";
  }
  message += fmt::format("\n  '{} --help' lists what there is", full_name(place));
  return report({kUsage, message});
}

// Prints the note on threads, once per machine, for verbs that compute, or plan to, and do not
// print it themselves.
void say_threads(const CLI::App& app) {
  const bool computes =
      std::ranges::any_of(std::array{"generate", "chat", "evaluate", "plan", "bench"},
                          [&app](const char* verb) { return app.got_subcommand(verb); });
  if (!computes || comm::discover_rank().rank != 0) return;
  const std::string note = threads_note_once();
  if (!note.empty()) fmt::print(stderr, "{}\n", note);
}

int run(int argc, char** argv) {
  CLI::App app("zinc trains transformers: ZeRO in native C++.", "zinc");
  app.formatter(help_formatter());
  app.set_version_flag("--version", std::string(build_info().version));
  app.require_subcommand(1);
  Action action;
  add_train_command(app, action);
  add_generate_command(app, action);
  add_chat_command(app, action);
  add_report_command(app, action);
  add_config_command(app, action);
  add_plan_command(app, action);
  add_trace_command(app, action);
  add_evaluate_command(app, action);
  add_launch_command(app, action);
  add_bench_command(app, action);
  add_tokenize_command(app, action);
  add_data_command(app, action);
  add_checkpoint_command(app, action);
  add_adapter_command(app, action);
  add_plot_command(app, action);
  add_options_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  try {
    say_threads(app);
    return action();
  } catch (...) {
    return report(describe(std::current_exception()));
  }
}

}  // namespace
}  // namespace zinc::apps

int main(int argc, char** argv) { return zinc::apps::run(argc, argv); }
