// autograd/saved_tensor_store.h: decides where activations live between forward and backward.
//
// The default store keeps the tensor. Recomputation, and offload to host memory or NVMe, are other
// stores. Nodes do not know which store serves them. Parameters never pass through a store.
#pragma once

#include <memory>

#include "autograd/mode.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// One saved tensor. Destruction forgets it.
class SavedSlot {
 public:
  virtual ~SavedSlot() = default;
  // The tensor, ready for work issued to the compute stream, without gradient history. May be
  // called more than once.
  virtual Tensor restore() = 0;
  // False: restore() would compute a part of the forward pass again.
  virtual bool is_here() const { return true; }
  // restore() will be called soon: begins the part of it that can run beside other work.
  virtual void prepare() {}
};

class SavedTensorStore {
 public:
  virtual ~SavedTensorStore() = default;
  // Called when a node saves an activation, in the order of the forward pass. `tensor` has no
  // gradient history. A slot may outlive the scope that made the store current; the store itself
  // must outlive its slots.
  virtual std::unique_ptr<SavedSlot> save(const Tensor& tensor) = 0;
};

// Makes `store` the current context's until the end of the scope. Scopes nest.
class SavedTensorScope : detail::ModeScope<SavedTensorStore*> {
 public:
  explicit SavedTensorScope(SavedTensorStore& store) : ModeScope(&Mode::store, &store) {}
};

// A tensor that a node keeps through the current store. Move-only.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor);
  explicit operator bool() const { return slot_ != nullptr; }
  // Throws InvalidArgument if the tensor was written after it was saved.
  Tensor restore() const;
  bool is_here() const { return slot_ == nullptr || slot_->is_here(); }
  void prepare() const {
    if (slot_ != nullptr) slot_->prepare();
  }
  void reset() { slot_.reset(); }

 private:
  std::unique_ptr<SavedSlot> slot_;
};

}  // namespace zinc::autograd
