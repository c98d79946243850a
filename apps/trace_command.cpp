// zinc trace: a summary of a trace, and its lanes as a page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "apps/command.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/atomic_file.h"
#include "train/trace/trace_page.h"
#include "train/trace/trace_summary.h"

namespace zinc::apps {
namespace {

struct TraceArguments {
  std::string file;
  bool json = false;
  std::string html;
  std::string steps;
};

// "FIRST:LAST", either of which may be missing, or one step.
void set_steps(const std::string& text, train::TracePageOptions& options) {
  const size_t colon = text.find(':');
  const auto number = [&text](const std::string& word, int64_t& value) {
    if (!word.empty() && !CLI::detail::lexical_cast(word, value)) {
      throw ConfigError("--steps '" + text + "' must be FIRST:LAST, FIRST:, :LAST or a step");
    }
  };
  number(text.substr(0, colon), options.first_step);
  if (colon == std::string::npos) {
    options.last_step = options.first_step;
  } else {
    number(text.substr(colon + 1), options.last_step);
  }
}

int write_page(const TraceArguments& options) {
  train::TracePageOptions drawn;
  if (!options.steps.empty()) set_steps(options.steps, drawn);
  const train::TracePage page =
      train::trace_page(train::read_trace(options.file), options.file, drawn);
  files::write_file_atomically(options.html, page.html);
  fmt::print("{}: steps {} to {}, {} slices", options.html, page.first_step, page.last_step,
             page.slices);
  if (page.steps_left_out > 0) {
    fmt::print("; {} earlier steps are left out, --steps chooses others", page.steps_left_out);
  }
  fmt::print("\n");
  return kDone;
}

int print_summary(const TraceArguments& options) {
  if (!options.html.empty()) return write_page(options);
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
  CLI::Option* html =
      summary
          ->add_option("--html", options->html,
                       "Write the lanes of all ranks as a page for a browser, without a network")
          ->type_name("FILE")
          ->excludes("--json");
  summary
      ->add_option("--steps", options->steps,
                   "With --html: FIRST:LAST (default: the last steps with at most 200000 slices)")
      ->needs(html);
  summary->callback([options, &action] { action = [options] { return print_summary(*options); }; });
}

}  // namespace zinc::apps
