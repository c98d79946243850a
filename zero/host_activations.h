// zero/host_activations.h: what recomputation saves, in host memory ("cpu_checkpointing").
//
// A saved tensor leaves on the copy-out stream beside the forward pass, and its device memory is
// given back as soon as the copy is done and no later than kMostOnTheWay saves after it. It comes
// back on the copy-in stream when backward asks for it.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "autograd/saved_tensor_store.h"
#include "core/context.h"

namespace zinc::zero {

class HostActivations final : public autograd::SavedTensorStore {
 public:
  explicit HostActivations(Context& context) : context_(context) {}
  std::unique_ptr<autograd::SavedSlot> save(const Tensor& tensor) override;
  // Forgets copies under way; the compute stream waits for them. At the end of a forward pass.
  void settle();

 private:
  static constexpr size_t kMostOnTheWay = 2;
  void settle_oldest();

  Context& context_;
  std::deque<std::pair<Event, Tensor>> on_the_way_;
};

}  // namespace zinc::zero
