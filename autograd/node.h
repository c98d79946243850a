// autograd/node.h: the gradient history of tensors: one Node per recorded op.
//
// An op computes its result and, where gradients are wanted, records a node:
//
//   Tensor y = Tensor::empty(x.shape(), x.dtype());
//   kernels::unary({.op = op, .x = x.view(), .y = y.view()}, compute_stream());
//   if (needs_gradient(x)) {
//     auto node = make_node<UnaryNode>(op);
//     node->add_input(x);   // input 0
//     node->save(x);        // saved tensor 0
//     node->set_output(y);  // output 0
//   }
//
// Inputs, weights, saved tensors and outputs are numbered in the order of these calls; backward()
// names them by number.
//
// Note [Order of backward]
// A node's sequence number is larger than that of every node it depends on and grows with the order
// of recording. Backward runs the nodes that it reaches in falling order of sequence numbers: a
// topological order that depends on the graph alone, and frees what the forward pass made last
// first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "autograd/saved_tensor_store.h"
#include "autograd/weight.h"
#include "core/shape.h"
#include "kernels/gemm.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

class BackwardPass;
class Node;
class Remade;

// Gets the complete gradient of a tensor. Returns its replacement, or an undefined Tensor to keep
// it. Runs on the issuing thread, before the gradient is used.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

// The destination of an operand's gradient. No node: no gradient is wanted.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
};

// The history that autograd puts into a Tensor.
class History final : public GradientHistory {
 public:
  explicit History(Edge edge) : edge_(std::move(edge)) {}
  const Edge& edge() const { return edge_; }

 private:
  Edge edge_;
};

// The edge of a tensor; without a node if the tensor has no history.
Edge edge_of(const Tensor& tensor);

class Node : public std::enable_shared_from_this<Node> {
 public:
  struct Output {
    Shape shape;
    DType dtype = DType::f32;
    std::vector<GradientHook> hooks;
    bool retains_gradient = false;
    Tensor gradient;               // retained: the gradient of the last pass that reached it
    int64_t version = 0;           // the tensor's version when the op had written it
    std::weak_ptr<Remade> remade;  // exists while an op keeps the node instead of the result
  };
  struct WeightOperand {
    Parameter* parameter = nullptr;  // null for a Tensor and for an absent weight
    bool trainable = false;
    Edge edge;          // of a weight that is a Tensor
    SavedTensor value;  // of a Tensor whose values backward reads
    Shape shape;
    DType dtype = DType::f32;
  };

  Node();
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual std::string_view name() const = 0;
  // Issues the kernels that compute the gradients of inputs and weights from those of the outputs.
  // Not called if no gradient has reached an output.
  virtual void backward(BackwardPass& pass) = 0;
  // The place of an output's gradient inside a buffer that several outputs share. A node that
  // splits one tensor so gets its gradients side by side. `buffer` belongs to the pass and is
  // undefined at first. Returns an undefined tensor if the output has no such place.
  virtual Tensor gradient_place(int output, Tensor& buffer) const;
  virtual bool is_leaf() const { return false; }
  // True if remake() can compute the output again: with the same bits, in one pass over memory,
  // from the node's parameters and saved tensors. Called after the node was recorded. See Note
  // [Remade results].
  virtual bool can_remake(int output) const;
  // True if remake() computes the output again outside of a RemakeScope as well.
  virtual bool always_remakes(int output) const;
  // Computes the output again. Called before release(), with gradients off.
  virtual Tensor remake(int output);
  // remake() will be called soon. May be called several times before.
  virtual void begin_remake(int /*output*/) {}

  // True if backward() waits for other ranks, and calls BackwardPass::make_beside() meanwhile. See
  // Note [Beside other ranks].
  virtual bool waits_for_ranks() const { return false; }

  // An elementwise factor of the gradient of the node's only output, with which backward() would
  // begin: the derivative of an activation at `input`, times `factor`, if the activation was
  // multiplied by one. The gradient of `factor` goes to factor_gradient. Where a matrix product
  // makes the output's gradient, and nothing else adds to that, the product multiplies in its
  // epilogue instead, with the same bits: BackwardPass::take_derivative().
  struct Derivative {
    kernels::Activation activation;
    Tensor input;
    Tensor factor{};
    Tensor factor_gradient{};  // may be the memory of the factor
    // memory for the gradient of the input, rows at one stride; may be the input's
    Tensor gradient{};
  };
  virtual bool offers_derivative() const { return false; }
  virtual Derivative derivative() { return {}; }  // called before release(), if it offers one

  // --- recording
  int add_input(const Tensor& tensor);
  // `reads_values`: backward calls weight(i) and not only weight_gradient(i).
  int add_weight(const Weight& weight, bool reads_values);
  int save(const Tensor& tensor);  // undefined: keeps the number, saves nothing
  int set_output(Tensor& tensor);  // gives the tensor its history

  // --- used by the backward pass and by remake()
  int64_t sequence() const { return sequence_; }
  const std::vector<Edge>& inputs() const { return inputs_; }
  const std::vector<WeightOperand>& weights() const { return weights_; }
  std::vector<SavedTensor>& saved() { return saved_; }
  // Whether the values of a weight can be read: a parameter's, those of a tensor that was added
  // with `reads_values`, or an absent weight's (none).
  bool can_read(int weight) const;
  WeightValue values_of(int weight) const;
  std::vector<Output>& outputs() { return outputs_; }
  bool is_released() const { return is_released_; }
  void release();  // forgets what was saved; backward cannot pass here again

 private:
  void follow(const Edge& edge);

  int64_t sequence_;
  bool is_released_ = false;
  std::vector<Edge> inputs_;
  std::vector<WeightOperand> weights_;
  std::vector<SavedTensor> saved_;
  std::vector<Output> outputs_;
};

template <class T, class... Args>
std::shared_ptr<T> make_node(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

// True where an op on these operands (Tensors or Weights) has to record a node.
template <class... Operands>
bool needs_gradient(const Operands&... operands) {
  return (operands.requires_grad() || ...) && gradients_enabled();
}

}  // namespace zinc::autograd
