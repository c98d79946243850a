#include "zero/saved_inputs.h"

#include <optional>

#include "core/transfer.h"
#include "kernels/copy.h"
#include "zero/engine_setup.h"

namespace zinc::zero {
namespace {

class HostSlot final : public autograd::SavedSlot {
 public:
  HostSlot(Context& context, InputPlaces::Place place, Event arrived, const Tensor& like)
      : context_(context),
        place_(std::move(place)),
        arrived_(std::move(arrived)),
        shape_(like.shape()),
        dtype_(like.dtype()) {}
  // What uses the place next is ordered after the compute stream, and copies use it on others.
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
    return View(place_.data, dtype_, shape_, context_.device(), Tier::pinned_host);
  }

 private:
  Context& context_;
  InputPlaces::Place place_;
  Event arrived_;
  std::optional<Event> last_use_;
  Shape shape_;
  DType dtype_;
};

class DeviceSlot final : public autograd::SavedSlot {
 public:
  explicit DeviceSlot(Tensor tensor) : tensor_(std::move(tensor)) {}
  Tensor restore() override { return tensor_; }

 private:
  Tensor tensor_;
};

// Inputs that one forward pass saves.
int64_t num_inputs(nn::Model& model) {
  const int64_t every = model.recompute_every();
  return every == 0 ? 0 : (num_blocks(model) + every - 1) / every;
}

}  // namespace

SavedInputs::SavedInputs(Context& context, const RecomputeConfig& config, nn::Model& model,
                         int64_t together)
    : context_(context),
      in_host_memory_(config.cpu_checkpointing),
      places_(context, in_host_memory_ ? Tier::pinned_host : Tier::device,
              config.contiguous_memory_optimization ? together * num_inputs(model) : 0) {}

std::unique_ptr<autograd::SavedSlot> SavedInputs::save(const Tensor& tensor) {
  InputPlaces::Place place = places_.take(tensor.numel() * size_of(tensor.dtype()));
  const View room(place.data, tensor.dtype(), tensor.shape(), context_.device(), places_.tier());
  if (!in_host_memory_) {
    kernels::copy({.x = tensor.view(), .y = room}, context_.compute());
    return std::make_unique<DeviceSlot>(Tensor::wrap(room, std::move(place.owner)));
  }
  const Tensor dense = tensor.is_contiguous() ? tensor : tensor.clone();
  const StreamRef stream = context_.stream(StreamRole::copy_out);
  stream->wait(context_.compute()->record());
  transfer(dense.view(), room, stream);
  Event arrived = stream->record();
  on_the_way_.emplace_back(arrived, dense);
  while (on_the_way_.size() > kMostOnTheWay) settle_oldest();
  return std::make_unique<HostSlot>(context_, std::move(place), std::move(arrived), dense);
}

void SavedInputs::settle() {
  while (!on_the_way_.empty()) settle_oldest();
}

void SavedInputs::settle_oldest() {
  context_.compute()->wait(on_the_way_.front().first);
  on_the_way_.pop_front();
}

}  // namespace zinc::zero
