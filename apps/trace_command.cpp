// zinc trace: a summary of a trace.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/command.h"
#include "core/exit_codes.h"
#include "train/trace/trace_summary.h"

namespace zinc::apps {
namespace {

struct TraceArguments {
  std::string file;
  bool json = false;
};

int print_summary(const TraceArguments& options) {
  const train::TraceSummary summary = train::summarize_trace(options.file);
  if (options.json) {
    fmt::print("{}\n", train::json_of(summary));
  } else {
    fmt::print("{}", train::describe(summary));
  }
  return kDone;
}

}  // namespace

void add_trace_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TraceArguments>();
  CLI::App* verb = app.add_subcommand("trace", "What a trace of a run says");
  verb->require_subcommand(1);
  CLI::App* summary =
      verb->add_subcommand("summary", "Compute, communication, stalls and bytes of every step");
  summary->add_option("FILE", options->file, "Of \"zinc\": {\"trace\": FILE}")->required();
  summary->add_flag("--json", options->json, "Figures for programs");
  summary->callback([options, &action] { action = [options] { return print_summary(*options); }; });
}

}  // namespace zinc::apps
