#include "autograd/ops/rotary.h"

#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/view_shapes.h"
#include "core/context.h"
#include "kernels/checks.h"

namespace zinc::autograd {
namespace {

void turn(const Tensor& x, const RotaryTable& table, const RotaryOptions& options, bool inverse) {
  kernels::rotary(
      {.q = heads_of("rotary", x.view(), 0, options.num_heads, options.head_size),
       .k = {},
       .cos = table.cos.view(),
       .sin = table.sin.view(),
       .positions = options.positions.defined() ? ConstView(options.positions.view()) : ConstView(),
       .start = options.start,
       .layout = options.layout,
       .inverse = inverse},
      compute_stream());
}

class RotaryNode final : public Node {
 public:
  // The tables are a module's constants, shared by all layers: kept, not saved.
  RotaryNode(RotaryTable table, RotaryOptions options)
      : table_(std::move(table)), options_(std::move(options)) {
    has_positions_ = options_.positions.defined();
    if (has_positions_) save(std::exchange(options_.positions, Tensor()));
  }
  std::string_view name() const override { return "rotary"; }

  // A rotation's transpose is its inverse.
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    Tensor dx = dy.is_sole_owner() ? std::move(dy) : dy.clone();
    RotaryOptions options = options_;
    if (has_positions_) options.positions = pass.take_saved(0);
    turn(dx, table_, options, true);
    pass.give(0, std::move(dx));
  }

 private:
  RotaryTable table_;
  RotaryOptions options_;
  bool has_positions_ = false;
};

}  // namespace

RotaryTable make_rotary_table(int64_t positions, int64_t rotary_dims, double theta,
                              const kernels::RotaryScaling& scaling, DType activations) {
  require(positions >= 0 && rotary_dims >= 2 && rotary_dims % 2 == 0,
          "rotary: a table needs an even number of dimensions, not ", rotary_dims, " for ",
          positions, " positions");
  const Shape shape{positions, rotary_dims / 2};
  const std::vector<double> frequencies = kernels::rotary_frequencies(rotary_dims, theta, scaling);
  require(is_float(activations), "rotary: activations are floats, not ", activations);
  const DType dtype = kernels::accumulator_of(activations);
  if (Context::current().device().meta) {
    return {.cos = Tensor::empty(shape, dtype), .sin = Tensor::empty(shape, dtype)};
  }
  auto values = [&](auto element) {
    std::vector<decltype(element)> cos(static_cast<size_t>(shape.numel()));
    std::vector<decltype(element)> sin(cos.size());
    kernels::fill_rotary_table(frequencies, 0, View(cos.data(), dtype, shape),
                               View(sin.data(), dtype, shape));
    return RotaryTable{.cos = Tensor::from(cos, shape), .sin = Tensor::from(sin, shape)};
  };
  return dtype == DType::f64 ? values(double{}) : values(float{});
}

Tensor rotary(Tensor x, const RotaryTable& table, const RotaryOptions& options) {
  require(options.head_size > 0 && options.num_heads > 0,
          "rotary: head_size and num_heads must be given");
  const bool records = needs_gradient(x);
  std::shared_ptr<RotaryNode> node;
  if (records) {
    node = make_node<RotaryNode>(table, options);
    node->add_input(x);
  }
  Tensor y = x.is_sole_owner() ? x.detach() : x.clone();
  x = {};
  turn(y, table, options, false);
  if (records) node->set_output(y);
  return y;
}

}  // namespace zinc::autograd
