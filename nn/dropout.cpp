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
  if (!is_training() || probability_ == 0.0) return x;
  const TensorRanks* ranks = tensor_ranks();
  const bool of_own_tokens = ranks != nullptr && ranks->shares_tokens() && !of_slice_;
  const uint64_t site =
      of_own_tokens ? combine_bits(site_, static_cast<uint64_t>(ranks->rank())) : site_;
  return autograd::dropout(x, {.probability = probability_, .site = site});
}

}  // namespace zinc::nn
