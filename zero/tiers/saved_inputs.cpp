#include "zero/tiers/saved_inputs.h"

#include <algorithm>
#include <optional>

#include "core/transfer.h"
#include "kernels/copy.h"
#include "offload/file.h"
#include "parallel/tensor_ranks.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {
namespace {

class HostSlot final : public autograd::SavedSlot {
 public:
  // The input is in `place` or in `swapped`; the other one is empty.
  HostSlot(Context& context, offload::InputPlaces::Memory place,
           std::unique_ptr<offload::SwappedInputs::Input> swapped, Event arrived,
           const Tensor& like)
      : context_(context),
        place_(std::move(place)),
        swapped_(std::move(swapped)),
        arrived_(std::move(arrived)),
        shape_(like.shape()),
        dtype_(like.dtype()) {}
  // The next user of the place is ordered after the compute stream alone. The copies ran on other
  // streams.
  ~HostSlot() override { context_.compute()->wait(last_use_ ? *last_use_ : arrived_); }
  HostSlot(const HostSlot&) = delete;
  HostSlot& operator=(const HostSlot&) = delete;

  Tensor restore() override {
    const void* const data = swapped_ != nullptr ? swapped_->bring() : place_.data;
    const ConstView from(data, dtype_, shape_, context_.device(), Tier::pinned_host);
    const Tensor tensor = Tensor::empty(shape_, dtype_);
    const StreamRef stream = context_.stream(StreamRole::copy_in);
    stream->wait(arrived_);
    stream->wait(context_.compute()->record());  // the tensor's memory may still be in use there
    transfer(from, tensor.view(), stream);
    last_use_ = stream->record();
    if (swapped_ != nullptr) swapped_->used(*last_use_);
    context_.compute()->wait(*last_use_);
    return tensor;
  }

 private:
  Context& context_;
  offload::InputPlaces::Memory place_;
  std::unique_ptr<offload::SwappedInputs::Input> swapped_;
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

}  // namespace

SavedInputs::SavedInputs(Context& context, const EngineConfig& config, const InputRoom& room,
                         comm::World* tensor, offload::SwapClock* clock)
    : context_(context),
      on_(config.recompute.inputs_on()),
      places_(
          context, on_ == OffloadDevice::none ? Tier::device : Tier::pinned_host,
          config.recompute.contiguous_memory_optimization ? std::max<int64_t>(1, room.count) : 0,
          room.bytes),
      swap_{.swap = swap_settings(config, config.recompute.offload, clock),
            .bytes = room.bytes,
            .count = std::max<int64_t>(1, room.count),
            .side_by_side = config.batches_together(),
            .num_buffers = config.recompute.offload.buffer_count} {
  // Swap space is taken with the first input. An unusable directory is an error now.
  if (on_ == OffloadDevice::nvme && room.count > 0 && !context.device().meta) {
    offload::open_unnamed(swap_.swap.directory);
  }
  if (config.recompute.partition_activations && tensor != nullptr) {
    parts_ = parallel::share_saved(*tensor, whole_store());
  }
}

SavedInputs::~SavedInputs() {
  for (const auto& inputs : swapped_) inputs->close();
}

std::unique_ptr<autograd::SavedSlot> SavedInputs::save(const Tensor& tensor) {
  const int64_t bytes = tensor.numel() * size_of(tensor.dtype());
  const auto view_of = [&](void* data) {
    return View(data, tensor.dtype(), tensor.shape(), context_.device(), places_.tier());
  };
  if (on_ == OffloadDevice::none) {
    offload::InputPlaces::Memory place = places_.take(bytes);
    const View room = view_of(place.data);
    kernels::copy({.x = tensor.view(), .y = room}, context_.compute());
    return std::make_unique<DeviceSlot>(Tensor::wrap(room, std::move(place.owner)));
  }
  offload::InputPlaces::Memory place;
  std::unique_ptr<offload::SwappedInputs::Input> input;
  if (on_ == OffloadDevice::nvme) {
    input = swapped(bytes).take(bytes);
  } else {
    place = places_.take(bytes);
  }
  const Tensor dense = tensor.is_contiguous() ? tensor : tensor.clone();
  const StreamRef stream = context_.stream(StreamRole::copy_out);
  stream->wait(context_.compute()->record());
  transfer(dense.view(), view_of(input != nullptr ? input->data() : place.data), stream);
  Event arrived = stream->record();
  if (input != nullptr) input->filled(arrived);
  on_the_way_.emplace_back(arrived, dense);
  while (on_the_way_.size() > kMostOnTheWay) settle_oldest();
  for (const auto& inputs : swapped_) inputs->write_behind(kMostOnTheWay);
  return std::make_unique<HostSlot>(context_, std::move(place), std::move(input),
                                    std::move(arrived), dense);
}

offload::SwappedInputs& SavedInputs::swapped(int64_t bytes) {
  std::erase_if(swapped_, [&](const std::shared_ptr<offload::SwappedInputs>& inputs) {
    if (inputs->bytes() >= bytes || !inputs->is_unused()) return false;
    inputs->close();
    gone_ = gone_ + inputs->traffic();
    return true;
  });
  for (const auto& inputs : swapped_) {
    if (inputs->bytes() >= bytes && inputs->has_room()) return *inputs;
  }
  swap_.bytes = std::max(swap_.bytes, bytes);
  return *swapped_.emplace_back(std::make_shared<offload::SwappedInputs>(context_, swap_));
}

offload::SwapTraffic SavedInputs::traffic() const {
  offload::SwapTraffic all = gone_;
  for (const auto& inputs : swapped_) all = all + inputs->traffic();
  return all;
}

void SavedInputs::settle() {
  while (!on_the_way_.empty()) settle_oldest();
  for (const auto& inputs : swapped_) inputs->write_behind(0);
}

void SavedInputs::settle_oldest() {
  context_.compute()->wait(on_the_way_.front().first);
  on_the_way_.pop_front();
}

}  // namespace zinc::zero
