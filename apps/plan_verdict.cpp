#include "apps/plan_verdict.h"

#include <vector>

#include <fmt/format.h>

#include "apps/machine.h"
#include "core/cuda_backend.h"

namespace zinc::apps {

namespace {

double mib(int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

}  // namespace

DeviceRoom room_for(Device device, int ranks_per_host) {
  if (device.is_cuda()) {
    const std::vector<CudaDeviceInfo> devices = cuda_devices();
    if (devices.empty()) return {};
    const CudaDeviceInfo& first = devices.front();
    return {first.memory_bytes,
            fmt::format("{} has {:.0f} MiB", first.name, mib(first.memory_bytes))};
  }
  const int64_t bytes = inspect_machine().available_bytes;
  return {bytes / ranks_per_host,
          fmt::format("this machine has {:.0f} MiB free, {:.0f} for each of {} ranks", mib(bytes),
                      mib(bytes / ranks_per_host), ranks_per_host)};
}

std::string verdict(const plan::Plan& plan, const hub::ModelConfigFile& model,
                    const train::Config& config, const DeviceRoom& room) {
  if (room.bytes == 0) return "";
  // The system sees segments; a run reserves a little more than it hands out.
  const int64_t peak = plan.fullest.peaks.reserved[static_cast<size_t>(Tier::device)].peak;
  if (peak <= room.bytes) return fmt::format("fits: {}\n", room.words);
  std::string text = fmt::format("does not fit: {}\n", room.words);
  const auto change = plan::cheapest_change(model, config, plan.options, room.bytes);
  if (change) {
    text += fmt::format("would fit with {}: {:.0f} MiB per rank\n", change->words,
                        mib(change->device_peak));
  } else {
    text += "no stage, recomputation or micro-batch makes it fit: take more ranks or hosts\n";
  }
  return text;
}

}  // namespace zinc::apps
