// zinc_bench_comm: the collectives of the world that the launcher made.
//   mpirun --bind-to none -np 2 zinc_bench_comm [--wire] [--dtype D] [--min BYTES] [--max BYTES]
//                                               [--seconds S] [--json FILE]
//   zinc_bench_comm --threads N ...      ranks as threads of this process
// Beside it: zinc_bench_plain_allreduce, MPI_Allreduce alone on the same sizes.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "bench/comm/comm_bench.h"
#include "comm/local/local.h"

namespace {

struct Arguments {
  zinc::bench::CommBenchOptions bench;
  zinc::comm::ConnectOptions connect;
  int threads = 0;
  std::string json;
};

Arguments parse(int argc, char** argv) {
  Arguments parsed;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--wire") {
      parsed.connect.shared_memory = false;
      continue;
    }
    if (i + 1 >= argc) throw std::runtime_error("usage: see the head of bench/comm_main.cpp");
    const std::string value = argv[++i];
    if (flag == "--min") {
      parsed.bench.min_bytes = std::stoll(value);
    } else if (flag == "--max") {
      parsed.bench.max_bytes = std::stoll(value);
    } else if (flag == "--seconds") {
      parsed.bench.seconds = std::stod(value);
    } else if (flag == "--dtype") {
      parsed.bench.dtype = zinc::parse_dtype(value).value();
    } else if (flag == "--threads") {
      parsed.threads = std::stoi(value);
    } else if (flag == "--json") {
      parsed.json = value;
    } else {
      throw std::runtime_error("unknown option " + flag);
    }
  }
  return parsed;
}

void report(zinc::comm::World& world, const Arguments& arguments) {
  const auto rows = zinc::bench::run_comm_bench(world, arguments.bench);
  if (!world.is_main()) return;
  std::printf("%d ranks, backend %s, %s\n%s", world.size(),
              std::string(world.communicator().backend()).c_str(),
              std::string(zinc::name_of(arguments.bench.dtype)).c_str(),
              zinc::bench::to_table(rows).c_str());
  if (!arguments.json.empty()) std::ofstream(arguments.json) << zinc::bench::to_json(rows);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    if (arguments.threads > 0) {
      zinc::comm::run_local_ranks(arguments.threads, arguments.connect,
                                  [&](zinc::comm::World& world) { report(world, arguments); });
    } else {
      zinc::comm::World world = zinc::comm::connect(arguments.connect);
      report(world, arguments);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
