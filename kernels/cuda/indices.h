// kernels/cuda/indices.h: row numbers, token ids and labels of either index dtype, on the device.
//
// Note [Indices outside their range on a GPU]
// The host does not see an index in device memory when it launches a kernel, so no error that names
// a bad index can come from a launch. A kernel never reads or writes outside its table; what
// depends on a bad index becomes NaN (the bits 0xff.. for other dtypes), and gradients get nothing
// from it. It also leaves a record (core/index_fault.h), so that the next time the host waits for
// the device it throws the error that the CPU throws at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/index_fault.h"
#include "core/stream.h"
#include "core/view.h"

namespace zinc::kernels::cuda {

struct Indices {
  const int32_t* narrow = nullptr;
  const int64_t* wide = nullptr;

  Indices() = default;
  explicit Indices(const ConstView& view) {
    if (!view) return;
    if (view.dtype() == DType::i32) {
      narrow = view.data_as<int32_t>();
    } else {
      wide = view.data_as<int64_t>();
    }
  }
  __device__ __forceinline__ bool is_absent() const { return narrow == nullptr && wide == nullptr; }
  __device__ __forceinline__ int64_t operator[](int64_t i) const {
    return narrow != nullptr ? int64_t{narrow[i]} : wide[i];
  }
};

// The rows of a table, and where to record an index that is none of them.
class TableRows {
 public:
  TableRows() = default;
  // `op` and `name` (of the indices): string literals.
  TableRows(int64_t rows, const char* op, const char* name, StreamRef stream)
      : rows_(rows), op_(op), name_(name), fault_(index_fault_of(stream)) {}

  // Whether `index`, element `place` of the indices, names a row; records an index that does not.
  __device__ __forceinline__ bool has(int64_t index, int64_t place) const {
    if (index >= 0 && index < rows_) return true;
    record(index, place);
    return false;
  }

 private:
  __device__ void record(int64_t index, int64_t place) const {
    if (fault_ == nullptr || atomicCAS(&fault_->state, 0u, IndexFault::kTaken) != 0) return;
    fault_->op = op_;
    fault_->name = name_;
    fault_->place = place;
    fault_->index = index;
    fault_->rows = rows_;
    __threadfence_system();  // before the host sees that the record is complete
    atomicExch(&fault_->state, IndexFault::kComplete);
  }

  int64_t rows_ = 0;
  const char* op_ = nullptr;
  const char* name_ = nullptr;
  IndexFault* fault_ = nullptr;
};

}  // namespace zinc::kernels::cuda
