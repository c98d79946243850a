// zero/tiers/saved_inputs.h: keeps the inputs of recomputed blocks until backward.
//
//   setting                         where a saved input waits
//   (default)                       on the device, as it is
//   cpu_checkpointing               in host memory
//   activation_offload, nvme        on NVMe: Note [Inputs on NVMe]
//   contiguous_memory_optimization  in places of one allocation, in the tier given above
//   partition_activations           likewise, a part on each tensor rank
//
// To host memory: the input is copied on the copy-out stream beside the forward pass. Its device
// memory is given back after kMostOnTheWay more saves, or in settle(); the compute stream then
// waits for the copy. In backward the input comes back on the copy-in stream when it is asked for.
//
// To NVMe: host memory holds buffers only. Swap space and buffers are made with the first input,
// and kept from step to step. contiguous_memory_optimization changes nothing there. Every place is
// as large as the largest input of the run, so shorter sequences take the same places: the largest
// of the recorded step, or if the engine does not know the run's shapes, the largest that came.
//
// Contiguous places are made and kept in the same way. Saved inputs live longest in a step; outside
// the common pool they leave no gaps among short-lived blocks (DeepSpeed,
// runtime/activation_checkpointing).
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/saved_tensor_store.h"
#include "comm/world.h"
#include "core/context.h"
#include "offload/input_places.h"
#include "offload/swap_traffic.h"
#include "offload/swapped_inputs.h"
#include "zero/engine_config.h"
#include "zero/tiers/input_counter.h"

namespace zinc::zero {

class SavedInputs final : autograd::SavedTensorStore {
 public:
  // `room`: of the inputs of a step; more and larger ones are served too, with room of their own.
  // `tensor`: ranks that share the model's layers; null: none. With NVMe, throws IoError if no file
  // can be made in the swap directory.
  SavedInputs(Context& context, const EngineConfig& config, const InputRoom& room,
              comm::World* tensor, offload::SwapClock* clock);
  ~SavedInputs();

  // For autograd::RecomputeInputScope. Null if inputs stay as they are.
  autograd::SavedTensorStore* store() { return parts_ != nullptr ? parts_.get() : whole_store(); }
  // Call at the end of a forward pass. The compute stream waits for all copies that are under way.
  // With NVMe the calling thread waits for them too, and starts their writes. Throws IoError.
  void settle();

  // Bytes moved since construction began.
  offload::SwapTraffic traffic() const;

 private:
  static constexpr size_t kMostOnTheWay = 2;
  autograd::SavedTensorStore* whole_store() {
    return on_ != OffloadDevice::none || places_.contiguous() ? this : nullptr;
  }
  std::unique_ptr<autograd::SavedSlot> save(const Tensor& tensor) override;
  void settle_oldest();
  offload::SwappedInputs& swapped(int64_t bytes);

  Context& context_;
  const OffloadDevice on_;
  offload::InputPlaces places_;
  offload::SwappedInputsOptions swap_;  // `bytes`: of the largest input that is known
  std::vector<std::shared_ptr<offload::SwappedInputs>> swapped_;
  offload::SwapTraffic gone_;  // of closed members of swapped_
  std::deque<std::pair<Event, Tensor>> on_the_way_;
  std::unique_ptr<autograd::SavedTensorStore> parts_;  // null: whole inputs are saved
};

}  // namespace zinc::zero
