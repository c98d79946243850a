#include "tests/emulator/functions.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "tests/emulator/include/cuda_runtime_api.h"

namespace zinc::emulator {
namespace {

struct Sizes {
  uint64_t threads = 0;
  size_t dynamic_bytes = 0;
};

std::mutex mutex;
std::map<std::pair<const void*, int>, size_t> opted_in;  // dynamic bytes, by kernel and device
std::map<const void*, Sizes> launched;
std::atomic<int64_t> opt_ins{0};

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

}  // namespace

Launch launch_of(const void* function, Size3 grid, Size3 block, size_t dynamic_shared_bytes) {
  Launch launch{.grid = grid, .block = block, .dynamic_shared_bytes = dynamic_shared_bytes};
  const std::lock_guard lock(mutex);
  const auto found = opted_in.find({function, current_device()});
  if (found != opted_in.end()) {
    launch.opted_in = true;
    launch.max_dynamic_bytes = found->second;
  }
  if (!why_refused(launch).empty()) return launch;
  Sizes& sizes = launched[function];
  sizes.threads = std::max(sizes.threads, block.count());
  sizes.dynamic_bytes = std::max(sizes.dynamic_bytes, dynamic_shared_bytes);
  return launch;
}

int64_t num_opt_ins() { return opt_ins; }
void forget_opt_ins() {
  const std::lock_guard lock(mutex);
  opted_in.clear();
}

bool write_launches(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  const std::lock_guard lock(mutex);
  for (const auto& [function, sizes] : launched) {
    Dl_info where{};
    if (dladdr(function, &where) == 0) continue;
    const auto offset =
        static_cast<const char*>(function) - static_cast<const char*>(where.dli_fbase);
    std::fprintf(file, "%llx %llu %zu\n", static_cast<unsigned long long>(offset),
                 static_cast<unsigned long long>(sizes.threads), sizes.dynamic_bytes);
  }
  return std::fclose(file) == 0;
}

}  // namespace zinc::emulator

using namespace zinc::emulator;  // NOLINT: this file is the other side of a C interface

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* use, const void*) {
  *use = {};
  return cudaSuccess;
}
// This process does not know the kernel's name in the program's symbol table.
cudaError_t cudaFuncGetName(const char** name, const void* function) {
  static std::map<const void*, std::string> names;
  const std::lock_guard lock(mutex);
  std::string& text = names[function];
  if (text.empty()) text = "kernel_" + std::to_string(reinterpret_cast<uintptr_t>(function));
  *name = text.c_str();
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > kMaxSharedBytes) {
    return cudaErrorInvalidValue;
  }
  ++opt_ins;
  const std::lock_guard lock(mutex);
  opted_in[{function, current_device()}] = static_cast<size_t>(value);
  return cudaSuccess;
}
