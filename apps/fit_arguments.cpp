#include "apps/fit_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/hardware_file.h"
#include "apps/machine.h"
#include "apps/plan_verdict.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/json/writer.h"

namespace zinc::apps {
namespace {

constexpr int kMostThreads = 8;
// Memory of a rank's GPU if none is here to ask, and no option sets it: that of an A100 or H100.
constexpr int64_t kDefaultDeviceBytes = int64_t{80} << 30;

// Bytes for one rank of "141GiB", "500GB/rank", "2TiB/host"; where the unit is not said,
// `per_host`.
int64_t bytes_of(const std::string& option, std::string_view text, bool per_host,
                 int ranks_per_host) {
  const std::string_view whole = text;
  if (text.ends_with("/host")) per_host = true;
  if (text.ends_with("/rank")) per_host = false;
  text = text.substr(0, text.find('/'));
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const std::pair<std::string_view, double> units[] = {
      {"", 1.0},       {"B", 1.0},  {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  for (const auto& [name, factor] : units) {
    if (name != unit || error != std::errc() || !(number >= 0.0) || number * factor > 1e18)
      continue;
    return static_cast<int64_t>(number * factor / (per_host ? ranks_per_host : 1));
  }
  throw ConfigError(fmt::format("{} must be a size as in 141GiB, 500GB/rank or 2TiB/host, not '{}'",
                                option, whole));
}

plan::FitLimits limits_of(const FitArguments& arguments, const FitRun& run) {
  const int ranks = run.plan.ranks_per_host;
  plan::FitLimits limits;
  limits.device =
      arguments.device_memory.empty() ? run.plan.device_room : device_memory_of(arguments, ranks);
  if (limits.device <= 0) limits.device = kDefaultDeviceBytes;
  if (!arguments.host_memory.empty()) {
    limits.host = bytes_of("--host-memory", arguments.host_memory, true, ranks);
  }
  limits.one_pool = run.plan.device.is_cpu() && !limits.host;
  if (arguments.nvme_memory.empty() != arguments.nvme_path.empty()) {
    throw ConfigError(
        "--nvme-memory and --nvme-path go together: how much, and in which directory");
  }
  if (!arguments.nvme_memory.empty()) {
    limits.nvme = bytes_of("--nvme-memory", arguments.nvme_memory, true, ranks);
  }
  return limits;
}

std::string read_config(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{16} << 20;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw ConfigError(fmt::format("there is no configuration file '{}'", path));
  }
  return files::read_text_file(path, kMostBytes);
}

}  // namespace

int64_t device_memory_of(const FitArguments& arguments, int ranks_per_host) {
  const int64_t bytes = bytes_of("--device-memory", arguments.device_memory, false, ranks_per_host);
  if (bytes <= 0) throw ConfigError("--device-memory must be positive");
  return bytes;
}

void add_fit_options(CLI::App& verb, FitArguments& arguments) {
  CLI::Option* fit =
      verb.add_flag("--fit", arguments.fit,
                    "Search the configuration that fits and is the fastest; keys of --config stay");
  const auto option = [&](const std::string& name, auto& value, const std::string& help) {
    return verb.add_option(name, value, help)->needs(fit);
  };
  option("--global-batch", arguments.global_batch,
         "With --fit: sequences of a step over all ranks (default: train_batch_size)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--device-memory", arguments.device_memory,
                  "With --fit, or for keys that are \"auto\": of a rank's device, as in 141GiB "
                  "(default: what is here)");
  option("--host-memory", arguments.host_memory,
         "With --fit: of a host for offload, as in 2TiB, or 100GiB/rank (default: none)");
  option("--nvme-memory", arguments.nvme_memory,
         "With --fit: of a host's disk for offload, as in 4TB (default: none)");
  option("--nvme-path", arguments.nvme_path, "With --nvme-memory: the directory");
  option("--write", arguments.write,
         "With --fit: writes the first answer's configuration to this file");
  option("--explain", arguments.explain,
         "With --fit: what this key costs, by its other values in the first answer");
  option("--max-plans", arguments.max_plans,
         "With --fit: candidates that are planned at most (default 400)")
      ->check(CLI::PositiveNumber);
}

int run_fit(const FitArguments& arguments, FitRun run) {
  plan::FitRequest request{.model = std::move(run.model),
                           .plan = run.plan,
                           .limits = limits_of(arguments, run),
                           .max_plans = arguments.max_plans,
                           .threads = std::clamp(inspect_machine().cores, 1, kMostThreads)};
  request.space.world = run.plan.world;
  request.space.meshes = run.plan.hardware.has_value();
  request.space.global_batch = arguments.global_batch;
  request.space.nvme_path = arguments.nvme_path;
  request.space.flags = run.flags;
  if (!run.config.empty()) {
    request.space.config_name = run.config;
    request.space.config = read_config(run.config);
  }
  if (arguments.device_memory.empty() && run.plan.device_room <= 0) {
    fmt::print(stderr,
               "note: no device is here to ask: each rank has a GPU of 80 GiB; "
               "--device-memory says another\n");
  }
  const plan::FitResult result = plan::fit(request);
  std::optional<plan::KeyCosts> costs;
  if (!arguments.explain.empty() && !result.best.empty()) {
    costs = plan::explain_key(request, result.best.front(), arguments.explain);
  }
  if (run.json) {
    fmt::print("{}\n", plan::json_of(result, request, costs));
  } else {
    fmt::print("{}{}", plan::describe(result, request),
               result.is_timed ? "" : how_to_get_hardware());
    if (costs) fmt::print("\n{}", plan::describe(*costs));
  }
  if (result.best.empty()) return kOutOfMemory;
  if (!arguments.write.empty()) {
    files::write_file_atomically(arguments.write, files::json::write(result.best.front().file, 2));
    if (!run.json) fmt::print("written: {}\n", arguments.write);
  }
  return kDone;
}

}  // namespace zinc::apps
