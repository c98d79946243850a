// The update of states in host memory by the CPU. Updated weights travel to the model's copy.
//
// On a GPU the CPU works in a queue of its own (host_stream()). A whole update may be issued before
// any of it has run. Work that needs a group's weights waits for the events of that group.
#include <algorithm>
#include <deque>
#include <utility>

#include "zero/tiers/host_stream.h"
#include "zero/update/optimizer_step.h"

namespace zinc::zero {
namespace {

class HostStep final : public SlicewiseStep {
 public:
  HostStep(WeightStore& weights, GradientStore& gradients, Context& context, int64_t tile_numel,
           std::unique_ptr<OptimizerStep> beside)
      : SlicewiseStep(weights, gradients, context, Tier::pinned_host, Tier::pinned_host,
                      tile_numel),
        factor_(context),
        beside_(std::move(beside)) {}

  ~HostStep() override {
    // An abandoned update still uses memory that is freed next.
    try {
      updated_.finish();
    } catch (...) {
      // The stream has failed. Its next use reports the error.
    }
  }

  void begin(const StepArguments& args, bool during_backward) override {
    SlicewiseStep::begin(args, during_backward);
    host_factor_ = factor_.take(args.factor);
    const auto is_swapped = [](const UpdateSlice& slice) { return slice.model_tier == Tier::nvme; };
    never_waits_ =
        updated_.stream() != context_.compute() && std::ranges::none_of(slices(), is_swapped);
    is_beside_left_ = true;
    if (!during_backward) update_beside();
  }

  void update(int group) override {
    ready_.push_back(group);
    advance();
  }

  void advance() override {
    while (!ready_.empty() && (never_waits_ || gradients_.has_arrived(ready_.front()))) {
      gradients_.await(ready_.front(), updated_.stream());
      SlicewiseStep::update(ready_.front());
      ready_.pop_front();
    }
  }

  std::vector<Event> finish(int group) override {
    update_beside();
    gradients_.await(group, updated_.stream());
    std::erase(ready_, group);
    return SlicewiseStep::finish(group);
  }

  void end() override {
    // The compute stream has waited for the gradients.
    order(context_.compute(), updated_.stream());
    update_beside();
    SlicewiseStep::end();
    ready_.clear();
  }

 private:
  void update_beside() {
    if (!std::exchange(is_beside_left_, false)) return;
    beside_->begin(args(), false);
    beside_->end();
  }

  void update_slice(const UpdateSlice& slice) override {
    for (int64_t begin = 0; begin < slice.range.size(); begin += tile_numel_) {
      update(slice, begin, std::min(tile_numel_, slice.range.size() - begin));
    }
  }

  void update(const UpdateSlice& slice, int64_t begin, int64_t numel) {
    const Range range{slice.range.begin + begin, slice.range.begin + begin + numel};
    const View weights = slice.weights.narrow(0, begin, numel);
    const View narrow = UpdatedWeights::is_narrow(slice) ? updated_.buffer(slice, numel) : View();
    optim::Update update{.weights = host_memory(weights),
                         .gradient = host_memory(gradients_.gradient(slice.group, range)),
                         .model_weights = host_memory(narrow),
                         .factor = host_factor_,
                         .step = args().step};
    for (int i = 0; i < args().optimizer.num_states(); ++i) {
      const auto s = static_cast<size_t>(i);
      update.states[s] = host_memory(slice.states[s].narrow(0, begin, numel));
    }
    args().rules.update(args().optimizer, update, slice.group, range, updated_.stream());
    updated_.send(narrow ? narrow : weights, slice, range);
  }

  HostFactor factor_;
  std::unique_ptr<OptimizerStep> beside_;
  ConstView host_factor_;  // of that step
  bool is_beside_left_ = false;
  std::deque<int> ready_;     // groups
  bool never_waits_ = false;  // true: the issuing thread never waits for an update
};

}  // namespace

std::unique_ptr<OptimizerStep> make_host_step(WeightStore& weights, GradientStore& gradients,
                                              Context& context, int64_t tile_numel,
                                              std::unique_ptr<OptimizerStep> beside) {
  return std::make_unique<HostStep>(weights, gradients, context, whole_chunks(tile_numel),
                                    std::move(beside));
}

}  // namespace zinc::zero
