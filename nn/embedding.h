// nn/embedding.h: a row of a table for every id.
#pragma once

#include <memory>

#include "nn/module.h"

namespace zinc::nn {

struct EmbeddingOptions {
  int64_t count = 0;     // rows: ids are in [0, count)
  int64_t features = 0;  // C
  autograd::Initializer initializer = autograd::Initializer::normal(1.0);
  // Whether it may have an adapter: its rows are taken by forward(), or go through adapted().
  bool adaptable = false;
};

class EmbeddingAdapter;  // nn/lora.h

// Parameter "weight" [count, features].
class Embedding : public Module {
 public:
  Embedding(Module& parent, std::string name, const EmbeddingOptions& options);
  ~Embedding() override;
  Tensor forward(const Tensor& ids);  // [...] i32 | i64 -> [..., features]
  // Rows of the table that were taken by another op, with what an adapter adds to them.
  Tensor adapted(const Tensor& rows, const Tensor& ids);  // [..., features], [...]

  Parameter& weight() { return weight_; }  // without an adapter
  bool is_adaptable() const { return adaptable_; }
  EmbeddingAdapter* adapter() { return adapter_.get(); }  // null: none

 private:
  Parameter weight_;
  bool adaptable_;

  friend class EmbeddingAdapter;
  std::unique_ptr<EmbeddingAdapter> adapter_;
};

}  // namespace zinc::nn
