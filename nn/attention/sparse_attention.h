// nn/attention/sparse_attention.h: layouts of blocks for the attention of a model, those of
// DeepSpeed's Sparse Attention (its modes, keys and defaults).
//
// A sequence of n blocks of `block` positions has a layout [n, n] for each head: which blocks of
// keys the queries of a block see. Attention costs time and memory for the blocks that are seen.
// A layer that is causal hides later positions also where a layout shows them.
//
//   zinc::nn::use_sparse_attention(model, {.mode = zinc::nn::SparsityMode::bigbird, .block = 64},
//                                  {.tokens = 4096, .seed = 1});
#pragma once

#include <cstdint>
#include <memory>

#include "core/block_layout.h"
#include "nn/attention/sparsity_config.h"
#include "nn/buffer.h"
#include "nn/module.h"
#include "tensor/tensor.h"

namespace zinc::nn {

struct LayoutExtent {
  int64_t heads = 1;
  int64_t tokens = 0;  // of the longest sequence, a multiple of the block
  // Of random blocks. They depend on seed, site, head and row alone.
  uint64_t seed = 0;
  uint64_t site = 0;  // hash_text() of a layer's path, as each layer draws its own
};
// The layout, of one head where all heads see the same. Throws ConfigError with every problem, for
// tokens that are no multiple of the block, and for a sequence that has too few blocks.
BlockLayoutPtr make_layout(const SparsityConfig& config, const LayoutExtent& extent);

// A layout that layers share, and its words in the memory of each device that asks.
class AttentionLayout {
 public:
  explicit AttentionLayout(BlockLayoutPtr blocks);
  const BlockLayoutPtr& blocks() const { return blocks_; }
  // On the current context's device; undefined on a CPU.
  Tensor words();

 private:
  BlockLayoutPtr blocks_;
  Buffer words_;
};

// From now on every attention of the model over its own tokens has a layout of the configuration,
// for sequences of up to `tokens` (shorter ones take its upper left part). extent.heads and .site
// are those of each layer. Attention to another text sees all of it. Throws as make_layout() does.
void use_sparse_attention(Module& model, const SparsityConfig& config, const LayoutExtent& extent);
// Every query sees all keys again.
void use_dense_attention(Module& model);
// Whether a layer hides by its causality what the configuration shows.
bool hides_part_of(Module& model, const SparsityConfig& config);
// What Model::flops_per_token() counts of attention and the model's layouts hide, for sequences of
// so many positions: 12 operations for each hidden pair of positions and feature of the heads.
double hidden_flops_per_token(Module& model, int64_t sequence);

}  // namespace zinc::nn
