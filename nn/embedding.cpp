#include "nn/embedding.h"

#include "autograd/ops/embedding.h"
#include "core/error.h"

namespace zinc::nn {

Embedding::Embedding(Module& parent, std::string name, const EmbeddingOptions& options)
    : Module(parent, std::move(name)),
      weight_(*this, "weight", Shape{options.count, options.features}, options.initializer) {
  require(options.count > 0 && options.features > 0, path(),
          ": an embedding needs positive sizes, not ", options.count, " x ", options.features);
}

Tensor Embedding::forward(const Tensor& ids) { return autograd::embedding(ids, weight_); }

}  // namespace zinc::nn
