#include "zero/optimizer_step.h"

namespace zinc::zero {
namespace {

class ResidentStep final : public OptimizerStep {
 public:
  ResidentStep(WeightStore& weights, GradientStore& gradients, Context& context)
      : weights_(weights), gradients_(gradients), context_(context) {}

  void run(const StepArguments& args) override {
    optim::HyperParameters hyper = args.hyper;
    for (const UpdateSlice& slice : weights_.slices()) {
      hyper.weight_decay = decays(slice.segment) ? args.hyper.weight_decay : 0.0;
      args.optimizer.update({.weights = slice.weights,
                             .gradient = gradients_.gradient(slice.group, slice.range),
                             .states = slice.states,
                             .model_weights = slice.model_weights,
                             .factor = args.factor,
                             .step = args.step},
                            hyper, context_.compute());
    }
  }

 private:
  WeightStore& weights_;
  GradientStore& gradients_;
  Context& context_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_resident_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context) {
  return std::make_unique<ResidentStep>(weights, gradients, context);
}

}  // namespace zinc::zero
