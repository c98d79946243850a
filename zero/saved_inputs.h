// zero/saved_inputs.h: where the inputs of recomputed blocks wait for backward.
//
// Kept as they are by default. "cpu_checkpointing": in host memory. A saved tensor leaves on the
// copy-out stream beside the forward pass, and its device memory is given back as soon as the copy
// is done and no later than kMostOnTheWay saves after it; it comes back on the copy-in stream when
// backward asks for it. "contiguous_memory_optimization": copied to places of one allocation,
// which is made for the first input and kept from step to step, so that what lives longest in a
// step leaves no gaps among what comes and goes (DeepSpeed, runtime/activation_checkpointing).
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "autograd/saved_tensor_store.h"
#include "core/context.h"
#include "nn/model.h"
#include "zero/engine_config.h"
#include "zero/input_places.h"

namespace zinc::zero {

class SavedInputs final : autograd::SavedTensorStore {
 public:
  // `model` knows which blocks it recomputes; `together`: micro-batches whose inputs wait at once.
  SavedInputs(Context& context, const RecomputeConfig& config, nn::Model& model, int64_t together);

  // For autograd::RecomputeInputScope; null where inputs are kept as they are.
  autograd::SavedTensorStore* store() {
    return in_host_memory_ || places_.contiguous() ? this : nullptr;
  }
  // Forgets copies under way; the compute stream waits for them. At the end of a forward pass.
  void settle();

 private:
  static constexpr size_t kMostOnTheWay = 2;
  std::unique_ptr<autograd::SavedSlot> save(const Tensor& tensor) override;
  void settle_oldest();

  Context& context_;
  const bool in_host_memory_;
  InputPlaces places_;
  std::deque<std::pair<Event, Tensor>> on_the_way_;
};

}  // namespace zinc::zero
