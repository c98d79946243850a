#include "zero/update/updated_weights.h"

#include <algorithm>

#include "core/transfer.h"
#include "zero/tiers/host_stream.h"

namespace zinc::zero {

UpdatedWeights::UpdatedWeights(WeightStore& weights, const std::vector<UpdateSlice>& slices,
                               Context& context, Tier tier, int64_t tile_numel)
    : weights_(weights),
      context_(context),
      tier_(tier),
      stream_(tier == Tier::device ? context.compute() : host_stream(context)) {
  int64_t bytes = 0;
  for (const UpdateSlice& slice : slices) {
    const bool stays = slice.model_tier == Tier::device && tier == Tier::device;
    if (!is_narrow(slice) || stays) continue;
    bytes = std::max(bytes, std::min(tile_numel, slice.range.size()) * size_of(slice.model_dtype));
  }
  if (bytes == 0) return;
  for (Block& block : blocks_) block = context.allocate(bytes, Label::staging, tier);
}

bool UpdatedWeights::is_narrow(const UpdateSlice& slice) {
  return is_16bit_float(slice.model_dtype);
}

View UpdatedWeights::buffer(const UpdateSlice& slice, int64_t numel) {
  next_ = 1 - next_;
  stream_->wait(sent_[next_]);
  return {blocks_[next_].data(), slice.model_dtype, Shape{numel}, context_.device(), tier_};
}

Event UpdatedWeights::send(const ConstView& values, const UpdateSlice& slice, Range range) {
  if (slice.model_tier == Tier::nvme) {
    weights_.take_updated(slice.group, range, values, stream_);
    return lanes_[2] = sent_[next_] = stream_->record();
  }
  const bool to_device = slice.model_tier == Tier::device;
  const StreamRef stream = context_.stream(to_device ? StreamRole::copy_in : StreamRole::copy_out);
  order(stream_, stream);
  transfer(values, slice.model_weights.narrow(0, range.begin - slice.range.begin, range.size()),
           stream);
  return lanes_[to_device ? 0 : 1] = sent_[next_] = stream->record();
}

std::vector<Event> UpdatedWeights::sent() const {
  std::vector<Event> events;
  for (const Event& event : lanes_) {
    if (event.state() != nullptr) events.push_back(event);
  }
  return events;
}

void UpdatedWeights::finish() {
  order(stream_, context_.compute());
  context_.compute()->wait(context_.stream(StreamRole::copy_in)->record());
  context_.compute()->wait(context_.stream(StreamRole::copy_out)->record());
  lanes_ = {};
}

}  // namespace zinc::zero
