// kernels/cuda/cudnn_descriptor.h: cuDNN's graph interface: the functions that are called, found by
// name, and its descriptors as values. Included by *_cudnn sources alone.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/shared_library.h"

namespace zinc::kernels::cuda {

// All null until load().
struct CudnnFunctions {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  // Loads the library. Returns what is missing, "" where nothing is.
  std::string load() {
    SharedLibrary library({.file = "libcudnn.so.9",
                           .what = "cuDNN 9",
                           .cure = "install it, as the package nvidia-cudnn-cu13 for one, and name "
                                   "its folder in LD_LIBRARY_PATH",
                           .newer = "update cuDNN to 9.16 or later"});
    library.find(version, "cudnnGetVersion");
    library.find(create, "cudnnCreate");
    library.find(destroy, "cudnnDestroy");
    library.find(set_stream, "cudnnSetStream");
    library.find(error_string, "cudnnGetErrorString");
    library.find(last_error, "cudnnGetLastErrorString");
    library.find(create_descriptor, "cudnnBackendCreateDescriptor");
    library.find(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    library.find(set_attribute, "cudnnBackendSetAttribute");
    library.find(get_attribute, "cudnnBackendGetAttribute");
    library.find(finalize, "cudnnBackendFinalize");
    library.find(execute, "cudnnBackendExecute");
    return library.missing();
  }

  // An error message with the library's own words.
  std::string words_of(cudnnStatus_t status, const char* what) const {
    std::array<char, 512> words{};
    last_error(words.data(), words.size());
    return str("cuDNN: ", what, ": ", error_string(status), ": ", words.data());
  }
  // Throws CudaError.
  void check(cudnnStatus_t status, const char* what) const {
    if (status != CUDNN_STATUS_SUCCESS) throw CudaError(words_of(status, what));
  }
};

// One descriptor of the graph interface.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnFunctions& cudnn, cudnnBackendDescriptorType_t type) : cudnn_(&cudnn) {
    cudnn.check(cudnn.create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
  }
  ~CudnnDescriptor() {
    if (raw_ != nullptr) cudnn_->destroy_descriptor(raw_);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : cudnn_(other.cudnn_), raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(cudnn_, other.cudnn_);
    std::swap(raw_, other.raw_);
    return *this;
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value* values,
           size_t count) {
    cudnn_->check(cudnn_->set_attribute(raw_, name, type, static_cast<int64_t>(count), values),
                  "cudnnBackendSetAttribute");
  }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Value value) {
    set(name, type, &value, 1);
  }
  void link(cudnnBackendAttributeName_t name, const CudnnDescriptor& to) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, to.raw_);
  }
  // How many values there are, at most `count` of which are written.
  template <class Value>
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Value* values,
              size_t count) const {
    int64_t there = 0;
    cudnn_->check(
        cudnn_->get_attribute(raw_, name, type, static_cast<int64_t>(count), &there, values),
        "cudnnBackendGetAttribute");
    return there;
  }
  void finalize(const char* what) { cudnn_->check(cudnn_->finalize(raw_), what); }

 private:
  const CudnnFunctions* cudnn_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace zinc::kernels::cuda
