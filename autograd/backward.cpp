#include "autograd/backward.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/mode.h"
#include "kernels/accumulate.h"
#include "kernels/binary.h"
#include "kernels/fill.h"

namespace zinc::autograd {
namespace {

// The sum takes the memory of either term, if no other handle shares it.
Tensor sum_of(Tensor a, Tensor b) {
  Tensor y;
  if (a.is_sole_owner() && a.is_contiguous()) {
    y = a;
  } else if (b.is_sole_owner() && b.is_contiguous()) {
    y = b;
  } else {
    y = Tensor::empty(a.shape(), a.dtype());
  }
  kernels::binary({.op = kernels::BinaryOp::add, .a = a.view(), .b = b.view(), .y = y.view()},
                  compute_stream());
  return y;
}

class LeafNode final : public Node {
 public:
  std::string_view name() const override { return "leaf"; }
  bool is_leaf() const override { return true; }
  void backward(BackwardPass& pass) override {
    Tensor& total = outputs()[0].gradient;
    Tensor gradient = pass.take_gradient(0);
    if (total.defined()) {
      total = sum_of(std::move(total), std::move(gradient));
    } else {
      total = gradient.is_sole_owner() ? std::move(gradient) : gradient.clone();
    }
  }
};

Node::Output& output_of(const Tensor& tensor, std::string_view op) {
  const Edge edge = edge_of(tensor);
  require(edge.node != nullptr, op, ": the tensor of shape ", tensor.shape(),
          " has no gradient history; call requires_grad_() on it or compute it from such tensors");
  return edge.node->outputs()[static_cast<size_t>(edge.output)];
}

// `is_zero`: no contribution has written anything.
void finish_gradient(Parameter& parameter, bool is_zero) {
  ParameterSource& source = parameter.source();
  if (is_zero) {
    const GradientTarget target = source.gradient(parameter);
    if (!target.accumulate) kernels::fill({.y = target.view}, compute_stream());
  }
  source.gradient_done(parameter);
}

}  // namespace

// One backward pass: which nodes it reaches, the gradients on their way, and how many contributions
// every parameter still waits for.
class BackwardEngine {
 public:
  explicit BackwardEngine(const BackwardOptions& options, DeferredGradients* later = nullptr)
      : options_(options), later_(later) {}

  void add_root(const Tensor& value, Tensor gradient);
  void add_root(const GradientPoint& point, Tensor gradient);
  void add_seed(const Tensor& value, double seed);
  void start();
  // Runs the nodes with a sequence number above `sequence`; ends the pass after the last.
  void run_above(int64_t sequence);

  // --- used by BackwardPass
  Tensor place_of(const Edge& edge);
  Tensor take_arrived(const Edge& edge, bool to_write);
  std::optional<Node::Derivative> take_derivative(const Edge& edge, bool only_here);
  void deliver(const Edge& edge, Tensor gradient, RowsUnderWay rows = {});
  GradientTarget parameter_gradient(Parameter& parameter);
  bool defers(const Parameter& parameter) const {
    return later_ != nullptr && parameter.source().defers(parameter);
  }
  void defer(Parameter& parameter, DeferredGradients::Write write);
  void make_beside_ranks(Parameter& parameter, DeferredGradients::Write write);
  void make_beside() { beside_.run(); }

 private:
  struct Arriving {
    std::vector<Tensor> gradients;  // by output; undefined: none so far
    std::vector<RowsUnderWay> under_way;
    std::vector<bool> placed;  // by output: its place in `buffer` was handed out
    Tensor buffer;
    bool is_behind_derivative = false;
  };
  struct Contributions {
    int64_t remaining = 0;
    bool written = false;
  };

  void collect();
  void run_node(Node& node);
  void apply_hooks(Node& node, Arriving& arrived);
  void finish_weights(Node& node, std::vector<Tensor>& gradients);
  bool is_beside(const Parameter& parameter) const;
  Arriving& arriving(Node& node);

