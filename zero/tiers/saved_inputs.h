// zero/tiers/saved_inputs.h: where the inputs of recomputed blocks wait for backward.
//
// Kept as they are by default. "cpu_checkpointing": in host memory. A saved tensor leaves on the
// copy-out stream beside the forward pass, and its device memory is given back as soon as the copy
// is done and no later than kMostOnTheWay saves after it; it comes back on the copy-in stream when
// backward asks for it. "activation_offload" to nvme: host memory is only where it passes through,
// see Note [Inputs on NVMe]; space and buffers are made for the first input of a size, as models
// save them, and kept from step to step. "contiguous_memory_optimization": copied to places of one
// allocation, which is made and kept likewise, so that what lives longest in a step leaves no gaps
// among what comes and goes (DeepSpeed, runtime/activation_checkpointing); there is nothing to do
// for it on NVMe.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/saved_tensor_store.h"
#include "core/context.h"
#include "nn/model.h"
#include "zero/engine_config.h"
#include "zero/tiers/input_places.h"
#include "zero/tiers/swap_traffic.h"
#include "zero/tiers/swapped_inputs.h"

namespace zinc::zero {

class SavedInputs final : autograd::SavedTensorStore {
 public:
  // `model` knows which blocks it recomputes. Throws IoError where NVMe cannot be had.
  SavedInputs(Context& context, const EngineConfig& config, nn::Model& model,
              offload::SwapClock* clock);
  ~SavedInputs();

  // For autograd::RecomputeInputScope; null where inputs are kept as they are.
  autograd::SavedTensorStore* store() {
    return on_ != OffloadDevice::none || places_.contiguous() ? this : nullptr;
  }
  // Forgets copies under way; the compute stream waits for them, and this thread where they go on
  // to NVMe. At the end of a forward pass. Throws IoError.
  void settle();

  // Since construction began.
  SwapTraffic traffic() const;

 private:
  static constexpr size_t kMostOnTheWay = 2;
  std::unique_ptr<autograd::SavedSlot> save(const Tensor& tensor) override;
  void settle_oldest();
  SwappedInputs& swapped(int64_t bytes);

  Context& context_;
  const OffloadDevice on_;
  InputPlaces places_;
  SwappedInputsOptions swap_;                            // of inputs of any size
  std::vector<std::shared_ptr<SwappedInputs>> swapped_;  // full ones, and of several sizes
  SwapTraffic gone_;                                     // of those that were there before
  std::deque<std::pair<Event, Tensor>> on_the_way_;
};

}  // namespace zinc::zero
