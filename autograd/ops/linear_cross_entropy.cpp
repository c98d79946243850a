#include "autograd/ops/linear_cross_entropy.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/loss_scope.h"
#include "autograd/node.h"
#include "autograd/recorded_seed.h"
#include "autograd/view_shapes.h"
#include "kernels/accumulate.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/scale.h"

namespace zinc::autograd {
namespace {

constexpr std::string_view kOp = "linear_cross_entropy";

// Saved: dhidden, dweight, dbias for an upstream gradient of `expected`.
class ReadyGradientNode final : public Node {
 public:
  explicit ReadyGradientNode(const LossGradient& expected) : expected_(expected) {}
  std::string_view name() const override { return kOp; }

  void backward(BackwardPass& pass) override {
    const Tensor dloss = ratio_of(pass.take_gradient(0));
    for (const int weight : {1, 0}) {
      if (pass.weight_needs(weight))
        scale_into(pass, 1 + weight, dloss, pass.weight_gradient(weight));
    }
    if (pass.needs(0)) {
      Tensor dhidden = pass.take_saved(0);
      Tensor target = dhidden.is_sole_owner() ? dhidden : pass.gradient_memory(0);
      scale_by(dloss, dhidden, target.view());
      dhidden = {};
      pass.give(0, std::move(target));
    }
  }

 private:
  // dloss, divided by `expected` already where that is on the device.
  Tensor ratio_of(Tensor dloss) const {
    if (expected_.recorded == nullptr) return dloss;
    Tensor ratio = Tensor::empty(dloss.shape(), dloss.dtype());
    kernels::scale(
        {.x = dloss.view(), .device_factor = expected_.recorded->reciprocal(), .y = ratio.view()},
        compute_stream());
    return ratio;
  }

  void scale_by(const Tensor& dloss, const Tensor& x, const View& y) const {
    kernels::scale({.x = x.view(),
                    .factor = expected_.recorded == nullptr ? 1.0 / expected_.value : 1.0,
                    .device_factor = dloss.view().reshape(Shape{1}),
                    .y = y},
                   compute_stream());
  }

  void scale_into(BackwardPass& pass, int saved, const Tensor& dloss,
                  const GradientTarget& target) const {
    const Tensor ready = pass.take_saved(saved);
    if (!target.accumulate) {
      scale_by(dloss, ready, target.view);
      return;
    }
    const Tensor scaled =
        ready.is_sole_owner() ? ready : Tensor::empty(ready.shape(), ready.dtype());
    scale_by(dloss, ready, scaled.view());
    const Shape flat{ready.numel()};
    kernels::accumulate(
        {.x = scaled.view().reshape(flat), .accumulator = target.view.reshape(flat)},
        compute_stream());
  }

  LossGradient expected_;
};

template <class V>
V part_of(const V& view, const TensorSlice::Piece& piece) {
  return view ? view.narrow(0, piece.begin, piece.count) : view;
}

kernels::ClassSlice slice_of(const ClassShare& share, const TensorSlice::Piece& piece) {
  if (share.is_whole()) return {};
  return {.first = share.slice.first + piece.begin, .total = share.slice.total};
}

// Saved: hidden, labels, lse.
class RecomputedGradientNode final : public Node {
 public:
  RecomputedGradientNode(const LossOptions& options, const ClassShare& share)
      : options_(options), share_(share) {}
  std::string_view name() const override { return kOp; }

  void backward(BackwardPass& pass) override {
    const Tensor dloss = pass.take_gradient(0);
    const Tensor hidden = pass.take_saved(0);
    const Tensor labels = pass.take_saved(1);
    const Tensor lse = pass.take_saved(2);
    const WeightValue weight = pass.weight(0);
    const WeightValue bias = pass.weight(1);
    GradientTarget dweight;
    GradientTarget dbias;
    if (pass.weight_needs(1)) dbias = pass.weight_gradient(1);
    if (pass.weight_needs(0)) dweight = pass.weight_gradient(0);
    const Tensor separate_dbias = accumulate_apart(dweight, dbias);
    const View dbias_here = separate_dbias.defined() ? separate_dbias.view() : dbias.view;
    Tensor dhidden;
    if (pass.needs(0)) dhidden = pass.gradient_memory(0);
    const auto of_classes = [&](const TensorSlice::Piece& piece, const View& to) {
      kernels::linear_cross_entropy_backward(
          {.hidden = as_matrix(kOp, ConstView(hidden.view())),
           .weight = part_of(weight.view(), piece),
           .bias = part_of(bias.view(), piece),
           .labels = labels.view(),
           .lse = lse.view(),
           .dloss = dloss.view(),
           .dhidden = to,
           .dweight = part_of(dweight.view, piece),
           .dbias = part_of(dbias_here, piece),
           .accumulate_dweight = dweight.view ? dweight.accumulate : dbias.accumulate,
           .smoothing = options_.label_smoothing,
           .slice = slice_of(share_, piece),
           .narrow_logits = options_.narrow_logits},
          compute_stream());
    };
    const View to = dhidden.defined() ? as_matrix(kOp, dhidden.view()) : View();
    if (share_.slices == nullptr) {
      of_classes({0, weight.view().dim(0)}, to);
    } else if (to) {
      share_.slices->sum_to(to, [&](size_t slice, const View& part) {
        of_classes(share_.slices->slices()[slice].front(), part);
      });
    } else {
      for (const auto& slice : share_.slices->slices()) of_classes(slice.front(), {});
    }
    if (separate_dbias.defined()) {
      kernels::accumulate(
          {.x = separate_dbias.view(), .accumulator = dbias.view, .overwrite = !dbias.accumulate},
          compute_stream());
    }
    if (dhidden.defined()) pass.give(0, std::move(dhidden));
  }

