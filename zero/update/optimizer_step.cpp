#include "zero/update/optimizer_step.h"

#include <algorithm>

#include "core/error.h"
#include "zero/update/updated_weights.h"

namespace zinc::zero {
namespace {

class ResidentStep final : public OptimizerStep {
 public:
  ResidentStep(WeightStore& weights, GradientStore& gradients, Context& context, int64_t tile_numel)
      : weights_(weights),
        gradients_(gradients),
        context_(context),
        tile_numel_(tile_numel),
        updated_(weights, weights.slices_in(Tier::device), context, Tier::device, tile_numel) {}

  void run(const StepArguments& args) override {
    for (const UpdateSlice& slice : weights_.slices_in(Tier::device)) {
      if (slice.model_tier == Tier::device) {
        update(args, slice, slice.range, slice.model_weights);
      } else {
        update_in_tiles(args, slice);
      }
    }
    updated_.finish();
  }

 private:
  // For a slice whose model copy is not on the device.
  void update_in_tiles(const StepArguments& args, const UpdateSlice& slice) {
    bug_check(!args.skip, "a skipped update would send what is in the buffer");
    for (int64_t begin = slice.range.begin; begin < slice.range.end; begin += tile_numel_) {
      const Range tile{begin, std::min(begin + tile_numel_, slice.range.end)};
      const bool is_narrow = UpdatedWeights::is_narrow(slice);
      const View narrow = is_narrow ? updated_.buffer(slice, tile.size()) : View();
      update(args, slice, tile, narrow);
      updated_.send(
          is_narrow ? narrow : slice.weights.narrow(0, tile.begin - slice.range.begin, tile.size()),
          slice, tile);
    }
  }

  void update(const StepArguments& args, const UpdateSlice& slice, Range range,
              const View& model_weights) {
    const int64_t begin = range.begin - slice.range.begin;
    optim::Update update{.weights = slice.weights.narrow(0, begin, range.size()),
                         .gradient = gradients_.gradient(slice.group, range),
                         .model_weights = model_weights,
                         .factor = args.factor,
                         .skip = args.skip,
                         .step = args.step};
    for (int i = 0; i < args.optimizer.num_states(); ++i) {
      const auto s = static_cast<size_t>(i);
      update.states[s] = slice.states[s].narrow(0, begin, range.size());
    }
    args.rules.update(args.optimizer, update, slice.group, range, context_.compute());
  }

  WeightStore& weights_;
  GradientStore& gradients_;
  Context& context_;
  const int64_t tile_numel_;
  UpdatedWeights updated_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_resident_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context, int64_t tile_numel) {
  return std::make_unique<ResidentStep>(weights, gradients, context, whole_chunks(tile_numel));
}

}  // namespace zinc::zero
