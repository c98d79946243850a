// The update of states in host memory by the device. Weights, states and gradients travel to the
// device tile by tile; weights and states travel back.
//
// There are two buffers: while a tile is updated, the next tile comes in and the tile before
// leaves.
#include <algorithm>
#include <array>
#include <utility>

#include "core/transfer.h"
#include "kernels/copy.h"
#include "zero/tiers/host_stream.h"
#include "zero/update/optimizer_step.h"

namespace zinc::zero {
namespace {

class StreamedStep final : public SlicewiseStep {
 public:
  StreamedStep(WeightStore& weights, GradientStore& gradients, Context& context,
               const optim::States& states, int64_t tile_numel,
               std::unique_ptr<OptimizerStep> beside)
      : SlicewiseStep(weights, gradients, context, Tier::pinned_host, Tier::device, tile_numel),
        num_states_(states.count),
        beside_(std::move(beside)) {
    int64_t bytes = 0;
    for (const UpdateSlice& slice : weights.slices_in(Tier::pinned_host)) {
      // Weights, states, and a gradient that is at most as wide as weights.
      const DType wide = slice.weights.dtype();
      const int64_t each = 2 * size_of(wide) + states.count * size_of(states.dtype(wide));
      bytes = std::max(bytes, std::min(tile_numel_, slice.range.size()) * each);
    }
    for (Buffer& buffer : buffers_) buffer.memory = context.allocate(bytes, Label::staging);
  }

  void begin(const StepArguments& args, bool during_backward) override {
    // The gradients are ready for work on the compute stream, and that stream may still use the
    // buffers' memory.
    order(context_.compute(), context_.stream(StreamRole::copy_in));
    SlicewiseStep::begin(args, during_backward);
    beside_->begin(args, during_backward);
    beside_->end();
  }

 private:
  struct Buffer {
    Block memory;
    Event left;  // behind the copy of the updated tile back to host memory
  };

  void update_slice(const UpdateSlice& slice) override {
    for (int64_t begin = slice.range.begin; begin < slice.range.end; begin += tile_numel_) {
      update(slice, {begin, std::min(begin + tile_numel_, slice.range.end)});
    }
  }

  void update(const UpdateSlice& slice, Range tile) {
    const int64_t begin = tile.begin - slice.range.begin;
    const auto part = [&](const View& view) { return view.narrow(0, begin, tile.size()); };
    next_ = 1 - next_;
    Buffer& buffer = buffers_[next_];
    std::byte* place = static_cast<std::byte*>(buffer.memory.data());
    const StreamRef in = context_.stream(StreamRole::copy_in);
    in->wait(buffer.left);
    const auto bring = [&](const ConstView& values) {
      const View there(place, values.dtype(), values.shape(), context_.device());
      place += values.bytes();
      transfer(values, there, in);
      return there;
    };
    optim::Update update{
        .weights = bring(part(slice.weights)), .factor = args().factor, .step = args().step};
    for (size_t i = 0; i < static_cast<size_t>(num_states_); ++i) {
      update.states[i] = bring(part(slice.states[i]));
    }
    update.gradient = bring(gradients_.gradient(slice.group, tile));
    order(in, context_.compute());
    compute(slice, tile, update);

    const StreamRef out = context_.stream(StreamRole::copy_out);
    order(context_.compute(), out);
    transfer(update.weights, part(slice.weights), out);
    for (size_t i = 0; i < static_cast<size_t>(num_states_); ++i) {
      transfer(update.states[i], part(slice.states[i]), out);
    }
    buffer.left = out->record();
  }

  void compute(const UpdateSlice& slice, Range tile, optim::Update& update) {
    const StreamRef stream = context_.compute();
    const bool on_device = slice.model_tier == Tier::device;
    const bool is_narrow = UpdatedWeights::is_narrow(slice);
    View model;
    if (on_device) {
      model = slice.model_weights.narrow(0, tile.begin - slice.range.begin, tile.size());
    } else if (is_narrow) {
      model = updated_.buffer(slice, tile.size());
    }
    if (is_narrow) update.model_weights = model;
    args().rules.update(args().optimizer, update, slice.group, tile, stream);
    if (!on_device) {
      updated_.send(is_narrow ? model : update.weights, slice, tile);
    } else if (!is_narrow) {
      kernels::copy({.x = update.weights, .y = model}, stream);
    }
  }

  const int num_states_;
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
  std::unique_ptr<OptimizerStep> beside_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_streamed_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context, const optim::States& states,
                                                  int64_t tile_numel,
                                                  std::unique_ptr<OptimizerStep> beside) {
  return std::make_unique<StreamedStep>(weights, gradients, context, states,
                                        whole_chunks(tile_numel), std::move(beside));
}

}  // namespace zinc::zero
