// nn/sequence_ranks.h: ranks that each have a part of the tokens of the same sequences.
//
// Code that works token by token needs no change. Every rank has all weights. A loss is the sum
// over a rank's own tokens. Attention exchanges data, in one of three ways:
//
// - heads (Jacobs et al. 2023, "DeepSpeed-Ulysses"). Rank r of S has positions [r T / S,
//   (r + 1) T / S). Before attention, each rank sends the q, k and v of its tokens and receives
//   those of all tokens, for H / S of the heads. After it, each rank gets its own tokens back, with
//   all heads.
// - keys (as Dubey et al. 2024, "The Llama 3 Herd of Models", 3.3.2, call context parallelism). A
//   sequence has 2 S chunks; rank r has chunks r and 2 S - 1 - r, so that all ranks have equally
//   many pairs of a query and an earlier key. Each rank gets k and v of all tokens, and keeps its
//   queries. The heads need not be divided.
// - ring (Liu et al. 2023, "Ring Attention"). The same chunks and queries. The k and v of a rank go
//   from rank to rank: no rank ever has k and v of all tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "autograd/ops/attention.h"
#include "nn/batch.h"
#include "nn/tensor_ranks.h"
#include "tensor/tensor.h"

namespace zinc::nn {

enum class SequenceExchange : uint8_t { heads, keys, ring };
std::string_view name_of(SequenceExchange value);  // "heads", "keys", "ring"
// Whether each rank keeps its queries, from two chunks of a sequence, with all heads.
constexpr bool keeps_queries(SequenceExchange what) { return what != SequenceExchange::heads; }
// Equal parts into which a sequence is cut: the number of its tokens must be a multiple.
constexpr int64_t parts_of_sequence(SequenceExchange what, int64_t ranks) {
  return keeps_queries(what) ? 2 * ranks : ranks;
}

class SequenceRanks {
 public:
  virtual ~SequenceRanks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual SequenceExchange exchange() const = 0;

  // x: [B, T / S, W]. W consists of `sections` (q, k and v of a packed row), each of whole heads.
  // Returns all tokens with part `rank` of the heads of every section: [B, T, W / S].
  virtual Tensor to_heads(const Tensor& x, const std::vector<int64_t>& sections) = 0;
  // The inverse: [B, T, W / S] -> [B, T / S, W]. Each function is the gradient of the other.
  virtual Tensor to_tokens(const Tensor& x) = 0;
  // x: [B, T / S, W], for this rank's tokens. Returns x for all tokens, in their order: [B, T, W].
  // Backward sums the gradients that all ranks have for a token, in f32 over a fixed tree.
  virtual Tensor of_all_tokens(const Tensor& x) = 0;
  // attend_to_all() for SequenceExchange::ring.
  virtual Tensor attend_in_ring(const Tensor& q, const Tensor& k_and_v,
                                const autograd::AttentionOptions& how) = 0;
};

// Positions [begin, begin + count) of a sequence.
struct TokenRun {
  int64_t begin = 0, count = 0;
};
// The runs of rank `rank` in a sequence of T tokens, in the order in which the rank has them.
// Throws ConfigError if T cannot be divided.
std::vector<TokenRun> token_runs(const SequenceRanks& ranks, int rank, int64_t T);
// [B, T / S] i32: the positions of this rank's tokens.
Tensor own_positions(const SequenceRanks& ranks, int64_t B, int64_t T);

// Causal attention of this rank's queries to the keys of all tokens before them, where ranks keep
// their queries. q: [B, T / S, H D]; k_and_v: [B, T / S, 2 G D], for this rank's tokens. `how`: for
// whole sequences.
Tensor attend_to_all(SequenceRanks& ranks, const Tensor& q, const Tensor& k_and_v,
                     const autograd::AttentionOptions& how);

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
  int64_t first = 0;  // the first of these heads among the layer's

  // Tensor ranks each have a slice of the layer's heads; of that slice, sequence ranks that
  // exchange heads each have a part. `path`: of the layer, for messages. Throws ConfigError if
  // sequence ranks cannot share so many heads.
  static LocalHeads of(std::string_view path, int64_t heads, int64_t kv_heads,
                       const TensorRanks* tensor, const SequenceRanks* sequence);
};

}  // namespace zinc::nn
