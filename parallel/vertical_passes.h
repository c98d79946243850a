// parallel/vertical_passes.h: forward and backward of several micro-batches side by side. All of
// them pass one stage of the model before the next stage begins. So a layer's parameters are
// gathered once for all micro-batches in each direction.
//
// - Each micro-batch has the graph and the random numbers that it has alone. Within a stage
//   micro-batches follow each other in ascending order, so sums over micro-batches keep their bits.
// - The last segment makes the loss. Its forward pass is a part of backward(): a micro-batch goes
//   back through it before the next one goes forward. A head makes the gradient of its weight with
//   the loss, so that there is one such gradient at a time, not one per micro-batch.
// - Memory: between stages one activation of each micro-batch, and what the graphs save: with
//   recomputation the inputs of the model's segments.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/random_state.h"
#include "nn/model.h"
#include "nn/stages.h"
#include "tensor/tensor.h"

namespace zinc::parallel {

// The loss of one micro-batch.
struct BatchLoss {
  Tensor sum;  // f32 scalar: the sum over its targets
  int64_t num_targets = 0;
};

struct SideBySide {
  const nn::Batch* batch = nullptr;
  uint64_t global_micro_batch = 0;  // key of its random numbers
  double seed = 1.0;                // the gradient with which its backward begins
};

class VerticalPasses {
 public:
  // Called before work of micro-batch i.
  using Enter = std::function<void(int64_t i)>;

  // `model`, which is Staged, and the batches must outlive this.
  VerticalPasses(nn::Model& model, uint64_t step, const std::vector<SideBySide>& micro_batches);

  // All segments but the last.
  void forward(const Enter& enter);
  // A function that is called around the forward pass of micro-batch i through the last segment; it
  // must call `work`, which is that pass.
  using Around = std::function<void(int64_t i, const std::function<void()>& work)>;
  // After forward(), once. `ahead_of_last`: called when all losses() are there, before the last
  // micro-batch goes back.
  void backward(const Enter& enter, const Around& around = {},
                const std::function<void()>& ahead_of_last = {});
  // After backward(), and in ahead_of_last().
  std::vector<BatchLoss> losses() const;

 private:
  struct Pass {
    SideBySide of;
    nn::TensorList x;  // the output of the last segment that ran
    RandomState::Snapshot random;
    std::vector<int64_t> marks;  // by segment: autograd::last_recorded() before it
  };

  void run(size_t segment, Pass& pass);

  nn::Staged& model_;
  const std::vector<nn::StageSegment> segments_;
  std::vector<Pass> passes_;
};

}  // namespace zinc::parallel
