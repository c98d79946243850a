// parallel/stage_pass.h: one micro-batch through some of the stages of a model, forward and, later,
// backward.
#pragma once

#include <span>
#include <vector>

#include "autograd/backward.h"
#include "nn/model.h"
#include "nn/stages.h"

namespace zinc::parallel {

// What a tensor looks like that one stage of a model gives to the next.
struct StageTensor {
  bool is_there = true;  // false: undefined, and the rest says nothing
  Shape shape{};
  DType dtype = DType::f32;
  bool has_gradient = false;  // one that travels back
  friend bool operator==(const StageTensor&, const StageTensor&) = default;
};

// Tensors that look so, not initialised; undefined where there is none.
nn::TensorList take_room(std::span<const StageTensor> looks);

class StagePass {
 public:
  // `in`: what the stage before the segments gave, or nothing for stage 0; those of `about`, which
  // says the same of each, that have a gradient become leaves. Gives what the last segment gives.
  // Nothing but the graph is kept: who needs a value keeps it.
  nn::TensorList forward(nn::Staged& model, std::span<const nn::StageSegment> segments,
                         const nn::Batch& batch, nn::TensorList in,
                         std::span<const StageTensor> about);
  // `gradients`: of what forward() gave, undefined where there is none. Gives those of `in`,
  // undefined likewise. Once; nothing is left of the graph. With `splits` gradients of weights are
  // left for weights().
  nn::TensorList backward(nn::TensorList gradients, bool splits = false);
  void weights() { later_.run(); }

 private:
  std::vector<autograd::GradientPoint> in_, out_;
  autograd::DeferredGradients later_;
};

}  // namespace zinc::parallel
