// zero/group/gradient_policy.h: the dtypes and the order in which gradients go from backward to the
// step. No other file decides this.
//
// Note [Gradient policy]
//   micro-batches per step | backward writes | on the wire             | kept until the step
//   one                    | model dtype     | model dtype             | model dtype, rounded once
//   several, boundary      | model dtype     | f32 (the kept sums)     | f32
//   several, micro_step    | model dtype     | model dtype             | f32
//   Determinism::world     | model dtype     | model dtype             | f32, several sums
//
// With Determinism::world, and mesh, a group keeps up to log2(micro-batches of the step) + 1 sums.
// The table is the same for every stage. f32 models use f32 everywhere, f64 models f64. Ranks add
// in f32, over the tree of comm/communicator.h (ReduceAlgorithm::ordered).
// `gradient.accumulation_dtype` replaces the last column, but not with Determinism::world or mesh.
// `gradient.communication_dtype` replaces the column "on the wire": a rank's gradients are rounded
// to it. Sums are not rounded to it: on stage 0 they travel in the kept dtype.
#pragma once

#include "core/dtype.h"
#include "zero/engine_config.h"

namespace zinc::zero {

struct GradientPolicy {
  DType written = DType::f32;                          // backward writes
  DType wire = DType::f32;                             // between ranks
  DType kept = DType::f32;                             // sums until the step
  bool several = false;                                // micro-batches per step
  ReduceSchedule schedule = ReduceSchedule::boundary;  // with one micro-batch: boundary
  // True: the gradients of all micro-batches of a step are added over one binary tree. The tree's
  // leaves are ordered by their global index, micro-step x world + rank. If the world size is a
  // power of two, the ranks of one micro-step are a subtree. So the world size changes no bit.
  bool tree_over_micro_batches = false;

  static GradientPolicy choose(const EngineConfig& config);
  // The dtype of a micro-batch's shard on its way to host memory, where it is added to the sums. It
  // is no narrower than a sum over `ranks` on the device.
  DType added_in_host(int ranks) const;
};

// The kept sums are divided by this number, so that native sums in 16 bits stay in range.
double wire_divisor(const GradientConfig& gradient, int world);
// wire_divisor() times EngineConfig::loss_divisor(): see Note [Loss scale].
double gradient_divisor(const EngineConfig& config, int world);

}  // namespace zinc::zero
