// The update where states live in swap space: a pipeline over tiles of reading ahead, computing on
// the host and writing behind, over as many buffers as these overlap.
//
// Note [Buffers of the swapped step]
// Tiles queue in their order, or in that in which their groups' gradients were complete; the i-th
// of the queue uses buffer i mod n, with n = 1, one more to read ahead, one more to write behind.
// Before a tile is read into a buffer, the write of the tile that was there has been waited for,
// and so has the copy of its weights to the device.
#include <algorithm>
#include <optional>

#include "zero/host_memory.h"
#include "zero/optimizer_step.h"
#include "zero/updated_weights.h"

namespace zinc::zero {
namespace {

class SwappedStep final : public OptimizerStep {
 public:
  SwappedStep(WeightStore& weights, GradientStore& gradients, SwappedShards& states,
              Context& context, const SwapPipeline& pipeline)
      : weights_(weights),
        gradients_(gradients),
        states_(states),
        context_(context),
        pipeline_(pipeline),
        buffers_(1 + (pipeline.read_ahead ? 1 : 0) + (pipeline.write_behind ? 1 : 0)),
        updated_(weights, context, Tier::pinned_host, largest_tile()) {
    states.settle();
    for (Buffer& buffer : buffers_) {
      buffer.memory =
          context.allocate(states.largest_tile_bytes(), Label::staging, Tier::pinned_host);
    }
  }

  bool can_begin() const override { return true; }

  void begin(const StepArguments& args) override {
    states_.settle();
    slices_ = weights_.slices();
    args_.emplace(args);
    queue_.clear();
    next_read_ = 0;
    next_update_ = 0;
    latest_.reset();
  }

  void ready(int group) override {
    if (!args_) return;
    // Its sums are still on their way: their turn comes with the next group's.
    if (latest_) {
      gradients_.await(*latest_);
      push(*latest_);
    }
    latest_ = group;
    while (next_update_ < queue_.size() && is_there(next_update_)) advance();
  }

  void run(const StepArguments& args) override {
    if (!args_) begin(args);
    std::vector<bool> queued(states_.tiles().size(), false);
    for (const size_t tile : queue_) queued[tile] = true;
    for (size_t i = 0; i < queued.size(); ++i) {
      if (!queued[i]) queue_.push_back(i);
    }
    while (next_update_ < queue_.size()) advance();
    for (Buffer& buffer : buffers_) buffer.transfer.wait();
    updated_.finish();
    args_.reset();
  }

 private:
  struct Buffer {
    Block memory;
    Event sent;  // weights that travel from here have left
    offload::SwapSpace::Transfer transfer;
  };

  // By place in the queue.
  Buffer& buffer_of(size_t place) { return buffers_[place % buffers_.size()]; }

  void push(int group) {
    for (size_t i = 0; i < states_.tiles().size(); ++i) {
      if (states_.tiles()[i].group == group) queue_.push_back(i);
    }
    if (next_read_ == next_update_) start_read();
  }

  bool is_there(size_t place) { return place < next_read_ && buffer_of(place).transfer.query(); }

  // Updates the next tile.
  void advance() {
    const size_t place = next_update_++;
    if (place == next_read_) start_read();
    Buffer& buffer = buffer_of(place);
    buffer.transfer.wait();
    if (pipeline_.read_ahead) start_read();
    update(*args_, slices_, queue_[place], buffer);
    // The disk takes what the update leaves.
    context_.compute()->synchronize();
    buffer.transfer = states_.start_write(queue_[place], buffer.memory);
    if (!pipeline_.write_behind) buffer.transfer.wait();
  }

  void start_read() {
    if (next_read_ == queue_.size()) return;
    const size_t place = next_read_++;
    Buffer& buffer = buffer_of(place);
    buffer.transfer.wait();
    buffer.sent.wait();
    context_.compute()->synchronize();
    buffer.transfer = states_.start_read(queue_[place], buffer.memory);
  }

  void update(const StepArguments& args, const std::vector<UpdateSlice>& slices, size_t index,
              Buffer& buffer) {
    const Tile& tile = states_.tiles()[index];
    const auto slice = std::find_if(slices.begin(), slices.end(), [&](const UpdateSlice& s) {
      return s.group == tile.group && s.segment == tile.segment;
    });
    const View weights = states_.plane(tile, buffer.memory, SwappedShards::kMasterPlane);
    const bool is_narrow = UpdatedWeights::is_narrow(*slice);
    const View narrow = is_narrow ? updated_.buffer(*slice, tile.range.size()) : View();
    optim::Update update{.weights = host_memory(weights),
                         .gradient = host_memory(gradients_.gradient(tile.group, tile.range)),
                         .model_weights = host_memory(narrow),
                         .factor = args.factor,
                         .step = args.step};
    for (int i = 0; i < args.optimizer.num_states(); ++i) {
      update.states[static_cast<size_t>(i)] =
          host_memory(states_.plane(tile, buffer.memory, SwappedShards::state_plane(i)));
    }
    args.rules.update(args.optimizer, update, tile.group, tile.range, context_.compute());
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
  Context& context_;
  const SwapPipeline pipeline_;
  std::vector<Buffer> buffers_;
  std::optional<StepArguments> args_;  // while a step is under way
  std::vector<UpdateSlice> slices_;
  std::vector<size_t> queue_;  // tiles
  size_t next_read_ = 0;       // places in the queue
  size_t next_update_ = 0;
  std::optional<int> latest_;  // the group that was ready last
  UpdatedWeights updated_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_swapped_step(WeightStore& weights, GradientStore& gradients,
                                                 SwappedShards& states, Context& context,
                                                 const SwapPipeline& pipeline) {
  return std::make_unique<SwappedStep>(weights, gradients, states, context, pipeline);
}

}  // namespace zinc::zero
