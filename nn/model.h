// nn/model.h: what an engine, a trainer and a generator need of a whole model.
#pragma once

#include <cstdint>
#include <string_view>

#include "nn/batch.h"
#include "nn/module.h"
#include "tensor/tensor.h"

namespace zinc::nn {

class KvCache;

class Model : public Module {
 public:
  // The sum of the token losses of a batch (natural logarithm), f32 scalar, differentiable. Labels
  // of kIgnoredLabel add nothing. Never divided: the engine applies one factor at the step.
  virtual Tensor loss(const Batch& batch) = 0;

  // A batch of the shapes that the model trains on, of at most `sequences` x `positions`: an engine
  // records the model with it before the first step, on a device without memory. Tokens and labels;
  // a model that reads more of a batch overrides it.
  virtual Batch example(int64_t sequences, int64_t positions) const;

  // loss() in stages, for passes that take several batches side by side, layer by layer. Stage 0
  // takes an undefined x, every other one what the stage before gave for the batch; the last gives
  // the loss. 1: the model does not say its stages, and the one is loss().
  virtual int64_t num_stages() { return 1; }
  virtual Tensor stage(int64_t index, const Batch& batch, Tensor x);

  // ids [B, T] i32 -> logits [B, V] of the position after the last token, f32. For generation.
  virtual Tensor next_logits(const Tensor& ids) = 0;

  // The same after the tokens that the cache has seen, which ids [B, T] go on from; the cache has
  // seen them too then. Without gradients. Throws InvalidArgument for models without it.
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache);

  virtual std::string_view architecture() const = 0;  // "gpt2", "llama": Hugging Face's model_type
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_sequence() const = 0;  // longest T

  // Floating-point operations of forward and backward per token, recomputation left out:
  // 6 per weight that is multiplied with every token, plus attention's 6 L H D T where causal
  // (half of the full 12 L H D T). A lookup in an embedding is no multiplication.
  virtual double flops_per_token(int64_t sequence) = 0;

  // Drops the activations of every `every` blocks in forward and computes them again in backward;
  // 0: keeps them all.
  void set_recompute_every(int64_t every);
  int64_t recompute_every() const { return recompute_every_; }
  // Transformer blocks: what recomputation counts, and by default what is sharded together.
  int64_t num_blocks();

 protected:
  // loss() of a model that says its stages.
  Tensor loss_of_stages(const Batch& batch);

 private:
  int64_t recompute_every_ = 0;
};

}  // namespace zinc::nn
