// zinc report: what this build and this machine have, with a cure for each line that fails.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "apps/command.h"
#include "apps/machine.h"
#include "comm/nccl/nccl_communicator.h"
#include "core/build_info.h"
#include "core/cuda_backend.h"
#include "core/exit_codes.h"
#include "files/json/value.h"
#include "files/json/writer.h"
#include "kernels/attention_library.h"
#include "offload/storage.h"
#include "train/metrics/progress.h"

namespace zinc::apps {
namespace {

struct Line {
  std::string name;
  std::string value;
  bool good = true;
  std::string cure;  // if not good
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string cure_of(const BuildDependency& dependency) {
  if (dependency.package.empty()) return "not available for this system";
  return fmt::format("apt-get install {} and build again", dependency.package);
}

std::vector<Line> build_lines() {
  const BuildInfo info = build_info();
  std::vector<Line> lines{
      {"zinc", fmt::format("{} ({})", info.version, info.git_revision)},
      {"compiler", fmt::format("{}, {}", info.compiler, info.build_type)},
  };
  for (const BuildDependency& dependency : info.dependencies) {
    lines.push_back({std::string(dependency.name),
                     dependency.found ? std::string(dependency.version) : "missing",
                     dependency.found, dependency.found ? "" : cure_of(dependency)});
  }
  return lines;
}

std::vector<Line> machine_lines() {
  const Machine machine = inspect_machine();
  std::vector<Line> lines{
      {"system", machine.kernel},
      {"cpu", machine.cpu_model},
      {"cores", fmt::format("{}", machine.cores)},
      {"instruction sets", joined(machine.isa)},
      {"memory", fmt::format("{}, {} available", train::format_bytes(machine.memory_bytes),
                             train::format_bytes(machine.available_bytes))},
  };
  for (const CudaDeviceInfo& gpu : cuda_devices()) {
    lines.push_back(
        {"gpu", fmt::format("{}, {}, compute capability {}.{}", gpu.name,
                            train::format_bytes(gpu.memory_bytes), gpu.major, gpu.minor)});
  }
  if (!cuda_versions().empty()) {
    const std::string why = why_no_cuda_device();
    const std::string no_nccl = comm::why_no_nccl();
    lines.push_back({"NCCL library", no_nccl.empty() ? comm::nccl_version() : "missing",
                     no_nccl.empty(), no_nccl});
    lines.push_back({"CUDA driver", why.empty() ? cuda_versions() : "no GPU", why.empty(), why});
    const auto attention = kernels::open_attention_library();
    const std::string asked = kernels::to_string(kernels::attention_table());
    const std::string used =
        asked.empty() ? "not asked: its table has no line yet" : "asked for " + asked;
    lines.push_back({"attention library",
                     attention.library != nullptr ? attention.library->name() + ", " + used
                                                  : "own kernels only",
                     attention.library != nullptr, attention.why_not});
  }
  const bool fma = std::find(machine.isa.begin(), machine.isa.end(), "fma") != machine.isa.end();
  if (!fma) {
    lines[3].good = false;
    lines[3].cure = "kernels need FMA (x86-64-v3); without it the plain loops run, slowly";
  }
  const int64_t locked = machine.locked_memory_limit;
  const std::unique_ptr<offload::Storage> storage = offload::make_storage({});
  const bool asynchronous = storage->way() == "libaio";
  lines.push_back({"swap files", storage->way(), asynchronous,
                   asynchronous ? "" : "offload to NVMe is slower this way"});
  lines.push_back({"lockable memory", locked < 0 ? "unlimited" : train::format_bytes(locked)});
  return lines;
}

files::json::Value as_json(const std::vector<Line>& lines) {
  files::json::Object object;
  for (const Line& line : lines) {
    files::json::Object entry;
    entry.set("value", line.value);
    entry.set("good", line.good);
    if (!line.good) entry.set("cure", line.cure);
    object.set(line.name, std::move(entry));
  }
  return object;
}

void print(const std::string& title, const std::vector<Line>& lines) {
  fmt::print("{}\n", title);
  for (const Line& line : lines) {
    fmt::print("  {:<4} {:<18} {}\n", line.good ? "ok" : "--", line.name, line.value);
    if (!line.good) fmt::print("       {:<18} cure: {}\n", "", line.cure);
  }
}

int report(bool as_json_text) {
  const std::vector<Line> build = build_lines();
  const std::vector<Line> machine = machine_lines();
  if (as_json_text) {
    files::json::Object root;
    root.set("build", as_json(build));
    root.set("machine", as_json(machine));
    fmt::print("{}\n", files::json::write(root));
    return kDone;
  }
  print("build", build);
  print("machine", machine);
  return kDone;
}

}  // namespace

void add_report_command(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("report", "What this build and this machine have");
  verb->add_flag("--json", *json, "Print JSON");
  verb->callback([json, &action] { action = [json] { return report(*json); }; });
}

}  // namespace zinc::apps
