#include "autograd/ops/swiglu.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/swiglu.h"

namespace zinc::autograd {
namespace {

struct Halves {
  View gate, up;
};

Halves halves_of(const Tensor& packed) {
  const int64_t cols = packed.dim(-1) / 2;
  return {packed.view().narrow(-1, 0, cols), packed.view().narrow(-1, cols, cols)};
}

Tensor gated(const Halves& x) {
  Tensor y = Tensor::empty(x.gate.shape(), x.gate.dtype());
  kernels::swiglu_forward({.gate = x.gate, .up = x.up, .y = y.view()}, compute_stream());
  return y;
}

// The saved tensor's own memory, if no other handle shares it.
Tensor memory_like(const Tensor& saved) {
  if (saved.is_sole_owner() && saved.is_contiguous()) return saved;
  return Tensor::empty(saved.shape(), saved.dtype());
}

class SwiGluNode final : public Node {
 public:
  explicit SwiGluNode(bool are_rows) : are_rows_(are_rows) {}
  std::string_view name() const override { return "swiglu"; }

  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    if (pass.is_behind_derivative()) {
      saved()[0].reset();
      if (pass.needs(0)) pass.give(0, std::move(dy));
      if (pass.needs(1)) pass.give(1, std::move(dup_));
      return;
    }
    Tensor gate = pass.take_saved(0);
    Tensor up = pass.take_saved(1);
    // The kernel writes both; an unwanted gradient gets memory that is freed at once.
    Tensor dgate = memory_like(gate);
    Tensor dup = memory_like(up);
    kernels::swiglu_backward({.dy = dy.view(),
                              .gate = gate.view(),
                              .up = up.view(),
                              .dgate = dgate.view(),
                              .dup = dup.view()},
                             compute_stream());
    dy = gate = up = {};
    if (pass.needs(0)) pass.give(0, std::move(dgate));
    if (pass.needs(1)) pass.give(1, std::move(dup));
  }

  bool can_remake(int) const override { return true; }
  Tensor remake(int) override {
    const Tensor gate = saved()[0].restore();
    const Tensor up = saved()[1].restore();
    return gated({gate.view(), up.view()});
  }

  bool offers_derivative() const override { return are_rows_; }
  Derivative derivative() override {
    Tensor up = saved()[1].restore();
    // A result that is still to be made again needs both.
    if (outputs()[0].remade.expired()) saved()[1].reset();
    dup_ = memory_like(up);
    return {.activation = kernels::Activation::silu,
            .input = saved()[0].restore(),
            .factor = std::move(up),
            .factor_gradient = dup_};
  }

 private:
  bool are_rows_;  // gate and up have no gaps
  Tensor dup_;     // from derivative() to backward(), where a product makes the gradients
};

class PackedSwiGluNode final : public Node {
 public:
  explicit PackedSwiGluNode(bool are_rows) : are_rows_(are_rows) {}
  std::string_view name() const override { return "swiglu"; }

  void backward(BackwardPass& pass) override {
    if (pass.is_behind_derivative()) {
      pass.take_strided_gradient(0);  // the gate's, in its place
      saved()[0].reset();
      return pass.give(0, std::move(dx_));
    }
    Tensor dy = pass.take_gradient(0);
    Tensor x = pass.take_saved(0);
    Tensor dx = memory_like(x);
    const Halves halves = halves_of(x);
    const Halves gradients = halves_of(dx);
    kernels::swiglu_backward({.dy = dy.view(),
                              .gate = halves.gate,
                              .up = halves.up,
                              .dgate = gradients.gate,
                              .dup = gradients.up},
                             compute_stream());
    dy = x = {};
    pass.give(0, std::move(dx));
  }

  bool can_remake(int) const override { return true; }
  Tensor remake(int) override {
    const Tensor x = saved()[0].restore();
    return gated(halves_of(x));
  }

  bool offers_derivative() const override { return are_rows_; }
  Derivative derivative() override {
    Tensor x = saved()[0].restore();
    // A result that is still to be made again needs it as it is.
    if (outputs()[0].remade.expired()) saved()[0].reset();
    dx_ = memory_like(x);
    const int64_t cols = x.dim(-1) / 2;
    return {.activation = kernels::Activation::silu,
            .input = x.narrow_view(-1, 0, cols),
            .factor = x.narrow_view(-1, cols, cols),
            .factor_gradient = dx_.narrow_view(-1, cols, cols),
            .gradient = dx_.narrow_view(-1, 0, cols)};
  }

 private:
  bool are_rows_;  // the input's rows have no gaps between them
  Tensor dx_;      // from derivative() to backward(), where a product makes the gradient
};

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  require(gate.shape() == up.shape() && gate.dtype() == up.dtype(),
          "swiglu: gate and up differ: ", gate.dtype(), gate.shape(), " vs ", up.dtype(),
          up.shape());
  Tensor y = gated({gate.view(), up.view()});
  if (needs_gradient(gate, up)) {
    auto node = make_node<SwiGluNode>(gate.is_contiguous() && up.is_contiguous());
    node->add_input(gate);
    node->add_input(up);
    node->save(gate);
    node->save(up);
    node->set_output(y);
  }
  return y;
}

Tensor swiglu(const Tensor& gate_up) {
  require(gate_up.rank() >= 1 && gate_up.dim(-1) % 2 == 0,
          "swiglu: the last dimension must hold two halves: ", gate_up.shape());
  Tensor y = gated(halves_of(gate_up));
  if (needs_gradient(gate_up)) {
    auto node = make_node<PackedSwiGluNode>(gate_up.is_contiguous());
    node->add_input(gate_up);
    node->save(gate_up);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
