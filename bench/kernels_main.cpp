// zinc_bench_kernels [--filter RE] [--json FILE] [--threads N] [--seconds S] [--hot] | --ceilings
// Verifies every kernel against its f64 path and times it. Exit code 1 when one deviates.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "bench/ceilings.h"
#include "bench/kernel_bench.h"
#include "bench/kernel_report.h"
#include "core/error.h"

namespace {

struct Arguments {
  zinc::bench::KernelBenchOptions options;
  std::string json;
  int threads = 0;
  bool ceilings = false;
};

Arguments parse(int argc, char** argv) {
  Arguments args;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> std::string {
      zinc::require(i + 1 < argc, name, " needs a value");
      return argv[++i];
    };
    if (name == "--filter") {
      args.options.filter = value();
    } else if (name == "--json") {
      args.json = value();
    } else if (name == "--threads") {
      args.threads = std::atoi(value().c_str());
    } else if (name == "--seconds") {
      args.options.min_seconds = std::atof(value().c_str());
    } else if (name == "--hot") {
      args.options.cold = false;
    } else if (name == "--ceilings") {
      args.ceilings = true;
    } else {
      zinc::require(false, "unknown argument ", name,
                    "; known: --filter RE --json FILE --threads N --seconds S --hot --ceilings");
    }
  }
  return args;
}

int run(const Arguments& args) {
  using namespace zinc::bench;
  zinc::Context context(zinc::ContextOptions{.num_threads = args.threads});
  if (args.ceilings) {
    fmt::print("{}", table_of(measure_ceilings(context)));
    return 0;
  }
  fmt::print("{}", table_header());
  const KernelReport report =
      run_kernel_benches(context, args.options, [](const KernelResult& result) {
        fmt::print("{}", table_row(result));
        std::fflush(stdout);
      });
  if (!args.json.empty()) {
    std::ofstream file(args.json);
    file << json_of(report);
    file.close();
    zinc::require(static_cast<bool>(file), "cannot write ", args.json);
  }
  return report.all_verified() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "zinc_bench_kernels: {}\n", error.what());
    return 64;
  }
}
