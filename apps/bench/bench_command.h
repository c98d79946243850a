// apps/bench/bench_command.h: the verbs of `zinc bench` that have files of their own.
#pragma once

#include "apps/command.h"

namespace zinc::apps {

void add_bench_kernels_command(CLI::App& bench, Action& action);
void add_bench_comm_command(CLI::App& bench, Action& action);

}  // namespace zinc::apps
