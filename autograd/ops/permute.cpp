#include "autograd/ops/permute.h"

#include <array>
#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/permute.h"

namespace zinc::autograd {
namespace {

using Order = std::array<int, kMaxRank>;

class PermuteNode final : public Node {
 public:
  explicit PermuteNode(const Order& inverse) : inverse_(inverse) {}
  std::string_view name() const override { return "permute"; }

  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_strided_gradient(0);
    Tensor dx = pass.gradient_memory(0, true);
    kernels::permute({.x = dy.view(), .order = inverse_, .y = dx.view()}, compute_stream());
    pass.give(0, std::move(dx));
  }

 private:
  Order inverse_;
};

}  // namespace

Tensor permute(const Tensor& x, std::span<const int> order) {
  const int rank = x.rank();
  require(static_cast<int>(order.size()) == rank && rank >= 1, "permute: ", order.size(),
          " dimensions named for a tensor of shape ", x.shape());
  Order full{};
  std::array<bool, kMaxRank> seen{};
  for (int d = 0; d < rank; ++d) {
    const int from = order[static_cast<size_t>(d)];
    require(from >= 0 && from < rank && !seen[static_cast<size_t>(from)],
            "permute: the order must name every dimension of ", x.shape(), " once");
    seen[static_cast<size_t>(from)] = true;
    full[static_cast<size_t>(d)] = from;
  }
  Tensor y = Tensor::empty(kernels::permuted_shape(x.shape(), full), x.dtype());
  kernels::permute({.x = x.view(), .order = full, .y = y.view()}, compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<PermuteNode>(kernels::inverse_order(full, rank));
    node->add_input(x);
    node->set_output(y);
  }
  return y;
}

Tensor transpose(const Tensor& x, int a, int b) {
  const int rank = x.rank();
  const int first = a < 0 ? a + rank : a;
  const int second = b < 0 ? b + rank : b;
  require(first >= 0 && first < rank && second >= 0 && second < rank, "transpose: dimensions ", a,
          " and ", b, " of a tensor of shape ", x.shape());
  Order order{};
  for (int d = 0; d < rank; ++d) order[static_cast<size_t>(d)] = d;
  std::swap(order[static_cast<size_t>(first)], order[static_cast<size_t>(second)]);
  return permute(x, std::span<const int>(order.data(), static_cast<size_t>(rank)));
}

}  // namespace zinc::autograd
