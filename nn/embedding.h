// nn/embedding.h: a row of a table for every id.
#pragma once

#include "nn/module.h"

namespace zinc::nn {

struct EmbeddingOptions {
  int64_t count = 0;     // rows: ids are in [0, count)
  int64_t features = 0;  // C
  autograd::Initializer initializer = autograd::Initializer::normal(1.0);
};

// Parameter "weight" [count, features].
class Embedding : public Module {
 public:
  Embedding(Module& parent, std::string name, const EmbeddingOptions& options);
  Tensor forward(const Tensor& ids);  // [...] i32 | i64 -> [..., features]

  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
};

}  // namespace zinc::nn
