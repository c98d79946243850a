#include "nn/model.h"

#include "core/error.h"

namespace zinc::nn {

void Model::set_recompute_every(int64_t every) {
  require(every >= 0,
          "model: the number of blocks per recomputed segment must not be negative: ", every);
  recompute_every_ = every;
}

Tensor Model::next_logits(const Tensor&, KvCache&) {
  throw InvalidArgument(concat("model: ", architecture(), " does not generate with a cache"));
}

}  // namespace zinc::nn
