// nn/sequence_ranks.h: ranks that each have a part of the tokens of the same sequences (Jacobs et
// al. 2023, "DeepSpeed-Ulysses").
//
// Rank r of S has positions [r T / S, (r + 1) T / S) of every sequence. Code that works token by
// token needs no change. Attention exchanges data. Before it, each rank sends the q, k and v of its
// tokens and receives those of all tokens, for H / S of the heads. After it, each rank gets its own
// tokens back, with all heads. Every rank has all weights. A loss is the sum over a rank's own
// tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "nn/batch.h"
#include "nn/tensor_ranks.h"
#include "tensor/tensor.h"

namespace zinc::nn {

class SequenceRanks {
 public:
  virtual ~SequenceRanks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // x: [B, T / S, W]. W consists of `sections` (q, k and v of a packed row), each of whole heads.
  // Returns all tokens with part `rank` of the heads of every section: [B, T, W / S].
  virtual Tensor to_heads(const Tensor& x, const std::vector<int64_t>& sections) = 0;
  // The inverse: [B, T, W / S] -> [B, T / S, W]. Each function is the gradient of the other.
  virtual Tensor to_tokens(const Tensor& x) = 0;
};

// A model that can share the tokens of its sequences.
class SharesSequence {
 public:
  virtual ~SharesSequence() = default;
  // From now on loss() takes whole sequences and gives the sum over this rank's part of the labels.
  // Outputs and generation stay whole on every rank. Null: ends the sharing. `ranks` must outlive
  // its use.
  virtual void share_sequence(SequenceRanks* ranks) = 0;
};

// This rank's part of `whole` [B, T], contiguous. With null ranks: `whole`. Throws ConfigError if T
// cannot be divided.
Tensor part_of_sequence(const SequenceRanks* ranks, const Tensor& whole);

// The heads of a layer that this rank's attention works on.
struct LocalHeads {
  int64_t heads = 0, kv_heads = 0;
  int64_t first = 0;  // the first of them among the layer's heads

  // Tensor ranks each have a slice of the layer's heads; of that slice, sequence ranks each have a
  // part. `path`: of the layer, for messages. Throws ConfigError if sequence ranks cannot share so
  // many heads.
  static LocalHeads of(std::string_view path, int64_t heads, int64_t kv_heads,
                       const TensorRanks* tensor, const SequenceRanks* sequence);
};

}  // namespace zinc::nn
