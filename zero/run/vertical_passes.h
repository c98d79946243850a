// zero/run/vertical_passes.h: forward and backward of several micro-batches side by side: all of
// them through a stage of the model before the next stage, so that a layer's parameters are
// gathered once for all of them in each direction.
//
// Every micro-batch keeps the graph, the random numbers and, in its own pass, the order of
// gradients that it has alone; within a stage micro-batches follow each other in ascending order.
// So sums over micro-batches are made in the order of passes one after the other, and keep their
// bits. Between stages one activation per micro-batch is alive, and in the graphs what the model
// saves: with recomputation the inputs of its segments.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/random_state.h"
#include "nn/model.h"
#include "nn/stages.h"
#include "zero/update/loss_totals.h"

namespace zinc::zero {

struct SideBySide {
  const nn::Batch* batch = nullptr;
  uint64_t global_micro_batch = 0;  // key of its random numbers
  double seed = 1.0;                // the gradient that its backward starts with
};

class VerticalPasses {
 public:
  // Called before work of micro-batch i.
  using Enter = std::function<void(int64_t i)>;

  // `model`, which is Staged, and the batches must outlive this.
  VerticalPasses(nn::Model& model, uint64_t step, const std::vector<SideBySide>& micro_batches);

  void forward(const Enter& enter);
  void backward(const Enter& enter);  // after forward(), once
  // After forward().
  std::vector<BatchLoss> losses() const;

 private:
  struct Pass {
    SideBySide of;
    nn::TensorList x;  // what the last segment gave
    RandomState::Snapshot random;
    std::vector<int64_t> marks;  // by segment: autograd::last_recorded() before it
  };

  nn::Staged& model_;
  const std::vector<nn::StageSegment> segments_;
  std::vector<Pass> passes_;
};

}  // namespace zinc::zero
