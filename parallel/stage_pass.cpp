#include "parallel/stage_pass.h"

#include <utility>

#include "core/error.h"

namespace zinc::parallel {

nn::TensorList take_room(std::span<const StageTensor> looks) {
  nn::TensorList tensors;
  for (const StageTensor& look : looks) {
    tensors.push_back(look.is_there ? Tensor::empty(look.shape, look.dtype) : Tensor());
  }
  return tensors;
}

nn::TensorList StagePass::forward(nn::Staged& model, std::span<const nn::StageSegment> segments,
                                  const nn::Batch& batch, nn::TensorList in,
                                  std::span<const StageTensor> about) {
  bug_check(in.size() == about.size(), "stage pass: ", in.size(), " tensors, of which ",
            about.size(), " are described");
  in_.clear();
  out_.clear();
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].defined() && about[i].has_gradient) autograd::requires_grad_(in[i]);
    in_.emplace_back(in[i]);
  }
  nn::TensorList x = std::move(in);
  for (const nn::StageSegment& segment : segments) {
    x = nn::run_segment(model, segment, batch, std::move(x));
  }
  for (const Tensor& tensor : x) out_.emplace_back(tensor);
  return x;
}

nn::TensorList StagePass::backward(nn::TensorList gradients, bool splits) {
  bug_check(gradients.size() == out_.size(), "stage pass: ", gradients.size(), " gradients of ",
            out_.size(), " tensors");
  std::vector<autograd::GradientRoot> roots;
  for (size_t i = 0; i < out_.size(); ++i) {
    if (out_[i].exists() && gradients[i].defined()) {
      roots.push_back({out_[i], std::move(gradients[i])});
    }
  }
  out_.clear();
  if (!roots.empty()) autograd::backward(roots, splits ? &later_ : nullptr);
  nn::TensorList of_inputs;
  for (const autograd::GradientPoint& point : in_) {
    of_inputs.push_back(point.exists() ? point.take_gradient() : Tensor());
  }
  in_.clear();
  return of_inputs;
}

}  // namespace zinc::parallel
