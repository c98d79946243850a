#include "autograd/remade.h"

#include <algorithm>
#include <utility>

#include "autograd/node.h"

namespace zinc::autograd {

// One output of a node, for all that saved it.
class Remade {
 public:
  Remade(std::shared_ptr<Node> node, int output) : node_(std::move(node)), output_(output) {}
  Tensor get() {
    if (!tensor_.defined()) {
      bug_check(!node_->is_released(), "a result of '", node_->name(),
                "' was to be made again after its node had been released");
      tensor_ = node_->remake(output_);
    }
    return tensor_;
  }
  bool is_here() const {
    const auto is_here = [](const SavedTensor& saved) { return saved.is_here(); };
    return tensor_.defined() || std::ranges::all_of(node_->saved(), is_here);
  }
  void prepare() {
    if (!tensor_.defined()) node_->begin_remake(output_);
  }

 private:
  std::shared_ptr<Node> node_;
  int output_;
  Tensor tensor_;
};

namespace {

class RemadeSlot final : public SavedSlot {
 public:
  explicit RemadeSlot(std::shared_ptr<Remade> remade) : remade_(std::move(remade)) {}
  Tensor restore() override { return remade_->get(); }
  bool is_here() const override { return remade_->is_here(); }
  void prepare() override { remade_->prepare(); }

 private:
  std::shared_ptr<Remade> remade_;
};

bool can_remake(const Edge& edge, const Tensor& tensor, bool in_scope) {
  return edge.node != nullptr && edge.node->can_remake(edge.output) &&
         (in_scope || edge.node->always_remakes(edge.output)) &&
         tensor.version() == edge.node->outputs()[static_cast<size_t>(edge.output)].version;
}

}  // namespace

bool is_remade(const Tensor& tensor) {
  const Mode& mode = Mode::current();
  return mode.store == nullptr && can_remake(edge_of(tensor), tensor, mode.remakes);
}

std::unique_ptr<SavedSlot> remade_slot(const Tensor& tensor, bool in_scope) {
  const Edge edge = edge_of(tensor);
  if (!can_remake(edge, tensor, in_scope)) return nullptr;
  Node::Output& output = edge.node->outputs()[static_cast<size_t>(edge.output)];
  std::shared_ptr<Remade> remade = output.remade.lock();
  if (remade == nullptr) {
    remade = std::make_shared<Remade>(edge.node, edge.output);
    output.remade = remade;
  }
  return std::make_unique<RemadeSlot>(std::move(remade));
}

}  // namespace zinc::autograd
