// autograd/backward.h: gradients of a value with respect to everything it was computed from.
//
// The gradient of a leaf tensor is added to grad(). The gradient of a parameter goes to the
// parameter's source: Note [Life of a parameter's gradient] in autograd/parameter.h. Nodes run in
// the order of Note [Order of backward] in autograd/node.h; sums over several uses of a tensor are
// taken in that order. Kernels are issued to the compute stream, asynchronously. Hooks run on the
// calling thread. Saved tensors and gradients are freed as soon as their last use is queued.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "autograd/deferred_gradients.h"
#include "autograd/node.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

struct BackwardOptions {
  // True: keeps saved tensors, so that backward can pass the graph again. False: the graph is used
  // up, and a second pass over any part of it throws InvalidArgument before it does anything.
  bool retain_graph = false;
};

// d(seed * value) of a tensor with one element.
void backward(const Tensor& value, double seed = 1.0, const BackwardOptions& options = {});
// `gradient`: shape and dtype of `value`.
void backward(const Tensor& value, const Tensor& gradient, const BackwardOptions& options = {});

struct BackwardRoot {
  Tensor value;
  Tensor gradient;  // shape and dtype of `value`; undefined: ones, where it has one element
};
// One pass from several values; a shared part of their graphs runs once.
void backward(std::span<const BackwardRoot> roots, const BackwardOptions& options = {});

// The graph node of a tensor whose memory may be gone: a value that backward begins from, or a leaf
// whose gradient it ends in.
class GradientPoint {
 public:
  GradientPoint() = default;  // for a tensor without history
  explicit GradientPoint(const Tensor& tensor) : edge_(edge_of(tensor)) {}
  bool exists() const { return edge_.node != nullptr; }
  // Moves out the gradient of a leaf, which grad() would give.
  Tensor take_gradient() const;

 private:
  friend class BackwardEngine;
  Edge edge_;
};
struct GradientRoot {
  GradientPoint point;  // exists() is true
  Tensor gradient;      // shape and dtype of its tensor
};
// One pass from several points; the graph is used up. With `later`, which is empty before,
// gradients of weights may be left there for a later call.
void backward(std::span<GradientRoot> roots, DeferredGradients* later = nullptr);

// The number of the node that was recorded last under the current context; 0: none yet.
int64_t last_recorded();

// A backward pass in parts, so that the passes of several graphs can take turns. All parts together
// do what backward(value, seed) does. Sources get backward_begin() at construction.
class BackwardInParts {
 public:
  // `value`: one element.
  BackwardInParts(const Tensor& value, double seed);
  ~BackwardInParts();
  BackwardInParts(BackwardInParts&&) noexcept;
  BackwardInParts& operator=(BackwardInParts&&) noexcept;

  // Runs the nodes of the graph that have not run yet and were recorded after last_recorded() gave
  // `mark`. 0: runs all remaining nodes and ends the pass.
  void run_back_to(int64_t mark);

 private:
  std::unique_ptr<class BackwardEngine> engine_;
};

// --- leaf tensors: tensors that no op has made
//
// Makes a float tensor a leaf whose gradient is kept. Handles that were copied before do not
// change.
void requires_grad_(Tensor& tensor);
// The gradient of a leaf, summed over passes, or of a tensor with retain_grad(). Undefined if there
// is none.
Tensor grad(const Tensor& tensor);
void zero_grad(const Tensor& tensor);  // forgets it
// Keeps the gradient of a tensor that an op has made, from the next pass that reaches it.
void retain_grad(const Tensor& tensor);

// Hooks run in the order of registration. They live as long as the tensor's history.
void register_hook(const Tensor& tensor, GradientHook hook);
void clear_hooks(const Tensor& tensor);

}  // namespace zinc::autograd
