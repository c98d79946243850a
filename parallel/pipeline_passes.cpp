#include "parallel/pipeline_passes.h"

#include <utility>

#include "core/context.h"
#include "core/error.h"
#include "core/trace_span.h"

namespace zinc::parallel {
namespace {

// Tags of messages.
constexpr int kValues = 0;
constexpr int kGradients = 1;

// The tensors that have a gradient.
std::vector<StageTensor> with_gradient(std::span<const StageTensor> looks) {
  std::vector<StageTensor> found(looks.begin(), looks.end());
  for (StageTensor& look : found) look.is_there = look.is_there && look.has_gradient;
  return found;
}

}  // namespace

PipelinePasses::PipelinePasses(PipelineCut& cut, comm::World& pipe, uint64_t step,
                               std::span<const SideBySide> micro_batches)
    : cut_(cut), pipe_(pipe), step_(step) {
  for (int part = 0; part < cut.num_parts(); ++part) {
    std::vector<Pass>& passes = passes_.emplace_back();
    for (const SideBySide& of : micro_batches) {
      passes.push_back(
          {.of = of, .part = &cut.part(part), .input = &cut.input_of(*of.batch, part)});
    }
  }
}

void PipelinePasses::exchange(const PipelineOp& op) {
  Pass& pass = at(op);
  switch (op.work) {
    case PipelineWork::receive_input:
      pass.tensors = take_room(pass.input->tensors);
      return receive(pass.tensors, /*gradients=*/false);
    case PipelineWork::send_output:
      send(pass.tensors, pass.output, /*gradients=*/false);
      return pass.tensors.clear();
    case PipelineWork::receive_gradient:
      pass.tensors = take_room(with_gradient(pass.output));
      return receive(pass.tensors, /*gradients=*/true);
    case PipelineWork::send_gradient:
      send(pass.tensors, with_gradient(pass.input->tensors), /*gradients=*/true);
      return pass.tensors.clear();
    case PipelineWork::forward:
    case PipelineWork::backward:
    case PipelineWork::weights:
      break;
  }
  bug_check(false, describe(op), " is no message");
}

void PipelinePasses::forward(const PipelineOp& op) {
  Pass& pass = at(op);
  Context::current().random().restore(
      {.step = step_, .micro_batch = pass.of.global_micro_batch, .calls = pass.input->draws});
  nn::TensorList out = pass.stages.forward(cut_.model(), pass.part->segments, *pass.of.batch,
                                           std::exchange(pass.tensors, {}), pass.input->tensors);
  if (pass.part->is_last) {
    nn::detail::require_loss(out);
    pass.loss = out.front().detach();
    return;
  }
  const std::vector<bool>& has_gradient = pass.part->output_gradients;
  bug_check(has_gradient.size() == out.size(), "pipeline: the stages gave ", out.size(),
            " tensors instead of ", has_gradient.size());
  pass.output.clear();
  for (size_t t = 0; t < out.size(); ++t) {
    if (!out[t].defined()) {
      pass.output.push_back({.is_there = false});
    } else {
      pass.output.push_back(
          {.shape = out[t].shape(), .dtype = out[t].dtype(), .has_gradient = has_gradient[t]});
    }
    pass.tensors.push_back(out[t].defined() ? out[t].detach() : Tensor());
  }
}

void PipelinePasses::backward(const PipelineOp& op, bool splits) {
  Pass& pass = at(op);
  nn::TensorList gradients = std::exchange(pass.tensors, {});
  if (pass.part->is_last) {
    gradients = {Tensor::full(pass.loss.shape(), pass.of.seed, pass.loss.dtype())};
  }
  pass.tensors = pass.stages.backward(std::move(gradients), splits);
}

BatchLoss PipelinePasses::loss(int64_t i) const {
  const Pass& pass = passes_.back().at(static_cast<size_t>(i));
  return {.sum = pass.loss, .num_targets = pass.of.batch->num_targets};
}

void PipelinePasses::send(const nn::TensorList& tensors, std::span<const StageTensor> looks,
                          bool gradients) {
  const StreamRef compute = pipe_.context().compute();
  const int peer = gradients ? before() : behind();
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!looks[t].is_there) continue;
    // The record has a gradient where this pass may have none.
    Tensor tensor =
        tensors[t].defined() ? tensors[t] : Tensor::zeros(looks[t].shape, looks[t].dtype);
    if (!tensor.is_contiguous()) tensor = tensor.clone();
    const TraceSpan span(pipe_.context().trace(), TraceKind::exchange, compute,
                         gradients ? "send gradient" : "send output", tensor.view().bytes());
    pipe_.communicator()
        .send(tensor.view(), peer, gradients ? kGradients : kValues, compute)
        .wait_on(compute);
  }
}

void PipelinePasses::receive(const nn::TensorList& tensors, bool gradients) {
  const StreamRef compute = pipe_.context().compute();
  const int peer = gradients ? behind() : before();
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const TraceSpan span(pipe_.context().trace(), TraceKind::exchange, compute,
                         gradients ? "receive gradient" : "receive input", 0);
    pipe_.communicator()
        .receive(tensor.view(), peer, gradients ? kGradients : kValues, compute)
        .wait_on(compute);
  }
}

}  // namespace zinc::parallel
