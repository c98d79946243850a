#include "autograd/node.h"

#include <algorithm>
#include <utility>

#include "autograd/mode.h"
#include "core/error.h"

namespace zinc::autograd {

Edge edge_of(const Tensor& tensor) {
  if (!tensor.defined() || tensor.history() == nullptr) return {};
  return static_cast<const History&>(*tensor.history()).edge();
}

Node::Node() : sequence_(++Mode::current().last_sequence) {}

// A chain of nodes is taken apart in a loop: recursion would overflow the stack on a long one.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> pending;
  auto take_operands = [&pending](Node& node) {
    for (Edge& edge : node.inputs_) {
      if (edge.node != nullptr) pending.push_back(std::move(edge.node));
    }
    for (WeightOperand& weight : node.weights_) {
      if (weight.edge.node != nullptr) pending.push_back(std::move(weight.edge.node));
    }
  };
  take_operands(*this);
  while (!pending.empty()) {
    const std::shared_ptr<Node> last = std::move(pending.back());
    pending.pop_back();
    if (last.use_count() == 1) take_operands(*last);
  }
}

Tensor Node::gradient_place(int, Tensor&) const { return {}; }

bool Node::can_remake(int) const { return false; }
bool Node::always_remakes(int) const { return false; }

Tensor Node::remake(int output) {
  bug_check(false, name(), ": output ", output, " is made once");
  return {};
}

bool Node::can_read(int weight) const {
  const WeightOperand& operand = weights_[static_cast<size_t>(weight)];
  const bool is_absent = operand.shape.rank() == 0;
  return is_absent || operand.parameter != nullptr || bool(operand.value);
}

WeightValue Node::values_of(int weight) const {
  const WeightOperand& operand = weights_[static_cast<size_t>(weight)];
  if (operand.parameter != nullptr) {
    return WeightValue(operand.parameter->source().acquire(*operand.parameter));
  }
  return operand.value ? WeightValue(operand.value.restore()) : WeightValue();
}

// Sequence numbers grow within one context; an operand from another one may be ahead.
void Node::follow(const Edge& edge) {
  if (edge.node == nullptr || edge.node->sequence_ < sequence_) return;
  sequence_ = edge.node->sequence_ + 1;
  int64_t& last = Mode::current().last_sequence;
  last = std::max(last, sequence_);
}

int Node::add_input(const Tensor& tensor) {
  inputs_.push_back(edge_of(tensor));
  follow(inputs_.back());
  return static_cast<int>(inputs_.size()) - 1;
}

int Node::add_weight(const Weight& weight, bool reads_values) {
  WeightOperand operand;
  if (weight) {
    operand.shape = weight.shape();
    operand.dtype = weight.dtype();
    operand.trainable = weight.requires_grad();
    operand.parameter = weight.parameter();
    if (operand.parameter == nullptr) {
      operand.edge = edge_of(weight.tensor());
      if (reads_values) operand.value = SavedTensor(weight.tensor());
      follow(operand.edge);
    }
  }
  weights_.push_back(std::move(operand));
  return static_cast<int>(weights_.size()) - 1;
}

int Node::save(const Tensor& tensor) {
  saved_.push_back(tensor.defined() ? SavedTensor(tensor) : SavedTensor());
  return static_cast<int>(saved_.size()) - 1;
}

int Node::set_output(Tensor& tensor) {
  const int index = static_cast<int>(outputs_.size());
  Output& output = outputs_.emplace_back();
  output.shape = tensor.shape();
  output.dtype = tensor.dtype();
  output.version = tensor.version();
  tensor.set_history(std::make_shared<History>(Edge{shared_from_this(), index}));
  return index;
}

void Node::release() {
  saved_.clear();
  for (WeightOperand& weight : weights_) weight.value.reset();
  is_released_ = true;
}

}  // namespace zinc::autograd
