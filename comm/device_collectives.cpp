#include "comm/device_collectives.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/host_communicator.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/staged_communicator.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/executor.h"

namespace zinc::comm {
namespace {

// The place of a rank's GPU, in a form that all ranks can compare.
struct Seat {
  std::array<char, 64> host{};
  std::array<char, 40> boot{};  // two hosts may have one name
  std::array<char, 24> bus{};
  bool absent = false;
  bool has_nccl = false;  // the library is there
  friend bool operator==(const Seat&, const Seat&) = default;
};

template <size_t N>
void keep(std::array<char, N>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(N - 1, text.size()));
}

Seat seat_of(Device device) {
  Seat seat;
  gethostname(seat.host.data(), seat.host.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  keep(seat.boot, boot);
  if (!device.is_cuda()) return seat;
  const std::vector<CudaDeviceInfo> gpus = cuda_devices();
  const auto index = static_cast<size_t>(device.index);
  if (index < gpus.size()) keep(seat.bus, gpus[index].bus_id);
  return seat;
}

// Why NCCL cannot serve these ranks; empty: it can. The same on every rank.
struct Obstacle {
  std::string text;
  std::string cure = "start one rank per GPU";
  bool absent = false;  // a rank that will say itself what ails it
};

Obstacle find_obstacle(Communicator& host, Device device, bool absent) {
  Seat mine = seat_of(device);
  mine.absent = absent;
  mine.has_nccl = why_no_nccl().empty();
  std::vector<Seat> seats(static_cast<size_t>(host.size()));
  const auto stream = make_inline_stream("seats", 0, nullptr);
  constexpr auto kBytes = int64_t{sizeof(Seat)};
  Seat copy = mine;
  host.all_gather({.shard = View(&copy, DType::u8, Shape{kBytes}),
                   .out = View(seats.data(), DType::u8, Shape{kBytes * host.size()})},
                  *stream)
      .wait();
  for (size_t r = 0; r < seats.size(); ++r) {
    if (seats[r].absent) return {.text = str("rank ", r, " cannot go on"), .absent = true};
  }
  for (size_t r = 0; r < seats.size(); ++r) {
    if (seats[r].bus[0] == '\0') return {str("rank ", r, " has no GPU")};
    if (!seats[r].has_nccl) {
      return {str("rank ", r, " finds no NCCL"),
              "install it on that host (there, zinc report names what is missing)"};
    }
    std::vector<int> ranks;
    for (size_t other = r; other < seats.size(); ++other) {
      if (seats[other] == seats[r]) ranks.push_back(static_cast<int>(other));
    }
    if (ranks.size() < 2) continue;
    return {str(name_ranks(ranks), " share the GPU ", seats[r].bus.data(), " of ",
                seats[r].host.data())};
  }
  return {};
}

}  // namespace

DeviceCollectives parse_device_collectives(std::string_view name) {
  if (name == "auto") return DeviceCollectives::automatic;
  if (name == "mpi") return DeviceCollectives::staged;
  if (name == "nccl") return DeviceCollectives::nccl;
  throw ConfigError(str("collectives between GPUs: auto, mpi or nccl, not '", name, "'"));
}

std::string planned_backend(DeviceCollectives wish, Device device, bool spread) {
  // A build without CUDA plans for another one.
  const bool has_nccl = built_with_nccl() || cuda_versions().empty();
  const bool nccl = wish == DeviceCollectives::nccl ||
                    (wish == DeviceCollectives::automatic && spread && has_nccl);
  return device.is_cuda() && nccl ? "nccl" : "mpi";
}

ChosenCollectives serve_device(std::unique_ptr<Communicator> host, Device device,
                               DeviceCollectives wish) {
  if (wish == DeviceCollectives::given) return {.communicator = std::move(host)};
  if (wish == DeviceCollectives::absent) {
    if (host->size() > 1 && built_with_nccl()) find_obstacle(*host, device, true);
    return {.communicator = std::move(host)};
  }
  if (host->size() == 1 && wish != DeviceCollectives::nccl) {
    return {.communicator = make_staged(std::move(host), device)};
  }
  auto* const of_host = dynamic_cast<HostCommunicator*>(host.get());
  Obstacle obstacle;
  if (wish == DeviceCollectives::staged || of_host == nullptr) {
    obstacle.text = "as asked";
  } else if (!built_with_nccl()) {
    obstacle = {"this build has no NCCL",
                "install libnccl-dev for the CUDA toolkit in use and configure again"};
  } else {
    obstacle = find_obstacle(*host, device, false);
  }
  if (obstacle.text.empty()) {
    host.release();
    return {.communicator = make_nccl(std::unique_ptr<HostCommunicator>(of_host), device),
            .how = str("NCCL ", nccl_version())};
  }
  if (wish == DeviceCollectives::nccl && !obstacle.absent) {
    throw CommError(str("NCCL cannot serve these ranks: ", obstacle.text, ": ", obstacle.cure,
                        ", or have the host's memory carry collectives (--comm mpi)"));
  }
  return {.communicator = make_staged(std::move(host), device),
          .how = str("staged through host memory: ", obstacle.text)};
}

}  // namespace zinc::comm
