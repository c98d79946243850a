// tensor/tensor_storage.h: the memory behind tensors. Internal to tensor/.
#pragma once

#include <cstdint>
#include <memory>

#include "core/allocator.h"

namespace zinc::detail {

struct TensorStorage {
  Block block;                  // memory from an allocator, or
  std::shared_ptr<void> owner;  // the owner of foreign memory
  int64_t version = 0;          // fills and copies so far
};

}  // namespace zinc::detail