  const BackwardOptions options_;
  DeferredGradients* const later_;  // null: nothing is left for later
  DeferredGradients beside_;        // Note [Beside other ranks]
  struct Root {
    Edge edge;
    Tensor gradient;
  };
  std::vector<Root> roots_;
  std::vector<std::shared_ptr<Node>> order_;
  size_t next_ = 0;  // in order_
  std::unordered_map<const Node*, Arriving> arriving_;
  std::unordered_map<Parameter*, Contributions> contributions_;
  std::unordered_map<const Node*, int>
      uses_;                               // uses of the results of nodes that offer a derivative
  std::vector<ParameterSource*> sources_;  // in the order in which the pass meets them
};

void BackwardEngine::add_root(const Tensor& value, Tensor gradient) {
  require(value.defined() && value.history() != nullptr,
          "backward: the value has no gradient history: nothing that it was computed from requires "
          "a gradient, or it was computed under NoGrad");
  if (!gradient.defined()) {
    require(value.numel() == 1, "backward: a value of shape ", value.shape(),
            " needs a gradient of the same shape; only one with a single element can do without");
    gradient = Tensor::full(value.shape(), 1.0, value.dtype());
  }
  require(gradient.shape() == value.shape(), "backward: the gradient has shape ", gradient.shape(),
          ", the value ", value.shape());
  require(gradient.dtype() == value.dtype(), "backward: the gradient is ", gradient.dtype(),
          ", the value ", value.dtype());
  roots_.push_back({edge_of(value), std::move(gradient)});
}

void BackwardEngine::add_root(const GradientPoint& point, Tensor gradient) {
  require(point.exists() && gradient.defined(),
          "backward: a point without history, or without a gradient to begin with");
  const Node::Output& output = point.edge_.node->outputs()[static_cast<size_t>(point.edge_.output)];
  require(gradient.shape() == output.shape && gradient.dtype() == output.dtype,
          "backward: the gradient is ", gradient.dtype(), gradient.shape(), ", the value ",
          output.dtype, output.shape);
  roots_.push_back({point.edge_, std::move(gradient)});
}

void BackwardEngine::collect() {
  std::unordered_set<const Node*> seen;
  std::vector<std::shared_ptr<Node>> pending;
  auto visit = [&](const Edge& edge) {
    if (edge.node != nullptr && edge.node->offers_derivative()) ++uses_[edge.node.get()];
    if (edge.node != nullptr && seen.insert(edge.node.get()).second) pending.push_back(edge.node);
  };
  for (const Root& root : roots_) visit(root.edge);
  while (!pending.empty()) {
    std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    require(!node->is_released(), "backward: an earlier backward has used up the graph at '",
            node->name(), "'; pass retain_graph to the first one, or run the forward pass again");
    for (const Edge& edge : node->inputs()) visit(edge);
    for (const Node::WeightOperand& weight : node->weights()) visit(weight.edge);
    order_.push_back(std::move(node));
  }
  std::sort(order_.begin(), order_.end(),
            [](const auto& a, const auto& b) { return a->sequence() > b->sequence(); });
  for (const auto& node : order_) {
    for (const Node::WeightOperand& weight : node->weights()) {
      if (weight.parameter == nullptr) continue;
      if (weight.trainable) ++contributions_[weight.parameter].remaining;
      ParameterSource* const source = &weight.parameter->source();
      if (std::find(sources_.begin(), sources_.end(), source) == sources_.end()) {
        sources_.push_back(source);
      }
    }
  }
}

void BackwardEngine::add_seed(const Tensor& value, double seed) {
  require(value.numel() == 1, "backward: a value of shape ", value.shape(),
          " needs a gradient of the same shape; only one with a single element can do without");
  add_root(value, Tensor::full(value.shape(), seed, value.dtype()));
}

void BackwardEngine::start() {
  const NoGrad no_grad;
  collect();
  for (Root& root : roots_) deliver(root.edge, std::move(root.gradient));
  for (ParameterSource* source : sources_) source->backward_begin();
}

void BackwardEngine::run_above(int64_t sequence) {
  const NoGrad no_grad;
  if (next_ == order_.size()) return;
  while (next_ < order_.size() && order_[next_]->sequence() > sequence) run_node(*order_[next_++]);
  if (next_ < order_.size()) return;
  bug_check(beside_.empty(), "backward: weights still wait for a node that waits for ranks");
  for (ParameterSource* source : sources_) source->backward_end();
}

void BackwardEngine::run_node(Node& node) {
  Arriving arrived;
  if (const auto found = arriving_.find(&node); found != arriving_.end()) {
    arrived = std::move(found->second);
    arriving_.erase(found);
  }
  const bool reached = std::any_of(arrived.gradients.begin(), arrived.gradients.end(),
                                   [](const Tensor& gradient) { return gradient.defined(); });
  std::vector<Tensor> weight_gradients;
  if (reached) {
    apply_hooks(node, arrived);
    BackwardPass pass(*this, node, std::move(arrived.gradients), std::move(arrived.under_way),
                      arrived.buffer, options_.retain_graph || node.is_leaf(),
                      arrived.is_behind_derivative);
    node.backward(pass);
    // parts that the node did not take
    for (const RowsUnderWay& rows : pass.under_way_) rows.wait_for_all();
    weight_gradients = std::move(pass.weight_gradients_);
  }
  if (!options_.retain_graph && !node.is_leaf()) node.release();
  finish_weights(node, weight_gradients);
}

void BackwardEngine::apply_hooks(Node& node, Arriving& arrived) {
  for (size_t i = 0; i < arrived.gradients.size(); ++i) {
    Tensor& gradient = arrived.gradients[i];
    if (!gradient.defined()) continue;
    Node::Output& output = node.outputs()[i];
    if (!output.hooks.empty() || output.retains_gradient) {
      std::exchange(arrived.under_way[i], {}).wait_for_all();
    }
    const std::vector<GradientHook> hooks = output.hooks;  // a hook may register another
    for (const GradientHook& hook : hooks) {
      Tensor replacement = hook(gradient);
      if (!replacement.defined()) continue;
      require(replacement.shape() == output.shape && replacement.dtype() == output.dtype,
              "backward: a hook on an output of '", node.name(), "' returned ", replacement.dtype(),
              replacement.shape(), " in place of ", output.dtype, output.shape);
      gradient = replacement.detach();
    }
    if (output.retains_gradient) output.gradient = gradient;
  }
}

void BackwardEngine::finish_weights(Node& node, std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < node.weights().size(); ++i) {
    const Node::WeightOperand& weight = node.weights()[i];
    if (weight.parameter == nullptr) {
      if (i < gradients.size() && gradients[i].defined()) {
        deliver(weight.edge, std::move(gradients[i]));
      }
      continue;
    }
    if (!weight.trainable) continue;
    Contributions& contributions = contributions_.at(weight.parameter);
    if (--contributions.remaining > 0) continue;
    if (defers(*weight.parameter)) {
      later_->steps_.push_back({.parameter = weight.parameter, .is_zero = !contributions.written});
    } else if (is_beside(*weight.parameter)) {
      beside_.steps_.push_back({.parameter = weight.parameter});
    } else {
      finish_gradient(*weight.parameter, !contributions.written);
    }
  }
}

