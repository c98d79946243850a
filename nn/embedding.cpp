#include "nn/embedding.h"

#include "autograd/ops/embedding.h"
#include "core/error.h"
#include "nn/lora.h"

namespace zinc::nn {

Embedding::Embedding(Module& parent, std::string name, const EmbeddingOptions& options)
    : Module(parent, std::move(name)),
      weight_(*this, "weight", Shape{options.count, options.features}, options.initializer),
      adaptable_(options.adaptable) {
  require(options.count > 0 && options.features > 0, path(),
          ": an embedding needs positive sizes, not ", options.count, " x ", options.features);
}

Embedding::~Embedding() = default;

Tensor Embedding::forward(const Tensor& ids) {
  return adapted(autograd::embedding(ids, weight_), ids);
}

Tensor Embedding::adapted(const Tensor& rows, const Tensor& ids) {
  return adapter_ == nullptr ? rows : adapter_->add_to(rows, ids);
}

}  // namespace zinc::nn
