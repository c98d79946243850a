// parallel/shared_model.h: a model whose layers and sequences are shared by the ranks of a mesh.
#pragma once

#include <memory>

#include "comm/world.h"
#include "nn/model.h"
#include "nn/sequence_ranks.h"
#include "nn/tensor_ranks.h"

namespace zinc::parallel {

struct SharedModelOptions {
  int fixed_slices = 0;  // nn::TensorRanks::fix_slices(); 0: the ranks' number decides
  bool tokens = false;   // tensor ranks share tokens between sliced layers too
  nn::SequenceExchange exchange = nn::SequenceExchange::heads;  // for sequence ranks
};

// The model is shared by the world's tensor and sequence ranks, as far as there are any, while this
// lives.
class SharedModel {
 public:
  // Model and world must outlive this. Throws ConfigError as share_layers(), share_tokens() and
  // share_sequence() do; the model is as before then.
  SharedModel(nn::Model& model, comm::World& world, const SharedModelOptions& options);
  ~SharedModel();
  SharedModel(const SharedModel&) = delete;
  SharedModel& operator=(const SharedModel&) = delete;

 private:
  void end();

  nn::Model& model_;
  std::unique_ptr<nn::TensorRanks> tensor_;
  std::unique_ptr<nn::SequenceRanks> sequence_;
};

}  // namespace zinc::parallel
