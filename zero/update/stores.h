// zero/update/stores.h: an engine's weights, gradients and states, by group, and their update.
#pragma once

#include <memory>
#include <vector>

#include "offload/swap_clock.h"
#include "offload/swap_traffic.h"
#include "zero/group/gathered_weights.h"
#include "zero/group/gradient_store.h"
#include "zero/group/host_gradients.h"
#include "zero/group/sign_sums.h"
#include "zero/group/swapped_gradients.h"
#include "zero/group/weight_store.h"
#include "zero/group/weight_values.h"
#include "zero/layout/state_split.h"
#include "zero/tiers/swapped_shards.h"
#include "zero/update/weight_update.h"

namespace zinc::zero {

// An engine that only computes has weights, and no gradients and update.
struct Stores {
  std::unique_ptr<offload::SwapClock> swap_clock;
  std::unique_ptr<SwappedShards> swapped;               // null: nothing is in swap space
  std::unique_ptr<SwappedGradients> swapped_gradients;  // null: they are not in swap space
  std::unique_ptr<HostGradients> host_gradients;        // null: none are in host memory
  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<GatheredWeights> gathered;
  std::unique_ptr<WeightValues> values;
  std::unique_ptr<SignSums> signs;           // null: gradients never travel as signs
  std::unique_ptr<GradientStore> gradients;  // null: nothing is trained
  // By rank: the slices that the rank updates; one entry where every rank updates everything. See
  // GradientNorm.
  std::vector<std::vector<OwnedRange>> owned;
  std::unique_ptr<WeightUpdate> update;  // null: nothing is trained

  // WeightUpdate::finish() and finish_own(), where there is an update.
  void finish_update() const {
    if (update) update->finish();
  }
  void finish_own_update() const {
    if (update) update->finish_own();
  }
  // Transfers of states, gradients and parameters since construction began.
  offload::SwapTraffic swap_traffic() const {
    offload::SwapTraffic all = weights->swap_traffic();
    if (swapped) all = all + swapped->traffic();
    if (swapped_gradients) all = all + swapped_gradients->traffic();
    all.busy_ns = swap_clock->busy_ns();
    all.stall_ns = swap_clock->stall_ns();
    return all;
  }
};

}  // namespace zinc::zero
