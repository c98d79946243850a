#include "nn/stages.h"

#include <algorithm>
#include <span>
#include <utility>

#include "autograd/recompute.h"

namespace zinc::nn {

std::vector<StageSegment> stage_segments(Staged& model, int64_t every, int64_t most) {
  const int64_t count = model.num_stages();
  require(count >= 2, "model: ", count, " stages are none; derive from Staged with two or more");
  std::vector<StageSegment> segments;
  int64_t blocks = 0;  // blocks that are recomputed
  for (int64_t begin = 0; begin < count;) {
    int64_t end = begin + 1;
    const bool recomputed = every > 0 && blocks < most && model.is_block(begin);
    const int64_t length = std::min(every, most - blocks);
    while (recomputed && end < count && end - begin < length && model.is_block(end)) ++end;
    if (recomputed) blocks += end - begin;
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
