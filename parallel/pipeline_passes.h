// parallel/pipeline_passes.h: the micro-batches of a step through the parts of one rank of a
// pipeline. The step program decides the order of ops: Program::pipeline.
//
// Between a micro-batch's forward and backward pass a rank keeps the graph of the part, but neither
// the received nor the sent tensors. Every micro-batch has the random numbers, and in its own pass
// the order of gradients, that it has without a pipeline.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/world.h"
#include "parallel/pipeline.h"
#include "parallel/pipeline_cut.h"
#include "parallel/stage_pass.h"
#include "parallel/vertical_passes.h"

namespace zinc::parallel {

class PipelinePasses {
 public:
  // `cut`, `pipe`, the ranks of the pipeline, and the batches must outlive this.
  PipelinePasses(PipelineCut& cut, comm::World& pipe, uint64_t step,
                 std::span<const SideBySide> micro_batches);

  // A receive or a send, on the compute stream.
  void exchange(const PipelineOp& op);
  void forward(const PipelineOp& op);
  // With `splits` the gradients of weights are left for weights().
  void backward(const PipelineOp& op, bool splits = false);
  void weights(const PipelineOp& op) { at(op).stages.weights(); }
  // Call after forward() of the rank's last part. The loss, if that part is the model's last;
  // otherwise only its number of targets.
  BatchLoss loss(int64_t i) const;

 private:
  struct Pass {
    SideBySide of;
    const PipelinePart* part;
    const StageInput* input;
    StagePass stages{};
    // The tensors on their way into or out of the stages: values, then gradients.
    nn::TensorList tensors{};
    std::vector<StageTensor> output{};  // the tensors that forward() gave
    Tensor loss{};
  };

  Pass& at(const PipelineOp& op) {
    return passes_.at(static_cast<size_t>(op.part)).at(static_cast<size_t>(op.micro_batch));
  }
  void send(const nn::TensorList& tensors, std::span<const StageTensor> looks, bool gradients);
  void receive(const nn::TensorList& tensors, bool gradients);
  // Values go to the rank behind, or from the last one to the first.
  int behind() const { return (pipe_.rank() + 1) % pipe_.size(); }
  int before() const { return (pipe_.rank() + pipe_.size() - 1) % pipe_.size(); }

  PipelineCut& cut_;
  comm::World& pipe_;
  uint64_t step_;
  std::vector<std::vector<Pass>> passes_;  // by part
};

}  // namespace zinc::parallel
