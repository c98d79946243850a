#include "parallel/linear_slices.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "autograd/mode.h"
#include "autograd/view_shapes.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "kernels/tree_sum.h"

namespace zinc::parallel {
namespace {

using autograd::GradientTarget;
using autograd::LinearOperand;
using autograd::RowProduct;
using autograd::WeightGradient;
using autograd::WeightLayout;
using Features = autograd::LinearSlices::Features;

class FixedSlices final : public autograd::LinearSlices,
                          public std::enable_shared_from_this<FixedSlices> {
 public:
  FixedSlices(nn::TensorRanks& ranks, std::vector<Features> slices, bool of_inputs)
      : LinearSlices(std::move(slices)), ranks_(ranks), of_inputs_(of_inputs) {}

  bool of_inputs() const { return of_inputs_; }
  void sum_to(const View& out,
              const std::function<void(size_t slice, const View& to)>& make) const override;
  std::shared_ptr<autograd::LinearProducts> products(WeightLayout layout) const override;

 private:
  nn::TensorRanks& ranks_;
  bool of_inputs_;
};

void FixedSlices::sum_to(const View& out,
                         const std::function<void(size_t slice, const View& to)>& make) const {
  const DType wide = out.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const auto count = static_cast<int64_t>(slices().size());
  const Tensor parts = Tensor::empty(Shape{count, out.dim(0), out.dim(1)}, wide, Label::workspace);
  const View rows = parts.view().reshape(Shape{count, out.numel()});
  for (int64_t i = 0; i < count; ++i) {
    make(static_cast<size_t>(i), rows.narrow(0, i, 1).reshape(out.shape()));
  }
  const StreamRef compute = autograd::compute_stream();
  const Tensor sum = parts.narrow_view(0, 0, 1);
  if (count > 1 && out.numel() > 0) {
    kernels::tree_sum({.in = rows, .out = sum.view().reshape(Shape{out.numel()})}, compute);
  }
  ranks_.add_up(sum);
  kernels::copy({.x = sum.view().reshape(out.shape()), .y = out}, compute);
}

template <class V>
V part_of(const V& view, int dim, const TensorSlice::Piece& piece) {
  return view ? view.narrow(dim, piece.begin, piece.count) : view;
}

// Each slice by itself. Where inputs are cut, a bias and an activation come behind the sum.
class SlicedProducts final : public autograd::LinearProducts {
 public:
  SlicedProducts(WeightLayout layout, std::shared_ptr<const FixedSlices> slices)
      : LinearProducts(layout, {.activates = !slices->of_inputs(),
                                .adds = false,
                                .splits_rows = false,
                                .sums_bias = false,
                                .joins_weights = false}),
        slices_(std::move(slices)),
        cut_((slices_->of_inputs() == (layout == WeightLayout::out_in)) ? 1 : 0) {}

  Tensor result(const Tensor& x, const RowProduct& y, bool saves) override {
    y.for_each_part([&](const kernels::Gemm& rows) { make(rows, slices_->of_inputs()); });
    return saves ? x : Tensor();
  }
  void input_gradient(const RowProduct& dx, const LinearOperand&) const override {
    dx.for_each_part([&](const kernels::Gemm& rows) { make(rows, !slices_->of_inputs()); });
  }

  void weight_gradient(const WeightGradient& wanted) const override {
    const kernels::Gemm whole = product_for(wanted);
    for_each_piece([&](const TensorSlice::Piece& piece) {
      kernels::Gemm own = whole;
      (cut_ == 0 ? own.a : own.b) = part_of(cut_ == 0 ? whole.a : whole.b, 1, piece);
      own.c = part_of(whole.c, cut_, piece);
      kernels::gemm(own, autograd::compute_stream());
    });
  }

  void bias_gradient(const Tensor& dz, const TensorSlice::Piece&,
                     const GradientTarget& db) const override {
    const ConstView rows = autograd::as_matrix("linear", ConstView(dz.view()));
    for_each_piece([&](const TensorSlice::Piece& piece) {
      kernels::reduce({.op = kernels::ReduceOp::sum,
                       .over = kernels::ReduceOver::leading,
                       .x = part_of(rows, 1, piece),
                       .y = part_of(db.view, 0, piece),
                       .accumulate = db.accumulate},
                      autograd::compute_stream());
    });
  }

 private:
  template <class Visit>
  void for_each_piece(const Visit& visit) const {
    for (const Features& slice : slices_->slices()) std::ranges::for_each(slice, visit);
  }

  // A product of rows and the weight. Its sums run over the sliced features, or its columns are
  // these features.
  void make(const kernels::Gemm& whole, bool sums_features) const {
    const StreamRef compute = autograd::compute_stream();
    if (!sums_features) {
      for_each_piece([&](const TensorSlice::Piece& piece) {
        kernels::Gemm own = whole;
        own.b = part_of(whole.b, cut_, piece);
        own.bias = part_of(whole.bias, 0, piece);
        own.c = part_of(whole.c, 1, piece);
        own.pre_activation = part_of(whole.pre_activation, 1, piece);
        kernels::gemm(own, compute);
      });
      return;
    }
    slices_->sum_to(whole.c, [&](size_t slice, const View& to) {
      bool adds = false;
      for (const TensorSlice::Piece& piece : slices_->slices()[slice]) {
        kernels::Gemm own = whole;
        own.a = part_of(whole.a, 1, piece);
        own.b = part_of(whole.b, cut_, piece);
        own.c = to;
        own.beta = adds ? 1.0 : 0.0;
        kernels::gemm(own, compute);
        adds = true;
      }
    });
  }

  std::shared_ptr<const FixedSlices> slices_;
  int cut_;  // the dimension of the weight along which it is cut
};

std::shared_ptr<autograd::LinearProducts> FixedSlices::products(WeightLayout layout) const {
  return std::make_shared<SlicedProducts>(layout, shared_from_this());
}

}  // namespace

std::shared_ptr<const autograd::LinearSlices> make_linear_slices(
    nn::TensorRanks& ranks, const std::vector<int64_t>& sections, bool of_inputs) {
  const Shape whole{std::accumulate(sections.begin(), sections.end(), int64_t{0})};
  const int count = ranks.own_slices();
  const TensorSlice mine = TensorSlice::of(whole, 0, sections, ranks.rank(), ranks.size());
  std::vector<Features> slices;
  for (int i = 0; i < count; ++i) {
    const TensorSlice slice =
        TensorSlice::of(whole, 0, sections, ranks.rank() * count + i, ranks.size() * count);
    Features features;
    int64_t at = 0;  // first feature of the section, among the features of this rank
    for (size_t section = 0; section < sections.size(); ++section) {
      const TensorSlice::Piece& piece = slice.pieces[section];
      features.push_back({at + piece.begin - mine.pieces[section].begin, piece.count});
      at += mine.pieces[section].count;
    }
    slices.push_back(std::move(features));
  }
  return std::make_shared<const FixedSlices>(ranks, std::move(slices), of_inputs);
}

}  // namespace zinc::parallel
