// zero/update/device_verdict.h: decides on the device whether and with which factor a step updates
// the weights. The host does not wait for the decision.
//
// Note [Verdict on the device]
// Norm, finite check, factor, skip flag and next loss scale are computed by kernels on the compute
// stream (kernels/step_verdict.h). The update kernels read factor and skip flag from device memory.
// The host reads the whole result, with the losses of all micro-batches, after the whole step is
// queued. That is its only wait in a step.
//
// Before the next step the host therefore knows three things exactly: the learning rate, the number
// of the next update (a skipped step changes neither), and the loss scale of the next backward
// passes. Losses, target counts and sums of squares of all ranks travel in one gather on the
// compute stream.
//
// In these cases the host decides instead, before it queues the update (GradientNorm::measure):
// - on the CPU
// - with gradients, states or weights off the device
// - with collectives that pass through the host
// - with a client's own optimizer
// - with ranks that share layers or sequences
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
  // `norm` and `world` must outlive this. The loss scale begins with the state of `scaler`.
  DeviceVerdict(const EngineConfig& config, GradientNorm& norm, const optim::LossScaler& scaler,
                comm::World& world);

  // Continues from the state of `scaler`. Call between steps.
  void restore(const optim::LossScaler& scaler);

  // Adds one micro-batch of this rank. `sum`: scalar f32 on the device; it is copied on the compute
  // stream.
  void add(const Tensor& sum, int64_t num_targets);
  // LossTotals::count() of the micro-batches that were added, over all ranks. With
  // LossReduction::tokens: collective, and waits.
  double count() const;

  // The parts of a step, called in this order. All work goes to the compute stream. measure() and
  // decide() queue the same work in every step with the same number of micro-batches. bring()
  // copies losses and target counts to the device. True: buffers were allocated anew, because the
  // number of micro-batches has changed.
  bool bring();
  void measure(const std::vector<ConstView>& gradients);
  void gather();  // collective
  void decide();
  void send();  // copies the result to the host; call when the update is queued
  // The verdict on the device, for work on the compute stream until the next bring().
  ConstView factor() const;  // [1] f32
  ConstView skip() const;    // [1] i32

  struct Result {
    kernels::StepVerdict verdict;
    StepLoss loss;
  };
  // Waits for the compute stream and ends the step: the added micro-batches are forgotten. On a
  // meta device the result is made up: finite, sum of squares 1, losses 1.
  Result read(const LossTotals& totals);

 private:
  struct MicroBatch {
    Tensor sum;
    int64_t num_targets = 0;
  };
  int num_ranks() const { return world_.size(); }
  int64_t num_headers() const;  // words that a rank sends ahead of its sums
  bool place();                 // room for the micro-batches that were added; true: allocated anew
  int64_t words() const { return num_headers() + norm_.nodes().longest(); }  // sent by a rank
  Block take(int64_t bytes, Tier tier = Tier::device) const;
  void upload_tree();

  Context& context_;
  comm::World& world_;
  GradientNorm& norm_;
  const bool by_token_, check_overflow_, stop_at_nonfinite_loss_;
  const double clipping_, wire_divisor_;
  const kernels::LossScaleRules rules_;
  kernels::LossScaleState scale_;  // the last one that the host knew
  std::vector<MicroBatch> batches_;
  int64_t num_placed_ = -1;  // micro-batches that the blocks have room for
  int64_t num_leaves_ = 0, num_merges_ = 0, num_parameters_ = 0;
  Block tree_;      // [leaves + 2 merges + 2 (parameters + 1)] i64
  Block leaves_;    // [leaves] f64
  Block state_;     // the loss scale on the device
  Block own_;       // data that this rank sends: headers and sums
  Block gathered_;  // null in a world of one
  Block out_;       // verdict and all headers
  Block host_;      // the same in host memory
};

// Null if the host decides: see Note [Verdict on the device]. `clients`: the optimizer is a
// client's own.
std::unique_ptr<DeviceVerdict> make_device_verdict(const EngineConfig& config, bool clients,
                                                   GradientNorm& norm,
                                                   const optim::LossScaler& scaler,
                                                   comm::World& world);

}  // namespace zinc::zero
