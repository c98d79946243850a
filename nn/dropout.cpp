#include "nn/dropout.h"

#include "autograd/ops/dropout.h"
#include "core/error.h"
#include "core/philox.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {

Dropout::Dropout(Module& parent, std::string name, double probability, bool of_slice)
    : Module(parent, std::move(name)),
      probability_(probability),
      of_slice_(of_slice),
      site_(hash_text(path())) {
  require(probability >= 0.0 && probability < 1.0, path(),
          ": a dropout probability must be in [0, 1), not ", probability);
}

Tensor Dropout::forward(const Tensor& x) {
  return dropped(x, tensor_ranks() != nullptr && tensor_ranks()->shares_tokens() && !of_slice_);
}

Tensor Dropout::of_own_features(const Tensor& x) { return dropped(x, tensor_ranks() != nullptr); }

Tensor Dropout::dropped(const Tensor& x, bool by_rank) {
  if (!is_training() || probability_ == 0.0) return x;
  const uint64_t site =
      by_rank ? combine_bits(site_, static_cast<uint64_t>(tensor_ranks()->rank())) : site_;
  return autograd::dropout(x, {.probability = probability_, .site = site});
}

}  // namespace zinc::nn
