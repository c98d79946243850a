// The update where states live in host memory: the CPU computes, weights travel back.
#include <algorithm>
#include <utility>

#include "zero/host_memory.h"
#include "zero/host_stream.h"
#include "zero/optimizer_step.h"
#include "zero/updated_weights.h"

namespace zinc::zero {
namespace {

class HostStep final : public OptimizerStep {
 public:
  HostStep(WeightStore& weights, GradientStore& gradients, Context& context, int64_t tile_numel,
           std::unique_ptr<OptimizerStep> beside)
      : weights_(weights),
        gradients_(gradients),
        context_(context),
        tile_numel_(tile_numel),
        updated_(weights, weights.slices_in(Tier::pinned_host), context, Tier::pinned_host,
                 tile_numel),
        factor_(context),
        beside_(std::move(beside)) {}

  void run(const StepArguments& args) override {
    const ConstView factor = factor_.take(args.factor);
    beside_->run(args);
    for (const UpdateSlice& slice : weights_.slices_in(Tier::pinned_host)) {
      for (int64_t begin = 0; begin < slice.range.size(); begin += tile_numel_) {
        const int64_t numel = std::min(tile_numel_, slice.range.size() - begin);
        update(args, factor, slice, begin, numel);
      }
    }
    updated_.finish();
  }

 private:
  void update(const StepArguments& args, const ConstView& factor, const UpdateSlice& slice,
              int64_t begin, int64_t numel) {
    const Range range{slice.range.begin + begin, slice.range.begin + begin + numel};
    const View weights = slice.weights.narrow(0, begin, numel);
    const View narrow = UpdatedWeights::is_narrow(slice) ? updated_.buffer(slice, numel) : View();
    optim::Update update{.weights = host_memory(weights),
                         .gradient = host_memory(gradients_.gradient(slice.group, range)),
                         .model_weights = host_memory(narrow),
                         .factor = factor,
                         .step = args.step};
    for (int i = 0; i < args.optimizer.num_states(); ++i) {
      const auto s = static_cast<size_t>(i);
      update.states[s] = host_memory(slice.states[s].narrow(0, begin, numel));
    }
    args.rules.update(args.optimizer, update, slice.group, range, updated_.stream());
    updated_.send(narrow ? narrow : weights, slice, range);
  }

  WeightStore& weights_;
  GradientStore& gradients_;
  Context& context_;
  const int64_t tile_numel_;
  UpdatedWeights updated_;
  HostFactor factor_;
  std::unique_ptr<OptimizerStep> beside_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_host_step(WeightStore& weights, GradientStore& gradients,
                                              Context& context, int64_t tile_numel,
                                              std::unique_ptr<OptimizerStep> beside) {
  return std::make_unique<HostStep>(weights, gradients, context, whole_chunks(tile_numel),
                                    std::move(beside));
}

}  // namespace zinc::zero
