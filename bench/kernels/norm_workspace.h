// bench/kernels/norm_workspace.h: the workspace in which the backward passes of the norms sum
// dgamma and dbeta.
#pragma once

#include <algorithm>

#include "bench/array_case.h"
#include "kernels/layernorm.h"

namespace zinc::bench {

// Enough for the device that is timed and for the f64 path.
inline ArraySpec norm_workspace(int64_t rows, int64_t cols) {
  const auto bytes = [&](DeviceKind device) {
    return kernels::norm_backward_workspace_bytes(rows, cols, DType::f64, device);
  };
  return {.shape = {std::max(bytes(DeviceKind::cpu), bytes(DeviceKind::cuda))}, .fixed = DType::u8};
}

}  // namespace zinc::bench
