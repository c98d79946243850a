// The update of states in swap space by the CPU: a pipeline of reading ahead, computing, and
// writing behind, tile by tile.
//
// Note [Buffers of the swapped step]
// - Tiles wait in a queue, in the order of the update ops of the step program.
// - The i-th tile of the queue uses buffer i mod n. n is 1, plus 1 to read ahead, plus 1 to write
//   behind.
// - States do not wait for gradients: a tile is read as soon as its buffer is free. The buffer is
//   free when the write of the tile before, and the copy of its weights to the model, are over.
// - Gradients in swap space have a buffer beside that of the tile's states. They are read once the
//   read of the states has started and the gradients are there.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "zero/tiers/host_stream.h"
#include "zero/update/optimizer_step.h"
#include "zero/update/updated_weights.h"

namespace zinc::zero {
namespace {

class SwappedStep final : public OptimizerStep {
 public:
  SwappedStep(WeightStore& weights, GradientStore& gradients, SwappedShards& states,
              SwappedGradients* swapped_gradients, Context& context, const std::vector<int>& order,
              const SwapPipeline& pipeline)
      : weights_(weights),
        gradients_(gradients),
        states_(states),
        swapped_gradients_(swapped_gradients),
        context_(context),
        pipeline_(pipeline),
        buffers_(1 + (pipeline.read_ahead ? 1 : 0) + (pipeline.write_behind ? 1 : 0)),
        queue_(tiles_in(order)),
        updated_(weights, weights.slices(), context, Tier::pinned_host, largest_tile()),
        factor_(context) {
    states.settle();
    for (Buffer& buffer : buffers_) {
      buffer.memory =
          context.allocate(states.largest_tile_bytes(), Label::staging, Tier::pinned_host);
      if (swapped_gradients == nullptr) continue;
      buffer.gradient = context.allocate(swapped_gradients->largest_tile_bytes(), Label::staging,
                                         Tier::pinned_host);
    }
    context.compute()->synchronize();  // before the disk touches the memory
  }

  ~SwappedStep() override {
    // The weights of an abandoned update may still be on their way from the buffers.
    try {
      updated_.finish();
    } catch (...) {
      // The stream has failed. Its next use reports the error.
    }
  }

  void begin(const StepArguments& args, bool during_backward) override {
    bug_check(!args_, "an update begins before the one before it has ended");
    states_.settle();
    slices_ = weights_.slices();
    args_.emplace(args);
    args_->factor = factor_.take(args.factor);
    next_read_ = 0;
    next_update_ = 0;
    ready_.clear();
    start_reads();
    if (!during_backward) order(context_.compute(), host());  // which has waited for the gradients
  }

  void update(int group) override {
    ready_.push_back(group);
    advance();
  }

  void advance() override {
    start_reads();
    start_gradient_reads();
    while (next_update_ < queue_.size() && is_there(next_update_)) {
      gradients_.await(tile_at(next_update_).group, host());
      update_next();
    }
  }

  std::vector<Event> finish(int group) override {
    size_t end = next_update_;
    for (size_t place = end; place < queue_.size(); ++place) {
      if (tile_at(place).group == group) end = place + 1;
    }
    update_until(end);
    return updated_.sent();
  }

  void end() override {
    order(context_.compute(), host());  // which has waited for the gradients
    update_until(queue_.size());
    for (Buffer& buffer : buffers_) buffer.transfer.wait();
    updated_.finish();
    args_.reset();
  }

  void settle_gradients() override {
    for (Buffer& buffer : buffers_) buffer.gradient_transfer.wait();
  }

 private:
  struct Buffer {
    Block memory;
    Block gradient;             // with gradients in swap space
    bool has_gradient = false;  // the tile's gradient is here or being read
    Event sent;                 // behind the copy of the updated weights from here
    offload::SwapSpace::Transfer transfer;
    offload::SwapSpace::Transfer gradient_transfer;
    bool is_free() const { return transfer.query() && sent.query(); }
  };

  std::vector<size_t> tiles_in(const std::vector<int>& order) const {
    std::vector<size_t> queue;
    for (const int group : order) {
      for (size_t i = 0; i < states_.tiles().size(); ++i) {
        if (states_.tiles()[i].group == group) queue.push_back(i);
      }
    }
    bug_check(queue.size() == states_.tiles().size(), "a tile of the optimizer has no turn");
    return queue;
  }

  bool is_ready(int group) const {
    return std::find(ready_.begin(), ready_.end(), group) != ready_.end();
  }

  void update_until(size_t end) {
    while (next_update_ < end) {
      start_reads();
      if (next_read_ == next_update_) start_read();
      update_next();
    }
  }

  StreamRef host() const { return updated_.stream(); }
  // By place in the queue.
  Buffer& buffer_of(size_t place) { return buffers_[place % buffers_.size()]; }
  const Tile& tile_at(size_t place) const { return states_.tiles()[queue_[place]]; }

  bool is_there(size_t place) {
    const int group = tile_at(place).group;
    const Buffer& buffer = buffer_of(place);
    return place < next_read_ && is_ready(group) && buffer.transfer.query() &&
           gradients_.has_arrived(group) &&
           (swapped_gradients_ == nullptr ||
            (buffer.has_gradient && buffer.gradient_transfer.query()));
  }

