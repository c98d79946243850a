// zinc plot: curves of runs as one page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "apps/stop_signal.h"
#include "core/exit_codes.h"
#include "files/atomic_file.h"
#include "train/plot/page.h"
#include "train/plot/run_series.h"

namespace zinc::apps {
namespace {

struct PlotArguments {
  std::vector<std::string> runs;
  std::string html;
  bool follow = false;
  int every = 5;  // seconds
};

void write_page(const PlotArguments& options, const std::vector<train::RunReader>& readers,
                int reload_seconds) {
  std::vector<const train::RunSeries*> runs;
  for (const train::RunReader& reader : readers) runs.push_back(&reader.series());
  files::write_file_atomically(options.html,
                               train::plot_page(runs, {.reload_seconds = reload_seconds}));
}

// Sleeps in short parts, so that a signal ends the wait.
void wait(std::chrono::seconds time, const std::atomic<bool>& stop) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!stop.load() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

int plot(const PlotArguments& options) {
  std::vector<train::RunReader> readers;
  for (const std::string& run : options.runs) readers.emplace_back(run).read_more();
  write_page(options, readers, options.follow ? options.every : 0);
  fmt::print("{}: {} run{}\n", options.html, readers.size(), readers.size() == 1 ? "" : "s");
  if (!options.follow) return kDone;
  fmt::print("writing it anew every {} s; end with ctrl-C\n", options.every);
  std::fflush(stdout);
  const std::atomic<bool>& stop = stop_on_signals();
  while (!stop.load()) {
    wait(std::chrono::seconds(options.every), stop);
    bool more = false;
    for (train::RunReader& reader : readers) more = reader.read_more() || more;
    if (more && !stop.load()) write_page(options, readers, options.every);
  }
  write_page(options, readers, 0);  // pages that are open ask no more
  return kDone;
}

}  // namespace

void add_plot_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlotArguments>();
  CLI::App* verb = app.add_subcommand("plot", "Draw runs as a page for a browser");
  verb->add_option("runs", options->runs, "Folders of runs, or files as their metrics.jsonl")
      ->required();
  verb->add_option("--html", options->html, "File to write: a page that needs no other file")
      ->required();
  verb->add_flag("--follow", options->follow,
                 "Write it anew while the runs go on; an open page shows what is new");
  verb->add_option("--every", options->every, "With --follow: seconds between (default 5)")
      ->check(CLI::Range(1, 86400));
  verb->callback([options, &action] { action = [options] { return plot(*options); }; });
}

}  // namespace zinc::apps
