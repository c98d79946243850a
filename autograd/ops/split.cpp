#include "autograd/ops/split.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace zinc::autograd {
namespace {

struct Range {
  int64_t begin = 0;
  int64_t length = 0;
};

// Outputs: one per part. Elements that no part covers have zero gradient.
class SplitNode final : public Node {
 public:
  SplitNode(const Tensor& x, int dim, std::vector<Range> parts)
      : shape_(x.shape()), dtype_(x.dtype()), dim_(dim), parts_(std::move(parts)) {}
  std::string_view name() const override { return "split"; }

  Tensor gradient_place(int output, Tensor& buffer) const override {
    if (!buffer.defined()) buffer = Tensor::empty(shape_, dtype_);
    return part_of(buffer, static_cast<size_t>(output));
  }

  void backward(BackwardPass& pass) override {
    Tensor dx = pass.take_place_buffer();
    if (!dx.defined()) dx = Tensor::empty(shape_, dtype_);
    int64_t covered = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      fill_zeros(dx, covered, parts_[i].begin);
      covered = parts_[i].begin + parts_[i].length;
      const Tensor place = part_of(dx, i);
      if (!pass.has_gradient(static_cast<int>(i))) {
        kernels::fill({.y = place.view()}, compute_stream());
        continue;
      }
      const Tensor dy = pass.take_strided_gradient(static_cast<int>(i));
      if (dy.view().data() == place.view().data()) continue;  // written in place
      kernels::copy({.x = dy.view(), .y = place.view()}, compute_stream());
    }
    fill_zeros(dx, covered, shape_.dim(dim_));
    pass.give(0, std::move(dx));
  }

 private:
  Tensor part_of(const Tensor& whole, size_t part) const {
    return whole.narrow_view(dim_, parts_[part].begin, parts_[part].length);
  }
  void fill_zeros(const Tensor& dx, int64_t begin, int64_t end) const {
    if (begin == end) return;
    kernels::fill({.y = dx.view().narrow(dim_, begin, end - begin)}, compute_stream());
  }

  Shape shape_;
  DType dtype_;
  int dim_;
  std::vector<Range> parts_;  // ascending, disjoint
};

std::vector<Tensor> parts_of(const Tensor& x, int dim, std::vector<Range> ranges) {
  std::vector<Tensor> parts;
  for (const Range& range : ranges) parts.push_back(x.narrow_view(dim, range.begin, range.length));
  if (needs_gradient(x)) {
    auto node = make_node<SplitNode>(x, dim, std::move(ranges));
    node->add_input(x);
    for (Tensor& part : parts) node->set_output(part);
  }
  return parts;
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int dim) {
  std::vector<Range> ranges;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    ranges.push_back({begin, size});
    begin += size;
  }
  require(begin == x.dim(dim), "split: the sizes add up to ", begin, ", dimension ", dim, " of ",
          x.shape(), " has ", x.dim(dim));
  return parts_of(x, dim < 0 ? dim + x.rank() : dim, std::move(ranges));
}

Tensor narrow(const Tensor& x, int dim, int64_t begin, int64_t length) {
  return parts_of(x, dim < 0 ? dim + x.rank() : dim, {{begin, length}}).front();
}

}  // namespace zinc::autograd
