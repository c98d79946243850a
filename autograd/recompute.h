// autograd/recompute.h: activations that are computed again in backward instead of being kept.
//
// Note [Recomputation]
// recompute(fn, inputs) builds the graph that fn(inputs) builds; only what its nodes save differs.
// While fn runs, saved tensors are dropped; fn's inputs are saved through the store that was
// current outside. When backward first asks for a dropped tensor, fn runs once more on the saved
// inputs, under the modes and the random position of the first time, and what its nodes save is
// handed to the nodes of the first run, in the order of saving. The replay's own graph is thrown
// away. So gradients, their bits, and the order of gradient_done() are the same with and without.
// A replayed tensor goes when the node that saved it is done.
//
// Once the replay has saved as often as the first run, nothing that follows is needed: kernels of
// autograd's ops are queued on a stream that drops them.
//
// fn must do the same work on the same inputs each time (so it must not let values that it reads
// decide what it does: those behind the replay's last save are not computed) and must not change
// its inputs. What it captures by reference must live until backward. Calls may be nested.
#pragma once

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

// Without gradients fn is simply called. Backward throws InvalidArgument where the replay saves
// other tensors than the first run.
std::vector<Tensor> recompute(TensorFunction fn, std::vector<Tensor> inputs);

// One input, one result.
Tensor recompute(std::function<Tensor(const Tensor&)> fn, const Tensor& input);

}  // namespace zinc::autograd
