// core/processors.h: how many processors this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace zinc {

// Processors that threads of this process can keep busy at once: those of the calling thread's
// affinity, or fewer where a control group allows less time. A share of a processor counts as one.
// At least 1. The control group is asked at the first call.
int usable_processors();

// Processors' worth of time that the control groups of this process allow: the least quota over
// period of the group and its ancestors (cpu.max of version 2, cpu.cfs_quota_us of version 1).
// Empty where no group is limited. `root` is the folder of /proc and /sys.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// Bytes that the same groups allow (memory.max, memory.limit_in_bytes). Empty: no limit.
std::optional<int64_t> memory_quota(const std::filesystem::path& root = "/");

}  // namespace zinc
