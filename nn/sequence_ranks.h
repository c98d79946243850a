// nn/sequence_ranks.h: ranks that have a part each of the tokens of the same sequences (Jacobs et
// al. 2023, "DeepSpeed-Ulysses").
//
// Rank r of S has positions [r T / S, (r + 1) T / S) of every sequence. What works token by token
// needs to know nothing. Attention exchanges: before it, a rank gives its tokens' q, k and v for
// those of all ranks, of H / S of the heads; behind it, it gets its own tokens back, of all heads.
// Every rank has all weights; a loss is the sum over a rank's own tokens.
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

  // x: [B, T / S, W], where W consists of `sections` (q, k and v of a packed row), each of whole
  // heads. Of all tokens, part `rank` of the heads of every section: [B, T, W / S].
  virtual Tensor to_heads(const Tensor& x, const std::vector<int64_t>& sections) = 0;
  // The way back: [B, T, W / S] -> [B, T / S, W]. Each is the other's gradient.
  virtual Tensor to_tokens(const Tensor& x) = 0;
};

// A model that can share the tokens of its sequences.
class SharesSequence {
 public:
  virtual ~SharesSequence() = default;
  // loss() takes whole sequences and gives the sum over this rank's part of the labels; outputs and
  // generation stay whole on every rank. null: no more. `ranks` outlives its use.
  virtual void share_sequence(SequenceRanks* ranks) = 0;
};

// This rank's part of [B, T], contiguous. ConfigError where T does not divide. null: `whole`.
Tensor part_of_sequence(const SequenceRanks* ranks, const Tensor& whole);

// Heads that a rank's attention has, of a layer's; `path` of the layer.
struct LocalHeads {
  int64_t heads = 0, kv_heads = 0;
  int64_t first = 0;  // of the layer's heads

  // The layer's own, of which tensor ranks have a slice each and, of that, sequence ranks a part.
  // ConfigError where sequence ranks cannot share so many.
  static LocalHeads of(std::string_view path, int64_t heads, int64_t kv_heads,
                       const TensorRanks* tensor, const SequenceRanks* sequence);
};

}  // namespace zinc::nn
