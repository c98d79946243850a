// zero/group/gradient_policy.h: the dtypes and the order of a gradient's way from backward to the
// step.
//
// The only place that names them. Note [Gradient policy]
//   micro-batches per step | backward writes | on the wire             | kept until the step
//   one                    | model dtype     | model dtype             | model dtype, rounded once
//   several, boundary      | model dtype     | f32 (the kept sums)     | f32
//   several, micro_step    | model dtype     | model dtype             | f32
//   Determinism::world     | model dtype     | model dtype             | f32; log2 of the step's
//                          |                 |                         | micro-batches + 1 sums
// Sums between ranks are made in f32 over the tree of comm/communicator.h. f32 models are f32
// throughout; f64 models f64. `gradient.accumulation_dtype` replaces what is kept,
// `gradient.communication_dtype` what is on the wire. The table is the same for every stage.
#pragma once

#include "core/dtype.h"
#include "zero/engine_config.h"

namespace zinc::zero {

struct GradientPolicy {
  DType written = DType::f32;                          // by backward
  DType wire = DType::f32;                             // between ranks
  DType kept = DType::f32;                             // until the step
  bool several = false;                                // micro-batches per step
  ReduceSchedule schedule = ReduceSchedule::boundary;  // boundary where there is only one
  // Sums over the micro-batches of all ranks follow one binary tree over their global index
  // (micro-step x world + rank): the ranks of a micro-step are a subtree of it where the world is a
  // power of two, so the world's size changes no bit.
  bool tree_over_micro_batches = false;

  static GradientPolicy choose(const EngineConfig& config);
};

// Gradients are kept divided by this, so that native sums in 16 bits stay in range.
double wire_divisor(const GradientConfig& gradient, int world);
// The same, and by what Note [Loss scale] takes from the scale of a loss.
double gradient_divisor(const EngineConfig& config, int world);

}  // namespace zinc::zero
