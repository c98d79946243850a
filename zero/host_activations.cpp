#include "zero/host_activations.h"

#include <optional>

#include "core/transfer.h"

namespace zinc::zero {
namespace {

class HostSlot final : public autograd::SavedSlot {
 public:
  HostSlot(Context& context, Block block, Event arrived, const Tensor& like)
      : context_(context),
        block_(std::move(block)),
        arrived_(std::move(arrived)),
        shape_(like.shape()),
        dtype_(like.dtype()) {}
  // The block's home is the compute stream, and copies use it on others.
  ~HostSlot() override { context_.compute()->wait(last_use_ ? *last_use_ : arrived_); }
  HostSlot(const HostSlot&) = delete;
  HostSlot& operator=(const HostSlot&) = delete;

  Tensor restore() override {
    const Tensor tensor = Tensor::empty(shape_, dtype_);
    const StreamRef stream = context_.stream(StreamRole::copy_in);
    stream->wait(arrived_);
    stream->wait(context_.compute()->record());  // the tensor's memory may still be in use there
    transfer(host_view(), tensor.view(), stream);
    last_use_ = stream->record();
    context_.compute()->wait(*last_use_);
    return tensor;
  }

  View host_view() const {
    return View(block_.data(), dtype_, shape_, context_.device(), Tier::pinned_host);
  }

 private:
  Context& context_;
  Block block_;
  Event arrived_;
  std::optional<Event> last_use_;
  Shape shape_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<autograd::SavedSlot> HostActivations::save(const Tensor& tensor) {
  const Tensor dense = tensor.is_contiguous() ? tensor : tensor.clone();
  const int64_t bytes = dense.numel() * size_of(dense.dtype());
  Block block = context_.allocate(bytes, Label::activations, Tier::pinned_host);
  const StreamRef stream = context_.stream(StreamRole::copy_out);
  stream->wait(context_.compute()->record());
  transfer(dense.view(),
           View(block.data(), dense.dtype(), dense.shape(), context_.device(), Tier::pinned_host),
           stream);
  Event arrived = stream->record();
  on_the_way_.emplace_back(arrived, dense);
  while (on_the_way_.size() > kMostOnTheWay) settle_oldest();
  return std::make_unique<HostSlot>(context_, std::move(block), std::move(arrived), dense);
}

void HostActivations::settle() {
  while (!on_the_way_.empty()) settle_oldest();
}

void HostActivations::settle_oldest() {
  context_.compute()->wait(on_the_way_.front().first);
  on_the_way_.pop_front();
}

}  // namespace zinc::zero
