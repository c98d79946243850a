// autograd/backward_pass.h: what a node sees of the backward pass that runs it.
#pragma once

#include <utility>
#include <vector>

#include "autograd/node.h"
#include "autograd/parameter.h"
#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

class BackwardEngine;

// Numbers are those of the node's recording (autograd/node.h). A node leaves the gradient of an
// input that it does not give undefined, which counts as zero.
class BackwardPass {
 public:
  // --- gradients of the node's outputs
  bool has_gradient(int output) const;
  // Moves the gradient out, so that its memory goes with the returned handle. Contiguous: copied
  // where it was not. Zeros where no gradient has reached the output.
  Tensor take_gradient(int output);
  // The same without the copy: outer strides are free.
  Tensor take_strided_gradient(int output);

  // --- saved tensors
  Tensor saved(int index) const;
  // The same, and the last use: where the graph is not retained, the memory goes with the handle.
  Tensor take_saved(int index);

  // --- gradients of the node's inputs
  bool needs(int input) const;
  // Memory of the input's shape and dtype for give(), not initialised. Outer strides are free only
  // where `strided` allows it: then it may be the gradient's place inside a larger buffer.
  Tensor gradient_memory(int input, bool strided = false);
  // Hands a gradient over: at most once per input. Shape and dtype of the input.
  void give(int input, Tensor gradient);

  // --- weights
  bool weight_is_present(int weight) const;
  bool weight_needs(int weight) const;
  WeightValue weight(int weight) const;
  // Where to write the gradient of a weight, contiguous, on the compute stream: at most once per
  // node and weight. It is delivered when the node's backward() returns.
  GradientTarget weight_gradient(int weight);

  // Moves out what Node::gradient_place() made; undefined where it was not asked.
  Tensor take_place_buffer() { return std::exchange(*buffer_, Tensor()); }
  bool retains_graph() const { return retains_graph_; }

 private:
  friend class BackwardEngine;
  BackwardPass(BackwardEngine& engine, Node& node, std::vector<Tensor> gradients, Tensor& buffer,
               bool retains_graph);

  BackwardEngine& engine_;
  Node& node_;
  std::vector<Tensor> gradients_;
  Tensor* buffer_;
  bool retains_graph_;
  std::vector<Tensor> weight_gradients_;  // of Tensors
};

}  // namespace zinc::autograd
