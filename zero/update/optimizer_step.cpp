#include "zero/update/optimizer_step.h"

#include <algorithm>

#include "core/error.h"

namespace zinc::zero {
SlicewiseStep::SlicewiseStep(WeightStore& weights, GradientStore& gradients, Context& context,
                             Tier tier, Tier computed_in, int64_t tile_numel)
    : gradients_(gradients),
      context_(context),
      tile_numel_(tile_numel),
      updated_(weights, weights.slices_in(tier), context, computed_in, tile_numel),
      weights_(weights),
      tier_(tier) {}

void SlicewiseStep::begin(const StepArguments& args, bool) {
  bug_check(!args_, "an update begins before the one before it has ended");
  args_.emplace(args);
  slices_ = weights_.slices_in(tier_);
  is_updated_.assign(slices_.size(), false);
}

void SlicewiseStep::update(int group) {
  // Twice this: clang 14 does not compile libstdc++'s std::ranges::equal_range.
  const auto first_of = [&](int of_group) {
    return static_cast<size_t>(
        std::ranges::lower_bound(slices_, of_group, {}, &UpdateSlice::group) - slices_.begin());
  };
  update_slices(first_of(group), first_of(group + 1));
}

void SlicewiseStep::update_slices(size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    if (is_updated_[i]) continue;
    is_updated_[i] = true;
    update_slice(slices_[i]);
  }
}

std::vector<Event> SlicewiseStep::finish(int group) {
  SlicewiseStep::update(group);
  return updated_.sent();
}

void SlicewiseStep::end() {
  update_slices(0, slices_.size());
  updated_.finish();
  args_.reset();
}

namespace {

class ResidentStep final : public SlicewiseStep {
 public:
  ResidentStep(WeightStore& weights, GradientStore& gradients, Context& context, int64_t tile_numel)
      : SlicewiseStep(weights, gradients, context, Tier::device, Tier::device, tile_numel) {}

  void begin(const StepArguments& args, bool during_backward) override {
    bug_check(!during_backward, "an update on the device runs in the step");
    SlicewiseStep::begin(args, during_backward);
  }

 private:
  void update_slice(const UpdateSlice& slice) override {
    if (slice.model_tier == Tier::device) {
      update(slice, slice.range, slice.model_weights);
    } else {
      update_in_tiles(slice);
    }
  }

  // For a slice whose model copy is not on the device.
  void update_in_tiles(const UpdateSlice& slice) {
    bug_check(!args().skip, "a skipped update would send what is in the buffer");
    for (int64_t begin = slice.range.begin; begin < slice.range.end; begin += tile_numel_) {
      const Range tile{begin, std::min(begin + tile_numel_, slice.range.end)};
      const bool is_narrow = UpdatedWeights::is_narrow(slice);
      const View narrow = is_narrow ? updated_.buffer(slice, tile.size()) : View();
      update(slice, tile, narrow);
      updated_.send(
          is_narrow ? narrow : slice.weights.narrow(0, tile.begin - slice.range.begin, tile.size()),
          slice, tile);
    }
  }

  void update(const UpdateSlice& slice, Range range, const View& model_weights) {
    const int64_t begin = range.begin - slice.range.begin;
    optim::Update update{.weights = slice.weights.narrow(0, begin, range.size()),
                         .gradient = gradients_.gradient(slice.group, range),
                         .model_weights = model_weights,
                         .factor = args().factor,
                         .skip = args().skip,
                         .step = args().step};
    for (int i = 0; i < args().optimizer.num_states(); ++i) {
      const auto s = static_cast<size_t>(i);
      update.states[s] = slice.states[s].narrow(0, begin, range.size());
    }
    args().rules.update(args().optimizer, update, slice.group, range, context_.compute());
  }
};

}  // namespace

std::unique_ptr<OptimizerStep> make_resident_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context, int64_t tile_numel) {
  return std::make_unique<ResidentStep>(weights, gradients, context, whole_chunks(tile_numel));
}

}  // namespace zinc::zero
