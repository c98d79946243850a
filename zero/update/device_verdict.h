// zero/update/device_verdict.h: the verdict over a step on the device, for which the host does not
// wait.
//
// Note [Verdict on the device]
// Norm, finite check, factor, skip and the next loss scale are kernels of the compute stream
// (kernels/step_verdict.h); the update reads factor and skip where they leave them. The host reads
// all of it, losses of the micro-batches among them, when the whole step is queued: that is its one
// wait. What it brings to the next step is exact by then: learning rate and number of the update,
// which a skipped step does not move, and the loss scale of the next backward passes.
// Losses, targets and sums of squares travel in one gather, on the compute stream.
//
// Elsewhere the host decides before it queues the update (GradientNorm::measure): on the CPU, where
// gradients, states or weights are off the device, where collectives pass through the host, and for
// a client's own optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "kernels/step_verdict.h"
#include "optim/loss_scaler.h"
#include "tensor/tensor.h"
#include "zero/engine_config.h"
#include "zero/update/gradient_norm.h"
#include "zero/update/loss_totals.h"

namespace zinc::zero {

class DeviceVerdict {
 public:
  // `norm` and `world` must outlive this; the loss scale starts with that of `scaler`.
  DeviceVerdict(const EngineConfig& config, GradientNorm& norm, const optim::LossScaler& scaler,
                comm::World& world);

  // Goes on from the scaler's state. Between steps.
  void restore(const optim::LossScaler& scaler);

  // One micro-batch of this rank; `sum`, one f32 on the device, is copied in the compute stream.
  void add(const Tensor& sum, int64_t num_targets);
  // Of what was added, over all ranks: LossTotals::count(). Collective; waits.
  double count() const;

  // The verdict over a step, on the compute stream, in this order. measure() and decide() queue
  // the same work in every step with as many micro-batches.
  // Losses and targets to where they are read. True: places are others than in the step before.
  bool bring();
  void measure(const std::vector<ConstView>& gradients);
  void gather();  // collective
  void decide();
  void send();  // to the host, when the update is queued
  // Where the verdict is, for work on the compute stream until the next bring().
  ConstView factor() const;  // [1] f32
  ConstView skip() const;    // [1] i32

  struct Result {
    kernels::StepVerdict verdict;
    StepLoss loss;
  };
  // Waits for the compute stream, once, and ends the step: nothing is added any more. On a meta
  // device: finite, the sum of squares 1, losses 1.
  Result read(const LossTotals& totals);

 private:
  struct MicroBatch {
    Tensor sum;
    int64_t num_targets = 0;
  };
  int num_ranks() const { return world_.size(); }
  int64_t num_headers() const;  // words of a rank before its sums
  bool place();  // of a step with as many micro-batches as were added; true: elsewhere
  int64_t words() const { return num_headers() + norm_.longest(); }  // that a rank sends
  Block take(int64_t bytes, Tier tier = Tier::device) const;
  void upload_tree();

  Context& context_;
  comm::World& world_;
  GradientNorm& norm_;
  const bool by_token_, check_overflow_, stop_at_nonfinite_loss_;
  const double clipping_, wire_divisor_;
  const kernels::LossScaleRules rules_;
  kernels::LossScaleState scale_;  // as the host last knew it
  std::vector<MicroBatch> batches_;
  int64_t num_placed_ = -1;  // micro-batches of a step that the blocks have room for
  int64_t num_leaves_ = 0, num_merges_ = 0, num_parameters_ = 0;
  Block tree_;      // [leaves + 2 merges + 2 (parameters + 1)] i64
  Block leaves_;    // [leaves] f64
  Block state_;     // the loss scale on the device
  Block own_;       // what this rank sends: headers and sums
  Block gathered_;  // null in a world of one
  Block out_;       // verdict and all headers
  Block host_;      // the same in host memory
};

// Null where the host decides: see Note [Verdict on the device]. `clients`: a client's optimizer.
std::unique_ptr<DeviceVerdict> make_device_verdict(const EngineConfig& config, bool clients,
                                                   GradientNorm& norm,
                                                   const optim::LossScaler& scaler,
                                                   comm::World& world);

}  // namespace zinc::zero
