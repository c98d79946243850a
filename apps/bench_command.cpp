// zinc bench: how fast kernels and training are, beside what the machine can do.
#include <CLI/CLI.hpp>

#include "apps/command.h"

namespace zinc::apps {

void add_bench_command(CLI::App& app, Action& action) {
  static_cast<void>(app);
  static_cast<void>(action);
}

}  // namespace zinc::apps
