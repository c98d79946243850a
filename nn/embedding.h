// nn/embedding.h: a row of a table for every id.
#pragma once

#include <memory>

#include "nn/buffer.h"
#include "nn/module.h"

namespace zinc::nn {

struct EmbeddingOptions {
  int64_t count = 0;     // rows: ids are in [0, count)
  int64_t features = 0;  // C
  autograd::Initializer initializer = autograd::Initializer::normal(1.0);
  // True: the layer may have an adapter. Then all rows come from forward() or go through adapted().
  bool adaptable = false;
  // True: ranks that share the model each hold a part of the rows: nn/tensor_ranks.h.
  bool sliced = false;
};

class EmbeddingAdapter;  // nn/lora.h

// Parameter "weight" [count, features].
class Embedding : public Module {
 public:
  Embedding(Module& parent, std::string name, const EmbeddingOptions& options);
  ~Embedding() override;
  // [...] i32 | i64 -> [..., features]. ignored_id: tokens with it add nothing to the gradient; -1:
  // none.
  Tensor forward(const Tensor& ids, int64_t ignored_id = -1);
  // For rows of the table that another op has read: adds the adapter's part.
  Tensor adapted(const Tensor& rows, const Tensor& ids);  // [..., features], [...]

  Parameter& weight() { return weight_; }  // the table, without the adapter's part
  // Whether tensor ranks each hold a part of the rows.
  bool is_sliced() const { return sliced_ && tensor_ranks() != nullptr; }
  bool is_adaptable() const { return adaptable_; }
  EmbeddingAdapter* adapter() { return adapter_.get(); }  // null: none

 protected:
  void on_share() override;

 private:
  Tensor rows_of_slice(const Tensor& ids, int64_t ignored_id);

  Parameter weight_;
  bool adaptable_;
  bool sliced_;
  Buffer places_;  // by id: its row on this rank, or -1

  friend class EmbeddingAdapter;
  std::unique_ptr<EmbeddingAdapter> adapter_;
};

}  // namespace zinc::nn
