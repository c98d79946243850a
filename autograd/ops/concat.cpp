#include "autograd/ops/concat.h"

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/concat.h"

namespace zinc::autograd {
namespace {

class ConcatNode final : public Node {
 public:
  ConcatNode(int dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  std::string_view name() const override { return "concat"; }

  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_strided_gradient(0);
    int64_t begin = 0;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (pass.needs(static_cast<int>(i))) {
        pass.give(static_cast<int>(i), dy.narrow_view(dim_, begin, sizes_[i]));
      }
      begin += sizes_[i];
    }
  }

 private:
  int dim_;
  std::vector<int64_t> sizes_;
};

}  // namespace

Tensor concat(std::span<const Tensor> parts, int dim) {
  require(!parts.empty(), "concat: no parts");
  Shape shape = parts.front().shape();
  const int d = dim < 0 ? dim + shape.rank() : dim;
  require(d >= 0 && d < shape.rank(), "concat: dimension ", dim, " of parts of shape ", shape);
  std::vector<ConstView> views;
  std::vector<int64_t> sizes;
  int64_t total = 0;
  bool records = false;
  for (const Tensor& part : parts) {
    require(part.rank() == shape.rank(), "concat: ranks differ: ", shape, " vs ", part.shape());
    views.push_back(part.view());
    sizes.push_back(part.dim(d));
    total += part.dim(d);
    records = records || needs_gradient(part);
  }
  shape.set(d, total);
  Tensor whole = Tensor::empty(shape, parts.front().dtype());
  kernels::concat({.parts = views, .dim = d, .whole = whole.view()}, compute_stream());
  if (records) {
    auto node = make_node<ConcatNode>(d, std::move(sizes));
    for (const Tensor& part : parts) node->add_input(part);
    node->set_output(whole);
  }
  return whole;
}

}  // namespace zinc::autograd
