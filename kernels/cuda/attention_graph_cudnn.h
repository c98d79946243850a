// kernels/cuda/attention_graph_cudnn.h: attention as a graph of cuDNN's operations.
#pragma once

#include "kernels/attention_library.h"
#include "kernels/cuda/cudnn_descriptor.h"

namespace zinc::kernels::cuda {

// The names of a graph's tensors that a plan is given when it runs.
enum CudnnTensor : int64_t {
  kQ = 1,  // the arrays of the problem; the first eight as the strides of its key
  kK,
  kV,
  kOut,
  kDout,
  kDq,
  kDk,
  kDv,
  kLse,
  kSlopes,        // [H] f32, of ALiBi
  kKeyLengths,    // [B] i32
  kQueryLengths,  // [B] i32, each Tq: cuDNN takes lengths of keys with those alone
  kDelta,         // [B, H, Tq] f32, memory that backward works in
  kScale,         // numbers, f32
  kWindow,
  kHidden,  // minus infinity
  kOne,
  kFirstWithin,  // tensors that no memory holds
};

// The graph of a problem. Without a handle plans of it can be made for a device that is described,
// not run. Throws CudaError where cuDNN refuses it.
CudnnDescriptor attention_graph(const CudnnFunctions& cudnn, const AttentionKey& key,
                                cudnnHandle_t handle);

}  // namespace zinc::kernels::cuda
