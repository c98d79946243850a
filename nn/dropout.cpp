#include "nn/dropout.h"

#include <vector>

#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/split.h"
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
  if (!drops()) return x;
  const TensorRanks* ranks = tensor_ranks();
  const bool by_rank = ranks != nullptr && ranks->shares_tokens() && !of_slice_;
  const uint64_t site = by_rank ? combine_bits(site_, static_cast<uint64_t>(ranks->rank())) : site_;
  return autograd::dropout(x, {.probability = probability_, .site = site});
}

Tensor Dropout::of_own_features(const Tensor& x, int64_t whole) {
  TensorRanks* ranks = tensor_ranks();
  if (!drops() || ranks == nullptr) return forward(x);
  const auto dropped = [&](const Tensor& of_slice, int slice) {
    const int place = ranks->rank() * ranks->own_slices() + slice;
    return autograd::dropout(of_slice, {.probability = probability_,
                                        .site = combine_bits(site_, static_cast<uint64_t>(place))});
  };
  if (ranks->own_slices() == 1) return dropped(x, 0);
  std::vector<Tensor> parts;
  const auto fixed = ranks->slices_of({whole}, false);
  for (const auto& slice : fixed->slices()) {
    const auto [begin, count] = slice.front();
    const Tensor part = autograd::contiguous(autograd::narrow(x, -1, begin, count));
    parts.push_back(dropped(part, static_cast<int>(parts.size())));
  }
  return autograd::concat(parts, -1);
}

}  // namespace zinc::nn
