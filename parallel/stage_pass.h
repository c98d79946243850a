// parallel/stage_pass.h: one micro-batch through some of the stages of a model, forward and, later,
// backward.
#pragma once

#include <span>
#include <vector>

#include "autograd/backward.h"
#include "nn/model.h"
#include "nn/stages.h"

namespace zinc::parallel {

// Shape and dtype of a tensor that one stage of a model gives to the next.
struct StageTensor {
  bool is_there = true;  // false: undefined, and the rest says nothing
  Shape shape{};
  DType dtype = DType::f32;
  bool has_gradient = false;  // one that travels back
  friend bool operator==(const StageTensor&, const StageTensor&) = default;
};

// Tensors of these shapes and dtypes, not initialised; undefined where there is none.
nn::TensorList take_room(std::span<const StageTensor> looks);

class StagePass {
 public:
  // `in`: the output of the stage before the segments, or nothing for stage 0. `about` describes
  // each tensor; tensors with a gradient become leaves. Returns the output of the last segment. The
  // object keeps only the graph; a caller that needs a value keeps it.
  nn::TensorList forward(nn::Staged& model, std::span<const nn::StageSegment> segments,
                         const nn::Batch& batch, nn::TensorList in,
                         std::span<const StageTensor> about);
  // `gradients`: of the tensors that forward() returned, undefined where there is none. Returns the
  // gradients of `in`, undefined likewise. Call once; nothing is left of the graph. With `splits`,
  // gradients of weights are left for weights().
  nn::TensorList backward(nn::TensorList gradients, bool splits = false);
  void weights() { later_.run(); }

 private:
  std::vector<autograd::GradientPoint> in_, out_;
  autograd::DeferredGradients later_;
};

}  // namespace zinc::parallel
