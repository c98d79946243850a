// autograd/recompute.h: computes activations again in backward instead of keeping them.
//
// Note [Recomputation]
// recompute(fn, inputs) builds the same graph as fn(inputs). Only what the nodes save differs:
// - While fn runs, its nodes' saved tensors are dropped. fn's inputs are saved through the store
//   that was current outside.
// - When backward first asks for a dropped tensor, fn runs once more on the saved inputs (the
//   replay), with the modes and the random position of the first run.
// - Tensors that the replay saves are handed to the nodes of the first run, in the order of saving.
//   The replay's own graph is thrown away.
// - A replayed tensor is freed when the node that saved it is done.
//
// So gradients, their bits, and the order of gradient_done() do not depend on recomputation.
//
// Once the replay has saved as many tensors as the first run, the rest of fn is not needed: kernels
// of autograd's ops are queued on a stream that drops them.
//
// fn must do the same work on the same inputs each time. It must not branch on values that it
// reads: values behind the replay's last save are not computed. It must not change its inputs. Its
// captures by reference must live until backward. Calls may be nested.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "autograd/mode.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// The outermost recompute() calls inside the scope save their inputs in `store`, which must outlive
// their slots.
class RecomputeInputScope : detail::ModeScope<SavedTensorStore*> {
 public:
  explicit RecomputeInputScope(SavedTensorStore* store)
      : ModeScope(&Mode::recompute_store, store) {}
};

using TensorFunction = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

// If gradients are disabled, fn is simply called. Backward throws InvalidArgument if the replay
// saves other tensors than the first run.
std::vector<Tensor> recompute(TensorFunction fn, std::vector<Tensor> inputs);

// How many calls of recompute() under the current context have recorded a graph.
int64_t num_recomputed();

// One input, one result.
Tensor recompute(std::function<Tensor(const Tensor&)> fn, const Tensor& input);

}  // namespace zinc::autograd
