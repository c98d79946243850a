#include "nn/dropout.h"

#include "autograd/ops/dropout.h"
#include "core/error.h"
#include "core/philox.h"

namespace zinc::nn {

Dropout::Dropout(Module& parent, std::string name, double probability)
    : Module(parent, std::move(name)), probability_(probability), site_(hash_text(path())) {
  require(probability >= 0.0 && probability < 1.0, path(),
          ": a dropout probability must be in [0, 1), not ", probability);
}

Tensor Dropout::forward(const Tensor& x) {
  if (!is_training() || probability_ == 0.0) return x;
  return autograd::dropout(x, {.probability = probability_, .site = site_});
}

}  // namespace zinc::nn
