// The update of states in host memory by the CPU. Updated weights travel to the model's copy.
//
// On a GPU the CPU works in a queue of its own (host_stream()). A whole update may be issued before
// any of it has run. Work that needs a group's weights waits for the events of that group.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "zero/tiers/host_memory.h"
#include "zero/tiers/host_stream.h"
#include "zero/update/optimizer_step.h"
#include "zero/update/updated_weights.h"

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

  ~HostStep() override {
    // An abandoned update still uses memory that is freed next.
    try {
      updated_.finish();
    } catch (...) {
      // The stream has failed. Its next use reports the error.
    }
  }

  void begin(const StepArguments& args) override { start(args); }

  void ready(int group) override {
    if (args_) ready_.push_back(group);
  }

  void advance() override {
    while (!ready_.empty() && (never_waits_ || gradients_.has_arrived(ready_.front()))) {
      gradients_.await(ready_.front(), updated_.stream());
      update_group(ready_.front());
      ready_.pop_front();
    }
  }

  void defer(const StepArguments& args) override {
    start(args);
    update_beside();
  }

  std::vector<Event> finish(int group) override {
    update_group(group);
    return updated_.sent();
  }

  void run(const StepArguments& args) override {
    if (!args_) start(args);
    // The compute stream has waited for the gradients.
    order(context_.compute(), updated_.stream());
    update_beside();
    while (!left_.empty()) update_group(left_.front().group);
    updated_.finish();
    ready_.clear();
    args_.reset();
  }

 private:
  void start(const StepArguments& args) {
    bug_check(!args_, "host step: an update is under way");
    ready_.clear();
    args_.emplace(args);
    host_factor_ = factor_.take(args.factor);
    left_ = weights_.slices_in(Tier::pinned_host);
    is_beside_left_ = true;
    const auto is_swapped = [](const UpdateSlice& slice) { return slice.model_tier == Tier::nvme; };
    never_waits_ = updated_.stream() != context_.compute() &&
                   std::none_of(left_.begin(), left_.end(), is_swapped);
  }

  void update_beside() {
    if (std::exchange(is_beside_left_, false)) beside_->run(*args_);
  }

  void update_group(int group) {
    for (const UpdateSlice& slice : left_) {
      if (slice.group != group) continue;
      for (int64_t begin = 0; begin < slice.range.size(); begin += tile_numel_) {
        update(slice, begin, std::min(tile_numel_, slice.range.size() - begin));
      }
    }
    std::erase_if(left_, [group](const UpdateSlice& slice) { return slice.group == group; });
  }

  void update(const UpdateSlice& slice, int64_t begin, int64_t numel) {
    const Range range{slice.range.begin + begin, slice.range.begin + begin + numel};
    const View weights = slice.weights.narrow(0, begin, numel);
    const View narrow = UpdatedWeights::is_narrow(slice) ? updated_.buffer(slice, numel) : View();
    optim::Update update{.weights = host_memory(weights),
                         .gradient = host_memory(gradients_.gradient(slice.group, range)),
                         .model_weights = host_memory(narrow),
                         .factor = host_factor_,
                         .step = args_->step};
    for (int i = 0; i < args_->optimizer.num_states(); ++i) {
      const auto s = static_cast<size_t>(i);
      update.states[s] = host_memory(slice.states[s].narrow(0, begin, numel));
    }
    args_->rules.update(args_->optimizer, update, slice.group, range, updated_.stream());
    updated_.send(narrow ? narrow : weights, slice, range);
  }

  WeightStore& weights_;
  GradientStore& gradients_;
  Context& context_;
  const int64_t tile_numel_;
  UpdatedWeights updated_;
  HostFactor factor_;
  std::unique_ptr<OptimizerStep> beside_;
  std::optional<StepArguments> args_;  // while a step is under way
  ConstView host_factor_;              // of that step
  std::vector<UpdateSlice> left_;      // slices of that step that are not updated yet
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