void DeferredGradients::run() {
  const NoGrad no_grad;
  for (Step& step : std::exchange(steps_, {})) {
    const Step now = std::exchange(step, {});
    if (now.write) {
      now.write(now.parameter->source().gradient(*now.parameter));
    } else {
      finish_gradient(*now.parameter, now.is_zero);
    }
  }
}

BackwardEngine::Arriving& BackwardEngine::arriving(Node& node) {
  Arriving& arriving = arriving_[&node];
  if (arriving.gradients.empty()) {
    arriving.gradients.resize(node.outputs().size());
    arriving.under_way.resize(node.outputs().size());
    arriving.placed.resize(node.outputs().size());
  }
  return arriving;
}

Tensor BackwardEngine::place_of(const Edge& edge) {
  Arriving& state = arriving(*edge.node);
  const auto output = static_cast<size_t>(edge.output);
  if (state.placed[output]) return {};
  Tensor place = edge.node->gradient_place(edge.output, state.buffer);
  state.placed[output] = place.defined();
  return place;
}

Tensor BackwardEngine::take_arrived(const Edge& edge, bool to_write) {
  if (edge.node == nullptr) return {};
  Arriving& state = arriving(*edge.node);
  const auto output = static_cast<size_t>(edge.output);
  Tensor& slot = state.gradients[output];
  if (!slot.defined() || !slot.is_contiguous() || (to_write && !slot.is_sole_owner())) return {};
  std::exchange(state.under_way[output], {}).wait_for_all();
  return std::exchange(slot, {});
}

