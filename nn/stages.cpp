#include "nn/stages.h"

#include <span>
#include <utility>

#include "autograd/recompute.h"

namespace zinc::nn {

std::vector<StageSegment> stage_segments(Staged& model, int64_t every) {
  const int64_t count = model.num_stages();
  require(count >= 2, "model: ", count, " stages are none; derive from Staged with two or more");
  std::vector<StageSegment> segments;
  for (int64_t begin = 0; begin < count;) {
    int64_t end = begin + 1;
    const bool recomputed = every > 0 && model.is_block(begin);
    while (recomputed && end < count && end - begin < every && model.is_block(end)) ++end;
    segments.push_back({.begin = begin, .end = end, .recomputed = recomputed});
    begin = end;
  }
  return segments;
}

void detail::require_loss(const TensorList& x) {
  require(x.size() == 1 && x.front().numel() == 1,
          "model: the last stage must give the loss alone, a ", "scalar, not ", x.size(),
          " tensors");
}

TensorList run_segment(Staged& model, const StageSegment& segment, const Batch& batch,
                       TensorList x) {
  if (!segment.recomputed) {
    for (int64_t i = segment.begin; i < segment.end; ++i) x = model.stage(i, batch, std::move(x));
    return x;
  }
  return autograd::recompute(
      [&model, segment, batch](std::span<const Tensor> in) {
        TensorList out(in.begin(), in.end());
        for (int64_t i = segment.begin; i < segment.end; ++i) {
          out = model.stage(i, batch, std::move(out));
        }
        return out;
      },
      std::move(x));
}

}  // namespace zinc::nn
