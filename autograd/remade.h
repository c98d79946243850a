// autograd/remade.h: cheap results that backward makes again instead of keeping them.
//
// Note [Remade results]
// A norm's node keeps the norm's input and its statistics. The product behind the norm saves the
// norm's result, which one pass over memory computes again from what the node keeps. So inside a
// RemakeScope the product keeps the norm's node in the place of the result. In backward the first
// restore() runs the norm's kernel again, on the same operands: the bits are the same. All ops that
// saved one result share the new copy, and its memory is freed with the last of them.
//
// Results that are made again: those of norms, GELU, SwiGLU, the other unary functions, and of
// products with an activation (Node::can_remake()). Results that ranks gather are made again
// outside of a scope too (Node::always_remakes()). A result is kept where a store is current (the
// inside of recompute()), where it is an input of recompute(), where the tensor was filled or
// copied into since its op, and where a view of it is saved.
#pragma once

#include <memory>

#include "autograd/mode.h"
#include "autograd/saved_tensor_store.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// Ops that save cheap results let backward make them again, until the end of the scope. Scopes
// nest.
class RemakeScope : detail::ModeScope<bool> {
 public:
  explicit RemakeScope(bool remakes) : ModeScope(&Mode::remakes, remakes) {}
};

// A slot that makes `tensor` again; null where the tensor has to be kept. `in_scope`: whether the
// save is inside of a RemakeScope.
std::unique_ptr<SavedSlot> remade_slot(const Tensor& tensor, bool in_scope);
// Whether a node that saves the tensor now keeps the tensor's own node in place of the tensor.
bool is_remade(const Tensor& tensor);

}  // namespace zinc::autograd
