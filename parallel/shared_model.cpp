#include "parallel/shared_model.h"

#include "parallel/sequence_ranks.h"
#include "parallel/tensor_ranks.h"

namespace zinc::parallel {

SharedModel::SharedModel(nn::Model& model, comm::World& world, const SharedModelOptions& options)
    : model_(model) {
  if (world.tensor() != nullptr || options.fixed_slices > 0) {
    tensor_ = make_tensor_ranks(world.tensor());
    tensor_->fix_slices(options.fixed_slices);
  }
  if (world.sequence() != nullptr) {
    sequence_ = make_sequence_ranks(*world.sequence(), options.exchange);
  }
  try {
    share_sequence(model, sequence_.get());
    share_tokens(model, tensor_ != nullptr && options.tokens);
    share_layers(model, tensor_.get());
  } catch (...) {
    end();
    throw;
  }
}

SharedModel::~SharedModel() { end(); }

void SharedModel::end() {
  share_sequence(model_, nullptr);
  share_tokens(model_, false);
  model_.share_over(nullptr);
}

}  // namespace zinc::parallel
