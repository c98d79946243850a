// plan/hardware.h: how fast a machine is, as the time model wants to know it.
//
// Read from a JSON file that `zinc bench ceilings --json` writes (docs/planning.md has every key).
// Rates are of one rank's device: of one GPU, or of all cores of a CPU host, which its ranks share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/device.h"
#include "core/work_log.h"
#include "files/json/value.h"

namespace zinc::plan {

// A transfer of n bytes that takes m messages one after the other lasts m * alpha + n / beta.
struct Link {
  double alpha_seconds = 0.0;     // of a message to one more peer
  double bytes_per_second = 0.0;  // beta: the rate at which a rank sends while all ranks do
};

struct CollectiveLinks {
  Link all_gather;
  Link reduce_scatter;  // with the sum
};

// A disk without other work; reads and writes take turns.
struct Disk {
  double read_bytes_per_second = 0.0;
  double write_bytes_per_second = 0.0;
  double seconds(int64_t bytes_read, int64_t bytes_written) const {
    return static_cast<double>(bytes_read) / read_bytes_per_second +
           static_cast<double>(bytes_written) / write_bytes_per_second;
  }
};

// The rates of a device's host: its memory, and the way there. For a CPU rank the way is a copy
// from one arena to another, and the host computes at the device's rate.
struct HostRates {
  int threads = 0;  // cuda only: threads of all ranks that were measured together
  // Copies of one rank from and to pinned memory, while all ranks copy.
  double to_device_bytes_per_second = 0.0;
  double to_host_bytes_per_second = 0.0;
  // cuda only: the bytes that AdamW on the CPU reads and writes in host memory, for the whole host.
  double update_bytes_per_second = 0.0;
};

// Rates by the dtype of a product; f64 takes f32's.
struct DTypeRates {
  double f32 = 0.0, bf16 = 0.0, f16 = 0.0;  // FLOP/s; 0: not given
  double at(DType dtype) const {
    return dtype == DType::bf16 ? bf16 : dtype == DType::f16 ? f16 : f32;
  }
};

struct Hardware {
  std::string name;
  std::string source;  // "measured" or "specification"
  DeviceKind device = DeviceKind::cpu;
  int threads = 0;  // cpu: that were measured together; 0 on a GPU
  double read_bytes_per_second = 0.0;
  double write_bytes_per_second = 0.0;
  DTypeRates gemm;
  DTypeRates attention;
  double other_flops = 0.0;
  double launch_seconds = 0.0;
  CollectiveLinks same_host;
  std::optional<CollectiveLinks> between_hosts;
  std::optional<Disk> disk;       // for swap files; the ranks of a host share it
  std::optional<HostRates> host;  // for the times of offload on a GPU
};

// Throws DataError, which names the place, the key and the values that it may have; IoError if
// there is no such file.
Hardware read_hardware(const std::string& path);
Hardware parse_hardware(const files::json::Value& root);
std::string json_of(const Hardware& hardware);

// A machine with ranks on it: how long work takes there.
class RankSpeed {
 public:
  // `threads` compute for each rank and `ranks_per_host` share a host; on a GPU both leave the
  // GPU's rates as they are. Throws ConfigError if the file lacks a rate that the run needs.
  RankSpeed(const Hardware& hardware, int threads, int ranks_per_host);

  // max(bytes / bandwidth, flops / rate) + launch for a kernel, alpha and beta for a collective,
  // bytes / link for a copy between host and device (where a CPU's file has no link, as a kernel),
  // bytes / rate of updates for computations of a GPU's host; alone on the machine. `threads`: of
  // the stream that runs it.
  double seconds(std::string_view label, const WorkCost& cost, int threads) const;

  int threads() const { return threads_; }
  // Cores for all of this rank's streams; 0: streams do not take turns on cores (GPU).
  double cores() const { return cores_; }
  bool host_computes() const { return hardware_.device == DeviceKind::cpu; }
  // Whether the work exists because of offload: copies, and computations of a GPU's host.
  bool is_offload(const WorkCost& cost) const;

 private:
  double offload_seconds(const WorkCost& cost) const;
  double collective_seconds(const Link CollectiveLinks::*link, double bytes,
                            const WorkCost& cost) const;

  Hardware hardware_;
  int threads_;
  int ranks_per_host_;
  double cores_ = 0.0;
  double bandwidth_share_ = 1.0;
};

}  // namespace zinc::plan
