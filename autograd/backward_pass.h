// autograd/backward_pass.h: the interface of a backward pass for the node that it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/deferred_gradients.h"
#include "autograd/node.h"
#include "autograd/parameter.h"
#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

class BackwardEngine;

// A gradient whose rows are still on their way from other ranks, in `num_parts` parts of equally
// many rows, of the gradient as a matrix.
struct RowsUnderWay {
  int64_t num_parts = 0;  // 0: all is here
  // Makes the compute stream wait for a part; a second call does nothing.
  std::function<void(int64_t)> wait{};

  // visit(begin, count) for each part of `rows` rows, when the part is here.
  template <class Visit>
  void for_each_part(int64_t rows, const Visit& visit) const {
    if (num_parts == 0) return visit(int64_t{0}, rows);
    for (int64_t part = 0; part < num_parts; ++part) {
      wait(part);
      visit(part * (rows / num_parts), rows / num_parts);
    }
  }
  void wait_for_all() const {
    for (int64_t part = 0; part < num_parts; ++part) wait(part);
  }
};

// Numbers count in the order of the node's recording (autograd/node.h). An input for which the node
// gives no gradient gets zero.
class BackwardPass {
 public:
  // --- gradients of the node's outputs
  bool has_gradient(int output) const;
  // Moves the gradient out: its memory is freed with the returned handle. Contiguous, copied if
  // need be. Zeros if no gradient has reached the output.
  Tensor take_gradient(int output);
  // The same without a wait for `rows`. Each part must be waited for before it is read.
  Tensor take_gradient_under_way(int output, RowsUnderWay& rows);
  // The same without the copy: outer strides are free.
  Tensor take_strided_gradient(int output);

  // --- saved tensors
  Tensor saved(int index) const;
  // Begins the work that saved() would have to wait for: Note [Beside other ranks].
  void prepare_saved(int index) const;
  // The same for the last use. If the graph is not retained, the memory is freed with the handle.
  Tensor take_saved(int index);

  // --- gradients of the node's inputs
  bool needs(int input) const;
  // Memory for give(), of the input's shape and dtype, not initialised. With `strided` it may be
  // the gradient's place inside a larger buffer: outer strides are free then.
  Tensor gradient_memory(int input, bool strided = false);
  // Moves out the gradient that has reached an input so far, contiguous, for a kernel that adds to
  // it before it rounds; give() gets the sum. `to_write`: only memory that no other handle shares.
  // Undefined: nothing has reached the input, or it cannot be moved out; give() then adds.
  Tensor take_arrived(int input, bool to_write);
  // The derivative (Node::Derivative) that the node behind an input would multiply the gradient
  // with, if this node may multiply instead: the gradient that it gives then contains the
  // derivative. Otherwise absent. `only_here`: absent also where the derivative's input would have
  // to be computed again.
  std::optional<Node::Derivative> take_derivative(int input, bool only_here);
  // Whether the gradient of this node's output contains the node's derivative (Derivative) already.
  bool is_behind_derivative() const { return is_behind_derivative_; }
  // Gives the gradient of an input, in the input's shape and dtype. At most once per input.
  void give(int input, Tensor gradient, RowsUnderWay rows = {});

  // --- weights
  bool weight_needs(int weight) const;
  WeightValue weight(int weight) const;
  // Where to write the gradient of a weight on the compute stream, contiguous. At most once per
  // node and weight. The gradient is delivered when the node's backward() returns.
  GradientTarget weight_gradient(int weight);
  // The same for a gradient that `write` makes from its captures, now or later, once. The node may
  // be gone by then.
  //
  // Note [Beside other ranks]
  // Where an input comes from a node that waits_for_ranks(), `write` waits too, until that node has
  // begun to hand its gradient to them: products of weights then hide the time of the transfer.
  // Contributions to one weight keep their order.
  void make_weight_gradient(int weight, DeferredGradients::Write write);
  bool hides_weights() const;  // whether gradients of weights wait so
  // Whether make_weight_gradient() would call `write` at once.
  bool makes_at_once(int weight) const;
  // Makes the gradients of weights that wait.
  void make_beside();

  // Moves out the buffer that Node::gradient_place() made; undefined if it was not called.
  Tensor take_place_buffer() { return std::exchange(*buffer_, Tensor()); }
  bool retains_graph() const { return retains_graph_; }

 private:
  friend class BackwardEngine;
  BackwardPass(BackwardEngine& engine, Node& node, std::vector<Tensor> gradients,
               std::vector<RowsUnderWay> under_way, Tensor& buffer, bool retains_graph,
               bool is_behind_derivative);

  BackwardEngine& engine_;
  Node& node_;
  std::vector<Tensor> gradients_;
  std::vector<RowsUnderWay> under_way_;  // by output, as gradients_
  Tensor* buffer_;
  bool retains_graph_;
  bool is_behind_derivative_;
  std::vector<Tensor> weight_gradients_;  // gradients of weights that are Tensors
};

}  // namespace zinc::autograd
