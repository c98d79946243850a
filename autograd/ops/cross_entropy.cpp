#include "autograd/ops/cross_entropy.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/loss_scope.h"
#include "autograd/node.h"
#include "autograd/view_shapes.h"

namespace zinc::autograd {
namespace {

// Saved: logits, labels, lse.
class CrossEntropyNode final : public Node {
 public:
  explicit CrossEntropyNode(double smoothing) : smoothing_(smoothing) {}
  std::string_view name() const override { return "cross_entropy"; }

  // dlogits = dloss * (softmax(logits) - smoothed labels), in place of logits that no other handle
  // shares
  void backward(BackwardPass& pass) override {
    const Tensor dloss = pass.take_gradient(0);
    Tensor logits = pass.take_saved(0);
    const Tensor labels = pass.take_saved(1);
    const Tensor lse = pass.take_saved(2);
    Tensor dlogits =
        logits.is_sole_owner() && logits.is_contiguous() ? logits : pass.gradient_memory(0);
    kernels::cross_entropy_backward({.logits = as_matrix("cross_entropy", ConstView(logits.view())),
                                     .labels = labels.view(),
                                     .lse = lse.view(),
                                     .dloss = dloss.view(),
                                     .dlogits = as_matrix("cross_entropy", dlogits.view()),
                                     .smoothing = smoothing_},
                                    compute_stream());
    logits = {};
    pass.give(0, std::move(dlogits));
  }

 private:
  double smoothing_;
};

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  require(logits.rank() >= 1 && labels.numel() == logits.view().rows(),
          "cross_entropy: ", labels.numel(), " labels for logits of shape ", logits.shape());
  const DType dtype = logits.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const bool records = needs_gradient(logits);
  const double smoothing = LossScope::current().label_smoothing;
  const Tensor flat_labels = labels.reshape_view(Shape{labels.numel()});
  Tensor loss = Tensor::empty(Shape{}, dtype);
  Tensor lse;
  if (records) lse = Tensor::empty(Shape{labels.numel()}, dtype);
  kernels::cross_entropy_forward({.logits = as_matrix("cross_entropy", ConstView(logits.view())),
                                  .labels = flat_labels.view(),
                                  .loss = loss.view(),
                                  .lse = records ? lse.view() : View(),
                                  .smoothing = smoothing},
                                 compute_stream());
  if (records) {
    auto node = make_node<CrossEntropyNode>(smoothing);
    node->add_input(logits);
    node->save(logits);
    node->save(flat_labels);
    node->save(lse);
    node->set_output(loss);
  }
  return loss;
}

}  // namespace zinc::autograd
