#include "zero/weights_to_device.h"

#include "core/transfer.h"

namespace zinc::zero {

WeightsToDevice::WeightsToDevice(Context& context, int64_t numel, DType dtype)
    : context_(context), dtype_(dtype) {
  if (numel == 0) return;
  for (Block& block : blocks_) {
    block = context.allocate(numel * size_of(dtype), Label::staging, Tier::pinned_host);
  }
}

View WeightsToDevice::buffer(int64_t numel) {
  next_ = 1 - next_;
  context_.compute()->wait(sent_[next_]);
  return {blocks_[next_].data(), dtype_, Shape{numel}, context_.device(), Tier::pinned_host};
}

Event WeightsToDevice::send(const ConstView& host, const View& device) {
  const StreamRef stream = context_.stream(StreamRole::copy_in);
  stream->wait(context_.compute()->record());
  transfer(host, device, stream);
  return sent_[next_] = stream->record();
}

void WeightsToDevice::finish() {
  context_.compute()->wait(context_.stream(StreamRole::copy_in)->record());
}

}  // namespace zinc::zero
