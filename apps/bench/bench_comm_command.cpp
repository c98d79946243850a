// zinc bench comm: the collectives of a world of ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/bench/bench_command.h"
#include "apps/help/help_text.h"
#include "bench/comm/comm_bench.h"
#include "comm/local/local.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/atomic_file.h"

namespace zinc::apps {
namespace {

struct BenchCommArguments {
  bench::CommBenchOptions bench;
  std::string device = "cpu";
  std::string comm = "auto";
  std::string dtype = "f32";
  std::string json;
  int ranks = 0;
  bool wire = false;
};

void measure(comm::World& world, const BenchCommArguments& options) {
  const auto rows = bench::run_comm_bench(world, options.bench);
  if (!world.is_main()) return;
  const std::string& how = world.device_collectives();
  fmt::print("{} ranks, backend {}{}{}, {}, {}\n{}", world.size(), world.communicator().backend(),
             how.empty() ? "" : ", ", how, options.device, options.dtype, bench::to_table(rows));
  if (!options.json.empty()) files::write_file_atomically(options.json, bench::to_json(rows));
}

int run(BenchCommArguments options) {
  const auto dtype = parse_dtype(options.dtype);
  if (!dtype || !is_float(*dtype)) {
    throw ConfigError(fmt::format("--dtype must be f32, bf16 or f16, not '{}'", options.dtype));
  }
  options.bench.dtype = *dtype;
  const comm::ConnectOptions connect{
      .device = parse_device(options.device),
      .spread_devices = options.device == "cuda",
      .device_collectives = comm::parse_device_collectives(options.comm),
      .shared_memory = !options.wire};
  if (options.ranks > 0) {
    comm::run_local_ranks(options.ranks, connect,
                          [&](comm::World& world) { measure(world, options); });
    return kDone;
  }
  comm::World world = comm::connect(connect);
  measure(world, options);
  return kDone;
}

}  // namespace

void add_bench_comm_command(CLI::App& bench_verb, Action& action) {
  auto options = std::make_shared<BenchCommArguments>();
  CLI::App* verb = bench_verb.add_subcommand(
      "comm", "Collectives of the world that a launcher made, or of threads");
  verb->add_option("--ranks", options->ranks, "Ranks as threads of this process")
      ->check(CLI::Range(1, 64));
  verb->add_option("--device", options->device, "cpu (default), cuda or cuda:<i>");
  verb->add_option("--comm", options->comm, "Between GPUs: auto (default), mpi or nccl");
  verb->add_option("--dtype", options->dtype, "f32 (default), bf16 or f16");
  verb->add_option("--min", options->bench.min_bytes, "Of the larger buffer (default 1024)");
  verb->add_option("--max", options->bench.max_bytes, "Sizes grow by 4 (default 64 MiB)");
  verb->add_option("--seconds", options->bench.seconds, "Per collective and size (default 0.3)");
  verb->add_flag("--wire", options->wire, "Through MPI where shared memory would do");
  verb->add_option("--json", options->json, "Write the results to a file");
  begin_help(*verb, {"--ranks", "--device", "--dtype", "--min", "--max", "--json"},
             "zinc bench comm --ranks 2", "docs/communication.md");
  put_into(*verb, kOfMeasuring, {"--seconds"});
  put_into(*verb, kOfRanks, {"--comm", "--wire"});
  verb->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace zinc::apps