std::optional<Node::Derivative> BackwardEngine::take_derivative(const Edge& edge, bool only_here) {
  if (edge.node == nullptr || !edge.node->offers_derivative() || options_.retain_graph) return {};
  const Node::Output& output = edge.node->outputs().front();
  if (uses_.at(edge.node.get()) > 1 || !output.hooks.empty() || output.retains_gradient) return {};
  const auto is_here = [](const SavedTensor& saved) { return saved.is_here(); };
  if (only_here && !std::ranges::all_of(edge.node->saved(), is_here)) return {};
  arriving(*edge.node).is_behind_derivative = true;
  return edge.node->derivative();
}

void BackwardEngine::deliver(const Edge& edge, Tensor gradient, RowsUnderWay rows) {
  if (edge.node == nullptr) return rows.wait_for_all();
  const Node::Output& output = edge.node->outputs()[static_cast<size_t>(edge.output)];
  bug_check(gradient.shape() == output.shape && gradient.dtype() == output.dtype,
            "backward: the gradient of an output of '", edge.node->name(), "' is ",
            gradient.dtype(), gradient.shape(), ", the output was ", output.dtype, output.shape);
  const auto place = static_cast<size_t>(edge.output);
  Tensor& slot = arriving(*edge.node).gradients[place];
  RowsUnderWay& under_way = arriving(*edge.node).under_way[place];
  if (!slot.defined()) {
    slot = std::move(gradient);
    under_way = std::move(rows);
    return;
  }
  std::exchange(under_way, {}).wait_for_all();
  std::exchange(rows, {}).wait_for_all();
  slot = sum_of(std::move(slot), std::move(gradient));
}

GradientTarget BackwardEngine::parameter_gradient(Parameter& parameter) {
  if (defers(parameter)) {
    const Tensor made = Tensor::empty(parameter.shape(), parameter.dtype());
    defer(parameter, [made](const GradientTarget& target) {
      const Shape flat{made.numel()};
      kernels::accumulate({.x = made.view().reshape(flat),
                           .accumulator = target.view.reshape(flat),
                           .overwrite = !target.accumulate},
                          compute_stream());
    });
    return {.view = made.view(), .accumulate = false};
  }
  if (is_beside(parameter)) make_beside();
  contributions_.at(&parameter).written = true;
  return parameter.source().gradient(parameter);
}

bool BackwardEngine::is_beside(const Parameter& parameter) const {
  return std::any_of(beside_.steps_.begin(), beside_.steps_.end(),
                     [&](const auto& step) { return step.parameter == &parameter; });
}

void BackwardEngine::make_beside_ranks(Parameter& parameter, DeferredGradients::Write write) {
  contributions_.at(&parameter).written = true;
  beside_.steps_.push_back({.parameter = &parameter, .write = std::move(write)});
}

void BackwardEngine::defer(Parameter& parameter, DeferredGradients::Write write) {
  contributions_.at(&parameter).written = true;
  later_->steps_.push_back({.parameter = &parameter, .write = std::move(write)});
}

BackwardPass::BackwardPass(BackwardEngine& engine, Node& node, std::vector<Tensor> gradients,
                           std::vector<RowsUnderWay> under_way, Tensor& buffer, bool retains_graph,
                           bool is_behind_derivative)
    : engine_(engine),
      node_(node),
      gradients_(std::move(gradients)),
      under_way_(std::move(under_way)),
      buffer_(&buffer),
      retains_graph_(retains_graph),
      is_behind_derivative_(is_behind_derivative),
      weight_gradients_(node.weights().size()) {}

