#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "core/cuda/status.h"
#include "core/cuda_backend.h"

namespace zinc {
namespace {

int64_t attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  cuda::check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

std::string bus_id_of(int index) {
  char text[32] = "";
  cuda::check(cudaDeviceGetPCIBusId(text, sizeof text, index), "cudaDeviceGetPCIBusId");
  return text;
}

CudaDeviceInfo info_of(int index) {
  cudaDeviceProp properties;
  cuda::check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {.name = properties.name,
          .major = static_cast<int>(attribute(cudaDevAttrComputeCapabilityMajor, index)),
          .minor = static_cast<int>(attribute(cudaDevAttrComputeCapabilityMinor, index)),
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .l2_bytes = attribute(cudaDevAttrL2CacheSize, index),
          .clock_hz = 1000 * attribute(cudaDevAttrClockRate, index),
          .memory_clock_hz = 1000 * attribute(cudaDevAttrMemoryClockRate, index),
          .memory_bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, index),
          .bus_id = bus_id_of(index)};
}

}  // namespace

std::vector<CudaDeviceInfo> cuda_devices() {
  int count = 0;
  std::vector<CudaDeviceInfo> devices;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return devices;
  }
  try {
    for (int i = 0; i < count; ++i) devices.push_back(info_of(i));
  } catch (const CudaError&) {
    devices.clear();
  }
  return devices;
}

std::string why_no_cuda_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
      return "no NVIDIA driver is installed: install one, or use device cpu";
    }
    return "the NVIDIA driver is older than this build's CUDA runtime: update the driver";
  }
  if (status != cudaSuccess && status != cudaErrorNoDevice) {
    return str("CUDA finds no device: ", cudaGetErrorString(status));
  }
  if (count > 0) return "";
  return "no NVIDIA GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device cpu";
}

std::string cuda_versions() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const auto text = [](int version) { return str(version / 1000, ".", version % 1000 / 10); };
  return str("driver ", text(driver), ", runtime ", text(runtime));
}

void use_cuda_device(Device device) {
  const std::string why = why_no_cuda_device();
  if (!why.empty()) throw CudaError(str(device, ": ", why));
  int count = 0;
  cuda::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (device.index >= count) {
    throw CudaError(
        str(device, ": this machine has ", count, " GPU(s); the last one is cuda:", count - 1));
  }
  cuda::check(cudaSetDevice(device.index), str("cudaSetDevice(", device.index, ")"));
}

std::string name_of_cuda_kernel(const void* entry) {
  const char* name = nullptr;
  if (cudaFuncGetName(&name, entry) != cudaSuccess) {
    cudaGetLastError();
    return str("kernel ", reinterpret_cast<uintptr_t>(entry));
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return plain != nullptr ? std::string(plain.get()) : std::string(name);
}

}  // namespace zinc
