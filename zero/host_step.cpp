// The update where states live in host memory: the CPU computes, weights travel back.
#include <algorithm>

#include "zero/host_memory.h"
#include "zero/optimizer_step.h"
#include "zero/weights_to_device.h"

namespace zinc::zero {
namespace {

class HostStep final : public OptimizerStep {
 public:
  HostStep(WeightStore& weights, GradientStore& gradients, Context& context, int64_t tile_numel)
      : weights_(weights),
        gradients_(gradients),
        context_(context),
        tile_numel_(tile_numel),
        to_device_(context, buffer_numel(), buffer_dtype()) {}

  void run(const StepArguments& args) override {
    for (const UpdateSlice& slice : weights_.slices()) {
      for (int64_t begin = 0; begin < slice.range.size(); begin += tile_numel_) {
        const int64_t numel = std::min(tile_numel_, slice.range.size() - begin);
        update(args, slice, begin, numel);
      }
    }
    to_device_.finish();
  }

 private:
  int64_t buffer_numel() const {
    int64_t largest = 0;
    for (const UpdateSlice& slice : weights_.slices()) {
      if (is_narrow(slice)) largest = std::max(largest, std::min(tile_numel_, slice.range.size()));
    }
    return largest;
  }
  DType buffer_dtype() const {
    const std::vector<UpdateSlice> slices = weights_.slices();
    return slices.empty() ? DType::f32 : slices.front().model_weights.dtype();
  }
  static bool is_narrow(const UpdateSlice& slice) {
    return slice.model_weights.dtype() != slice.weights.dtype();
  }

  void update(const StepArguments& args, const UpdateSlice& slice, int64_t begin, int64_t numel) {
    const Range range{slice.range.begin + begin, slice.range.begin + begin + numel};
    optim::HyperParameters hyper = args.hyper;
    if (!decays(slice.segment)) hyper.weight_decay = 0.0;
    const View weights = slice.weights.narrow(0, begin, numel);
    const View narrow = is_narrow(slice) ? to_device_.buffer(numel) : View();
    optim::Update update{.weights = host_memory(weights),
                         .gradient = host_memory(gradients_.gradient(slice.group, range)),
                         .model_weights = host_memory(narrow),
                         .factor = args.factor,
                         .step = args.step};
    for (int i = 0; i < args.optimizer.num_states(); ++i) {
      const auto s = static_cast<size_t>(i);
      update.states[s] = host_memory(slice.states[s].narrow(0, begin, numel));
    }
    args.optimizer.update(update, hyper, context_.compute());
    to_device_.send(narrow ? narrow : weights, slice.model_weights.narrow(0, begin, numel));
  }

  WeightStore& weights_;
  GradientStore& gradients_;
  Context& context_;
  const int64_t tile_numel_;
  WeightsToDevice to_device_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_host_step(WeightStore& weights, GradientStore& gradients,
                                              Context& context, int64_t tile_numel) {
  const int64_t rounded = (tile_numel + kNormChunk - 1) / kNormChunk * kNormChunk;
  return std::make_unique<HostStep>(weights, gradients, context, rounded);
}

}  // namespace zinc::zero