 private:
  // The kernel has one accumulate flag for weight and bias. Where the two differ, the bias gets its
  // own memory, zeros where the kernel will add.
  static Tensor accumulate_apart(const GradientTarget& dweight, const GradientTarget& dbias) {
    if (!dweight.view || !dbias.view || dweight.accumulate == dbias.accumulate) return {};
    return Tensor::zeros(dbias.view.shape(), dbias.view.dtype());
  }

  LossOptions options_;
  ClassShare share_;
};

// The first of several, without the memory of the others.
Tensor first_of(const Tensor& several, const Shape& shape) {
  const Tensor first = several.narrow_view(0, 0, 1);
  return (several.dim(0) > 1 ? first.clone() : first).reshape_view(shape);
}

void check(const Tensor& hidden, const Weight& weight, const Tensor& labels, const Weight& bias) {
  require(static_cast<bool>(weight) && weight.rank() == 2, kOp, ": the weight must be a matrix");
  require(hidden.rank() >= 1 && hidden.dim(-1) == weight.dim(1), kOp, ": hidden of shape ",
          hidden.shape(), " does not fit ", weight);
  require(weight.dtype() == hidden.dtype(), kOp, ": the weight is ", weight.dtype(), ", hidden is ",
          hidden.dtype());
  require(labels.numel() == hidden.view().rows(), kOp, ": ", labels.numel(),
          " labels for hidden of shape ", hidden.shape());
  require(!bias || (bias.shape() == Shape{weight.dim(0)} && bias.dtype() == hidden.dtype()), kOp,
          ": the bias must be ", hidden.dtype(), Shape{weight.dim(0)});
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden, const Weight& weight, const Tensor& labels,
                            const Weight& bias, HeadGradient gradient, const ClassShare& share) {
  check(hidden, weight, labels, bias);
  const Tensor flat_labels = labels.reshape_view(Shape{labels.numel()});
  const DType dtype = hidden.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const ConstView rows = as_matrix(kOp, ConstView(hidden.view()));
  const bool records = needs_gradient(hidden, weight, bias);
  const bool in_forward =
      records && gradient == HeadGradient::in_forward && dtype != DType::f64 && share.is_whole();
  const LossGradient expected = Mode::current().expected_loss_gradient;
  const LossOptions options = LossScope::current();

  const int64_t parts =
      share.slices == nullptr ? 1 : static_cast<int64_t>(share.slices->slices().size());
  Tensor losses = Tensor::empty(Shape{parts}, dtype);
  Tensor lse;
  Tensor dhidden;
  Tensor dweight;
  Tensor dbias;
  if (in_forward) {
    if (hidden.requires_grad()) dhidden = Tensor::empty(hidden.shape(), hidden.dtype());
    if (weight.requires_grad()) {
      dweight = Tensor::empty(weight.shape(), weight.dtype(), Label::gradients);
    }
    if (bias && bias.requires_grad()) {
      dbias = Tensor::empty(bias.shape(), bias.dtype(), Label::gradients);
    }
  } else if (records || !share.is_whole()) {
    lse = Tensor::empty(Shape{parts, labels.numel()}, dtype);
  }
  {
    const WeightValue w = weight.acquire();
    const WeightValue b = bias.acquire();
    if (in_forward) {
      kernels::linear_cross_entropy_with_gradient(
          {.hidden = rows,
           .weight = w.view(),
           .bias = b.view(),
           .labels = flat_labels.view(),
           .loss = losses.view(),
           .dhidden = dhidden.defined() ? as_matrix(kOp, dhidden.view()) : View(),
           .dweight = view_or_absent(dweight),
           .dbias = view_or_absent(dbias),
           .loss_scale = expected.recorded == nullptr ? expected.value : 1.0,
           .device_loss_scale = expected.recorded == nullptr
                                    ? ConstView()
                                    : ConstView(expected.recorded->gradient().view()),
           .smoothing = options.label_smoothing,
           .narrow_logits = options.narrow_logits},
          compute_stream());
    } else {
      for (int64_t i = 0; i < parts; ++i) {
        const TensorSlice::Piece piece =
            share.slices == nullptr ? TensorSlice::Piece{0, weight.dim(0)}
                                    : share.slices->slices()[static_cast<size_t>(i)].front();
        kernels::linear_cross_entropy_forward(
            {.hidden = rows,
             .weight = part_of(w.view(), piece),
             .bias = part_of(b.view(), piece),
             .labels = flat_labels.view(),
             .loss = losses.view().narrow(0, i, 1),
             .lse =
                 lse.defined() ? lse.view().narrow(0, i, 1).reshape(Shape{labels.numel()}) : View(),
             .smoothing = options.label_smoothing,
             .slice = slice_of(share, piece),
             .narrow_logits = options.narrow_logits},
            compute_stream());
      }
    }
  }
  if (!share.is_whole()) share.combine(lse, losses, flat_labels);
  Tensor loss = first_of(losses, Shape{});
  if (!records) return loss;
  if (lse.defined()) lse = first_of(lse, Shape{labels.numel()});
  const std::shared_ptr<Node> node =
      in_forward ? std::static_pointer_cast<Node>(make_node<ReadyGradientNode>(expected))
                 : make_node<RecomputedGradientNode>(options, share);
  node->add_input(hidden);
  node->add_weight(weight, !in_forward);
  node->add_weight(bias, !in_forward);
  if (in_forward) {
    for (const Tensor& ready : {dhidden, dweight, dbias}) node->save(ready);
  } else {
    for (const Tensor& saved : {hidden, flat_labels, lse}) node->save(saved);
  }
  node->set_output(loss);
  return loss;
}

}  // namespace zinc::autograd