bool BackwardPass::has_gradient(int output) const {
  return gradients_[static_cast<size_t>(output)].defined();
}

Tensor BackwardPass::take_gradient_under_way(int output, RowsUnderWay& rows) {
  const Tensor& gradient = gradients_[static_cast<size_t>(output)];
  if (gradient.defined() && gradient.is_contiguous()) {
    rows = std::exchange(under_way_[static_cast<size_t>(output)], {});
  }
  return take_gradient(output);
}

Tensor BackwardPass::take_strided_gradient(int output) {
  std::exchange(under_way_[static_cast<size_t>(output)], {}).wait_for_all();
  Tensor& slot = gradients_[static_cast<size_t>(output)];
  if (slot.defined()) return std::exchange(slot, Tensor());
  const Node::Output& meta = node_.outputs()[static_cast<size_t>(output)];
  return Tensor::zeros(meta.shape, meta.dtype);
}

Tensor BackwardPass::take_gradient(int output) {
  Tensor gradient = take_strided_gradient(output);
  return gradient.is_contiguous() ? gradient : gradient.clone();
}

Tensor BackwardPass::saved(int index) const {
  return node_.saved()[static_cast<size_t>(index)].restore();
}

void BackwardPass::prepare_saved(int index) const {
  node_.saved()[static_cast<size_t>(index)].prepare();
}

Tensor BackwardPass::take_saved(int index) {
  Tensor tensor = saved(index);
  if (!retains_graph_) node_.saved()[static_cast<size_t>(index)].reset();
  return tensor;
}

bool BackwardPass::needs(int input) const {
  return node_.inputs()[static_cast<size_t>(input)].node != nullptr;
}

Tensor BackwardPass::gradient_memory(int input, bool strided) {
  const Edge& edge = node_.inputs()[static_cast<size_t>(input)];
  bug_check(edge.node != nullptr, node_.name(), ": the gradient of input ", input,
            " is not wanted");
  if (strided) {
    Tensor place = engine_.place_of(edge);
    if (place.defined()) return place;
  }
  const Node::Output& meta = edge.node->outputs()[static_cast<size_t>(edge.output)];
  return Tensor::empty(meta.shape, meta.dtype);
}

Tensor BackwardPass::take_arrived(int input, bool to_write) {
  return engine_.take_arrived(node_.inputs()[static_cast<size_t>(input)], to_write);
}

std::optional<Node::Derivative> BackwardPass::take_derivative(int input, bool only_here) {
  return engine_.take_derivative(node_.inputs()[static_cast<size_t>(input)], only_here);
}

void BackwardPass::give(int input, Tensor gradient, RowsUnderWay rows) {
  engine_.deliver(node_.inputs()[static_cast<size_t>(input)], std::move(gradient), std::move(rows));
}

bool BackwardPass::weight_needs(int weight) const {
  return node_.weights()[static_cast<size_t>(weight)].trainable;
}

WeightValue BackwardPass::weight(int weight) const { return node_.values_of(weight); }

GradientTarget BackwardPass::weight_gradient(int weight) {
  const Node::WeightOperand& operand = node_.weights()[static_cast<size_t>(weight)];
  bug_check(operand.trainable, node_.name(), ": the gradient of weight ", weight, " is not wanted");
  if (operand.parameter != nullptr) return engine_.parameter_gradient(*operand.parameter);
  Tensor& gradient = weight_gradients_[static_cast<size_t>(weight)];
  bug_check(!gradient.defined(), node_.name(), ": the gradient of weight ", weight,
            " was asked for twice");
  gradient = Tensor::empty(operand.shape, operand.dtype);
  return {.view = gradient.view(), .accumulate = false};
}