  // Updates the next tile. Waits for its states and, in swap space, for its gradient.
  void update_next() {
    const size_t place = next_update_;
    Buffer& buffer = buffer_of(place);
    take_gradient(place);
    buffer.transfer.wait();
    if (pipeline_.read_ahead) start_reads();
    start_gradient_reads();
    update(*args_, slices_, queue_[place], buffer);
    // The disk writes the buffer after the update.
    host()->synchronize();
    buffer.transfer = states_.start_write(queue_[place], buffer.memory);
    ++next_update_;
    if (!pipeline_.write_behind) buffer.transfer.wait();
  }

  // Starts reads as far as buffers are free.
  void start_reads() {
    const size_t most = pipeline_.read_ahead ? buffers_.size() : 1;
    while (next_read_ < std::min(next_update_ + most, queue_.size()) &&
           buffer_of(next_read_).is_free()) {
      start_read();
    }
  }

  void start_read() {
    const size_t place = next_read_++;
    Buffer& buffer = buffer_of(place);
    buffer.transfer.wait();
    buffer.sent.wait();
    host()->synchronize();
    buffer.transfer = states_.start_read(queue_[place], buffer.memory);
    buffer.has_gradient = false;
  }

  // For tiles whose states are read or being read, and whose gradients have arrived.
  void start_gradient_reads() {
    if (swapped_gradients_ == nullptr) return;
    for (size_t place = next_update_; place < next_read_; ++place) {
      const int group = tile_at(place).group;
      if (buffer_of(place).has_gradient || !is_ready(group) || !gradients_.has_arrived(group)) {
        continue;
      }
      start_gradient_read(place);
    }
  }

  void start_gradient_read(size_t place) {
    Buffer& buffer = buffer_of(place);
    buffer.gradient_transfer = swapped_gradients_->start_read(queue_[place], buffer.gradient);
    buffer.has_gradient = true;
  }

  void take_gradient(size_t place) {
    if (swapped_gradients_ == nullptr) return;
    Buffer& buffer = buffer_of(place);
    if (!buffer.has_gradient) {
      gradients_.await(tile_at(place).group, host());
      start_gradient_read(place);
    }
    buffer.gradient_transfer.wait();
  }

  ConstView gradient_of(size_t index, const Buffer& buffer) {
    if (swapped_gradients_ != nullptr) return swapped_gradients_->values(index, buffer.gradient);
    const Tile& tile = states_.tiles()[index];
    return gradients_.gradient(tile.group, tile.range);
  }

  void update(const StepArguments& args, const std::vector<UpdateSlice>& slices, size_t index,
              Buffer& buffer) {
    const Tile& tile = states_.tiles()[index];
    const auto slice = std::find_if(slices.begin(), slices.end(), [&](const UpdateSlice& s) {
      return s.group == tile.group && s.segment == tile.segment;
    });
    const View weights = states_.plane(tile, buffer.memory, kMasterPlane);
    const bool is_narrow = UpdatedWeights::is_narrow(*slice);
    const View narrow = is_narrow ? updated_.buffer(*slice, tile.range.size()) : View();
    optim::Update update{.weights = host_memory(weights),
                         .gradient = host_memory(gradient_of(index, buffer)),
                         .model_weights = host_memory(narrow),
                         .factor = args.factor,
                         .step = args.step};
    for (int i = 0; i < args.optimizer.num_states(); ++i) {
      update.states[static_cast<size_t>(i)] =
          host_memory(states_.plane(tile, buffer.memory, kFirstStatePlane + i));
    }
    args.rules.update(args.optimizer, update, tile.group, tile.range, host());
    buffer.sent = updated_.send(is_narrow ? narrow : weights, *slice, tile.range);
  }

  int64_t largest_tile() const {
    int64_t largest = 0;
    for (const Tile& tile : states_.tiles()) largest = std::max(largest, tile.range.size());
    return largest;
  }

  WeightStore& weights_;
  GradientStore& gradients_;
  SwappedShards& states_;
  SwappedGradients* swapped_gradients_;  // null: gradients are in host memory
  Context& context_;
  const SwapPipeline pipeline_;
  std::vector<Buffer> buffers_;
  std::optional<StepArguments> args_;  // while a step is under way
  std::vector<UpdateSlice> slices_;
  const std::vector<size_t> queue_;  // tiles
  size_t next_read_ = 0;             // index into queue_
  size_t next_update_ = 0;
  std::vector<int> ready_;  // groups that are ready in this step
  UpdatedWeights updated_;
  HostFactor factor_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_swapped_step(WeightStore& weights, GradientStore& gradients,
                                                 SwappedShards& states,
                                                 SwappedGradients* swapped_gradients,
                                                 Context& context, const std::vector<int>& order,
                                                 const SwapPipeline& pipeline) {
  return std::make_unique<SwappedStep>(weights, gradients, states, swapped_gradients, context,
                                       order, pipeline);
}

}  // namespace zinc::zero
