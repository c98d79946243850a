#include "core/device_checks.h"

#include "core/cuda_backend.h"
#include "core/error.h"

namespace zinc {

void require_device(const Device& device, DType dtype, bool fp8) {
  if (device.is_cpu() || device.meta) return;
  const std::string why = why_no_cuda_device();
  if (!why.empty()) throw ConfigError(str("device ", device, ": ", why));
  const std::vector<CudaDeviceInfo> gpus = cuda_devices();
  const auto count = static_cast<int64_t>(gpus.size());
  if (device.index >= count) {
    throw ConfigError(str("device ", device, ": this machine has ", count,
                          " GPU(s); the last one is cuda:", count - 1));
  }
  const CudaDeviceInfo& gpu = gpus[static_cast<size_t>(device.index)];
  if (dtype == DType::bf16 && !gpu.has_bf16()) {
    throw ConfigError(str("device ", device, " (", gpu.name, ", compute capability ", gpu.major,
                          ".", gpu.minor,
                          ") does not compute in bf16, which begins with 8.0: use fp16 or fp32"));
  }
  if (fp8 && !gpu.has_fp8()) {
    throw ConfigError(str("device ", device, " (", gpu.name, ", compute capability ", gpu.major,
                          ".", gpu.minor,
                          ") does not multiply 8 bits, which begins with 8.9: leave zinc.fp8 out"));
  }
  if (dtype == DType::f64) {
    throw ConfigError(
        str("device ", device, ": f64 is computed on the CPU alone; use f32, bf16 or f16"));
  }
}

}  // namespace zinc
