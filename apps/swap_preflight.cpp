#include "apps/swap_preflight.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <span>

#include "bench/samples.h"
#include "core/error.h"
#include "offload/file.h"
#include "offload/storage.h"
#include "train/metrics/progress.h"

namespace zinc::apps {
namespace {

std::set<std::string> swap_folders(const zero::EngineConfig& engine) {
  std::set<std::string> folders;
  for (const zero::OffloadConfig* place :
       {&engine.zero.offload_optimizer, &engine.zero.offload_param}) {
    if (place->device == zero::OffloadDevice::nvme) folders.insert(place->nvme_path);
  }
  const zero::RecomputeConfig& recompute = engine.recompute;
  if (recompute.is_on() && recompute.inputs_on() == zero::OffloadDevice::nvme) {
    folders.insert(recompute.offload.nvme_path);
  }
  return folders;
}

}  // namespace

bool swaps(const zero::EngineConfig& engine) { return !swap_folders(engine).empty(); }

bool offloads(const zero::EngineConfig& engine) {
  return engine.zero.offload_optimizer.device != zero::OffloadDevice::none ||
         engine.zero.offload_param.device != zero::OffloadDevice::none ||
         (engine.recompute.is_on() && engine.recompute.inputs_on() != zero::OffloadDevice::none);
}

std::vector<std::string> swap_notes(const zero::EngineConfig& engine) {
  std::vector<std::string> notes;
  for (const std::string& folder : swap_folders(engine)) {
    try {
      const std::unique_ptr<offload::Storage> storage = offload::make_storage(
          {.queue_depth = engine.aio.queue_depth, .threads = engine.aio.threads});
      if (storage->way() != "libaio") {
        notes.push_back(fmt::format("{} goes through a {}", folder, storage->way()));
      }
      if (!offload::open_unnamed(folder).is_direct()) {
        notes.push_back(
            fmt::format("{} has no O_DIRECT: swapped bytes pass the page cache", folder));
      }
    } catch (const IoError&) {  // the engine meets it too, and says so on the rank that it is about
    }
  }
  if (!engine.verify_swap) notes.emplace_back("swapped bytes are not verified (\"verify_swap\")");
  return notes;
}

plan::Disk probe_disk(const std::string& directory, const zero::AioConfig& aio) {
  constexpr size_t kProbeBytes = size_t{64} << 20;
  const offload::File file = offload::open_unnamed(directory);  // a killed run leaves none
  offload::reserve(file, kProbeBytes);
  const auto storage = offload::make_storage({.block_size = aio.block_size,
                                              .queue_depth = aio.queue_depth,
                                              .threads = aio.threads,
                                              .single_submit = aio.single_submit,
                                              .overlap_events = aio.overlap_events});
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, kProbeBytes),
                                                      std::free);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory.get(), 0x5a, kProbeBytes);
  const std::span<std::byte> bytes(static_cast<std::byte*>(memory.get()), kProbeBytes);
  const auto write = [&] { storage->write(file, 0, bytes).wait(); };
  write();  // the first one also changes the file system's own records
  constexpr auto kBytes = static_cast<double>(kProbeBytes);
  const double write_seconds = bench::seconds_of(write);
  const double read_seconds = bench::seconds_of([&] { storage->read(file, 0, bytes).wait(); });
  return {.read_bytes_per_second = kBytes / read_seconds,
          .write_bytes_per_second = kBytes / write_seconds};
}

std::optional<SwapDisk> swap_disk(const zero::EngineConfig& engine,
                                  const std::optional<plan::Hardware>& hardware) {
  if (!swaps(engine)) return std::nullopt;
  if (hardware && hardware->disk) return SwapDisk{*hardware->disk, "by the hardware file"};
  const std::string folder = *swap_folders(engine).begin();
  try {
    return SwapDisk{probe_disk(folder, engine.aio), "measured now in " + folder};
  } catch (const IoError& error) {
    if (error.error_number() == ETIMEDOUT) throw;
    return std::nullopt;
  }
}

std::string expected_swap(const plan::Plan& plan, const std::optional<SwapDisk>& disk) {
  const offload::SwapTraffic& swap = plan.fullest.swap;
  const std::string bytes =
      fmt::format("swap per step and rank: {} read, {} written",
                  train::format_bytes(swap.bytes_read), train::format_bytes(swap.bytes_written));
  if (!disk) return bytes;
  const double seconds =
      plan.options.ranks_per_host * disk->speed.seconds(swap.bytes_read, swap.bytes_written);
  return bytes + fmt::format("; {:.1f} ms at {:.2f} and {:.2f} GB/s ({})", 1e3 * seconds,
                             disk->speed.read_bytes_per_second / 1e9,
                             disk->speed.write_bytes_per_second / 1e9, disk->source);
}

std::string expected_copies(const plan::Plan& plan) {
  const plan::RankPlan& rank = plan.fullest;
  std::string text = fmt::format("host memory per step and rank: {} to the device, {} back",
                                 train::format_bytes(rank.copies.to_device),
                                 train::format_bytes(rank.copies.to_host));
  if (!rank.time || !plan.options.hardware->host) return text;
  const plan::HostRates& host = *plan.options.hardware->host;
  const plan::OffloadTime& time = rank.time->offload;
  text += fmt::format("; {:.1f} ms at {:.2f} GB/s and {:.1f} ms at {:.2f} GB/s",
                      1e3 * time.to_device, host.to_device_bytes_per_second / 1e9,
                      1e3 * time.to_host, host.to_host_bytes_per_second / 1e9);
  if (time.on_host > 0.0)
    text += fmt::format(", {:.1f} ms computed by the host", 1e3 * time.on_host);
  return text + " (by the hardware file)";
}

}  // namespace zinc::apps
