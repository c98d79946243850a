// autograd/saved_tensor_store.h: the seam that decides where activations live between forward and
// backward. The default store keeps the tensor. Recomputation, and offload to host or NVMe, are
// other stores; nodes do not know which one serves them.
#pragma once

#include <memory>

#include "tensor/tensor.h"

namespace zinc::autograd {

// One saved tensor. Destruction forgets it.
class SavedSlot {
 public:
  virtual ~SavedSlot() = default;
  // The tensor, ready for work issued to the compute stream. May be called more than once.
  virtual Tensor restore() = 0;
};

class SavedTensorStore {
 public:
  virtual ~SavedTensorStore() = default;
  // Called when a node saves an activation, in the order of the forward pass.
  virtual std::unique_ptr<SavedSlot> save(const Tensor& tensor) = 0;
};

// Makes `store` the current context's until the end of the scope. Scopes nest.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorStore& store);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  SavedTensorStore* previous_;
};

}  // namespace zinc::autograd