void BackwardPass::make_weight_gradient(int weight, DeferredGradients::Write write) {
  Parameter* const parameter = node_.weights()[static_cast<size_t>(weight)].parameter;
  if (parameter != nullptr && engine_.defers(*parameter)) {
    return engine_.defer(*parameter, std::move(write));
  }
  if (parameter != nullptr && hides_weights()) {
    return engine_.make_beside_ranks(*parameter, std::move(write));
  }
  write(weight_gradient(weight));
}

bool BackwardPass::makes_at_once(int weight) const {
  const Parameter* const parameter = node_.weights()[static_cast<size_t>(weight)].parameter;
  return parameter == nullptr || (!engine_.defers(*parameter) && !hides_weights());
}

bool BackwardPass::hides_weights() const {
  const std::vector<Edge>& inputs = node_.inputs();
  return !retains_graph_ && std::any_of(inputs.begin(), inputs.end(), [](const Edge& edge) {
    return edge.node != nullptr && edge.node->waits_for_ranks();
  });
}

void BackwardPass::make_beside() { engine_.make_beside(); }

void backward(std::span<const BackwardRoot> roots, const BackwardOptions& options) {
  BackwardEngine engine(options);
  for (const BackwardRoot& root : roots) engine.add_root(root.value, root.gradient);
  engine.start();
  engine.run_above(0);
}

void backward(std::span<GradientRoot> roots, DeferredGradients* later) {
  bug_check(later == nullptr || later->empty(),
            "backward: gradients of an earlier pass are left for later");
  BackwardEngine engine({}, later);
  for (GradientRoot& root : roots) engine.add_root(root.point, std::move(root.gradient));
  engine.start();
  engine.run_above(0);
}

Tensor GradientPoint::take_gradient() const {
  return std::exchange(edge_.node->outputs()[static_cast<size_t>(edge_.output)].gradient, {});
}

void backward(const Tensor& value, const Tensor& gradient, const BackwardOptions& options) {
  require(gradient.defined(), "backward: the gradient is undefined");
  BackwardEngine engine(options);
  engine.add_root(value, gradient);
  engine.start();
  engine.run_above(0);
}

void backward(const Tensor& value, double seed, const BackwardOptions& options) {
  BackwardEngine engine(options);
  engine.add_seed(value, seed);
  engine.start();
  engine.run_above(0);
}

int64_t last_recorded() { return Mode::current().last_sequence; }

BackwardInParts::BackwardInParts(const Tensor& value, double seed)
    : engine_(std::make_unique<BackwardEngine>(BackwardOptions{})) {
  engine_->add_seed(value, seed);
  engine_->start();
}
BackwardInParts::~BackwardInParts() = default;
BackwardInParts::BackwardInParts(BackwardInParts&&) noexcept = default;
BackwardInParts& BackwardInParts::operator=(BackwardInParts&&) noexcept = default;
void BackwardInParts::run_back_to(int64_t mark) { engine_->run_above(mark); }

void requires_grad_(Tensor& tensor) {
  require(is_float(tensor.dtype()), "requires_grad_: only floats have gradients, not ",
          tensor.dtype());
  const Edge edge = edge_of(tensor);
  require(edge.node == nullptr || edge.node->is_leaf(),
          "requires_grad_: an op has made this tensor; detach() it first");
  if (edge.node == nullptr) make_node<LeafNode>()->set_output(tensor);
}

Tensor grad(const Tensor& tensor) {
  const Edge edge = edge_of(tensor);
  if (edge.node == nullptr) return {};
  return edge.node->outputs()[static_cast<size_t>(edge.output)].gradient;
}

void zero_grad(const Tensor& tensor) { output_of(tensor, "zero_grad").gradient = {}; }

void retain_grad(const Tensor& tensor) {
  Node::Output& output = output_of(tensor, "retain_grad");
  if (!edge_of(tensor).node->is_leaf()) output.retains_gradient = true;
}

void register_hook(const Tensor& tensor, GradientHook hook) {
  require(hook != nullptr, "register_hook: the hook is empty");
  output_of(tensor, "register_hook").hooks.push_back(std::move(hook));
}

void clear_hooks(const Tensor& tensor) { output_of(tensor, "clear_hooks").hooks.clear(); }

}  // namespace zinc::autograd
