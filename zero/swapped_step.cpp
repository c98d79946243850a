// The update where states live in swap space: a pipeline over tiles of reading ahead, computing on
// the host and writing behind, over as many buffers as these overlap.
//
// Note [Buffers of the swapped step]
// Tile i uses buffer i mod n, with n = 1, one more to read ahead, one more to write behind. Before
// a tile is read into a buffer, the write of the tile that was there has been waited for, and so
// has the copy of its weights to the device.
#include <algorithm>

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

  void run(const StepArguments& args) override {
    states_.settle();
    const std::vector<UpdateSlice> slices = weights_.slices();
    const size_t count = states_.tiles().size();
    for (size_t i = 0; i < count; ++i) {
      Buffer& buffer = buffer_of(i);
      if (i == 0 || !pipeline_.read_ahead) start_read(i);
      buffer.transfer.wait();
      if (pipeline_.read_ahead && i + 1 < count) start_read(i + 1);
      update(args, slices, i);
      // The disk takes what the update leaves.
      context_.compute()->synchronize();
      buffer.transfer = states_.start_write(i, buffer.memory);
      if (!pipeline_.write_behind) buffer.transfer.wait();
    }
    for (Buffer& buffer : buffers_) buffer.transfer.wait();
    updated_.finish();
  }

 private:
  struct Buffer {
    Block memory;
    Event sent;  // weights that travel from here have left
    offload::SwapSpace::Transfer transfer;
  };

  Buffer& buffer_of(size_t tile) { return buffers_[tile % buffers_.size()]; }

  void start_read(size_t tile) {
    Buffer& buffer = buffer_of(tile);
    buffer.transfer.wait();
    buffer.sent.wait();
    context_.compute()->synchronize();
    buffer.transfer = states_.start_read(tile, buffer.memory);
  }

  void update(const StepArguments& args, const std::vector<UpdateSlice>& slices, size_t index) {
    const Tile& tile = states_.tiles()[index];
    const auto slice = std::find_if(slices.begin(), slices.end(), [&](const UpdateSlice& s) {
      return s.group == tile.group && s.segment == tile.segment;
    });
    Buffer& buffer = buffer_of(index);
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
  UpdatedWeights updated_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_swapped_step(WeightStore& weights, GradientStore& gradients,
                                                 SwappedShards& states, Context& context,
                                                 const SwapPipeline& pipeline) {
  return std::make_unique<SwappedStep>(weights, gradients, states, context, pipeline);
}

}  // namespace zinc::zero
