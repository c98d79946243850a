// nn/stages.h: runs a model that consists of stages, with recomputation.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "nn/batch.h"
#include "nn/model.h"

namespace zinc::nn {

// Stages [begin, end), one after the other. A recomputed segment keeps the input of its first
// stage, and is computed again in backward.
struct StageSegment {
  int64_t begin = 0;
  int64_t end = 0;
  bool recomputed = false;
};

// Cuts the model into segments. With every > 0, the first `most` blocks form recomputed segments of
// `every` neighbouring blocks each. Any other stage is a segment by itself.
std::vector<StageSegment> stage_segments(Staged& model, int64_t every,
                                         int64_t most = std::numeric_limits<int64_t>::max());
// Segments by the model's own settings. M: a Model that is Staged.
template <class M>
std::vector<StageSegment> segments_of(M& model) {
  return stage_segments(model, model.recompute_every(), model.most_recomputed());
}

// x: the output of the stage before the segment.
TensorList run_segment(Staged& model, const StageSegment& segment, const Batch& batch,
                       TensorList x);

namespace detail {
// Throws InvalidArgument unless the last stage gave one scalar.
void require_loss(const TensorList& x);
}  // namespace detail

// The whole forward pass, with recomputation by the model's own settings. M: a Model that is
// Staged.
template <class M>
Tensor loss_of_stages(M& model, const Batch& batch) {
  TensorList x;
  for (const StageSegment& segment : segments_of(model)) {
    x = run_segment(model, segment, batch, std::move(x));
  }
  detail::require_loss(x);
  return std::move(x.front());
}

// The input of the last stage, which gives the loss.
template <class M>
TensorList before_last_stage(M& model, const Batch& batch) {
  std::vector<StageSegment> segments = segments_of(model);
  segments.pop_back();
  TensorList x;
  for (const StageSegment& segment : segments) {
    x = run_segment(model, segment, batch, std::move(x));
  }
  return x;
}

}  // namespace zinc::nn
