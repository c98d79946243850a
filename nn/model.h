// nn/model.h: a whole model: what training asks of it, and what else it may offer.
//
//   struct MyModel : zinc::nn::Model {
//     ... layers
//     zinc::Tensor loss(const zinc::Batch& batch) override;
//   };
//
// That is enough to train it. The interfaces below add what it can do beside: a model derives from
// those that it has, and a command that needs another one says so.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "nn/batch.h"
#include "nn/module.h"
#include "tensor/tensor.h"

namespace zinc::nn {

class KvCache;
class Linear;

class Model : public Module {
 public:
  // The sum of the losses of a batch's targets (natural logarithm), f32 scalar, differentiable.
  // Labels of kIgnoredLabel add nothing. Never divided: the engine applies one factor at the step.
  virtual Tensor loss(const Batch& batch) = 0;

  // A batch of the shapes that the model trains on, of at most `sequences` x `positions`: an engine
  // records the model with it before the first step, on a device without memory. positions is 0
  // where neither the model nor the configuration says how many there may be. Tokens and labels;
  // a model that reads more of a batch, or something else, overrides it.
  virtual Batch example(int64_t sequences, int64_t positions) const;

  // --- facts, where there are any
  virtual std::string_view model_type() const {
    return "model";
  }                                                   // as in Hugging Face's config.json
  virtual int64_t vocab_size() const { return 0; }    // token ids lie below; 0: takes no tokens
  virtual int64_t max_sequence() const { return 0; }  // longest T; 0: the model has no limit
  // Floating-point operations of forward and backward per token, recomputation left out:
  // 6 per weight that is multiplied with every token, plus attention's 12 L H D T, or half of it
  // where causal. A lookup in an embedding is no multiplication. Unless overridden 6 per parameter.
  virtual double flops_per_token(int64_t sequence);
  // The layer that gives the logits of a vocabulary, if it is one by itself: "all-linear"
  // (nn/lora.h) leaves it out.
  virtual Linear* logits_layer() { return nullptr; }
  // What a user should know who runs the model in this dtype, a line without an end; empty:
  // nothing.
  virtual std::string_view note_on(DType) const { return {}; }

  // Drops the activations of every `every` blocks in forward and computes them again in backward;
  // 0: keeps them all. Only of the first `most` blocks, where that is given: the activations of the
  // later ones are the first that backward gives back. A Staged model needs to do nothing for it.
  void set_recompute_every(int64_t every, std::optional<int64_t> most = {});
  int64_t recompute_every() const { return recompute_every_; }
  int64_t most_recomputed() const { return most_recomputed_; }
  // Transformer blocks: what recomputation counts, and by default what is sharded together.
  int64_t num_blocks();

 private:
  int64_t recompute_every_ = 0;
  int64_t most_recomputed_ = std::numeric_limits<int64_t>::max();
};

// A model that says what it computes, not only how wrong it is.
class HasOutputs {
 public:
  virtual ~HasOutputs() = default;
  // "logits" ([B, T, V] of tokens, [B, classes] of a classifier), "hidden" [B, T, C] (the last
  // hidden state), "pooled" [B, C], as far as the model has them. The labels are not looked at, but
  // where a decoder's input is made of them.
  virtual NamedTensors outputs(const Batch& batch) = 0;
};

// A decoder that goes on with a text, token by token.
class CausalLm {
 public:
  virtual ~CausalLm() = default;
  // ids [B, T] i32 -> logits [B, V] of the position after the last token, float.
  virtual Tensor next_logits(const Tensor& ids) = 0;
};

// One that keeps keys and values from token to token.
class CachedCausalLm : public CausalLm {
 public:
  using CausalLm::next_logits;
  // The same after the tokens that the cache has seen, which ids [B, T] go on from; the cache has
  // seen them too then. Without gradients.
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache) = 0;
  // Elements of keys and values that a token adds to the cache, in all layers.
  virtual int64_t cached_elements_per_token() const = 0;
};

// An encoder and a decoder that answers the texts which the encoder has read, token by token. What
// generates holds a cache for either kind of model: once encode() has filled it, next_logits() is
// asked as a CachedCausalLm's is.
class EncoderDecoderLm {
 public:
  virtual ~EncoderDecoderLm() = default;
  // Reads the batch's "input_ids" [B, T], with "lengths", and keeps in the cache what the decoder's
  // layers attend to; of the answers it has seen nothing then. Without gradients.
  virtual void encode(const Batch& batch, KvCache& cache) = 0;
  // ids [B, U] i32 of the answers, which go on from the tokens that the cache has seen: logits [B,
  // V] of the position after the last, f32. An answer begins with decoder_start_token().
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache) = 0;
  virtual int64_t decoder_start_token() const = 0;
  // Elements of keys and values that a token of an answer adds to the cache, in all layers; a token
  // of the text has as many there.
  virtual int64_t cached_elements_per_token() const = 0;
};

using TensorList = std::vector<Tensor>;

// A model whose forward pass is a row of stages, for passes that take several batches side by side,
// layer by layer, and for ranks that have some of the stages each. nn/stages.h runs them.
class Staged {
 public:
  virtual ~Staged() = default;
  // Two or more; the same in every pass.
  virtual int64_t num_stages() = 0;
  // Stage 0 takes an empty list, every other one what the stage before gave for the batch, and the
  // last gives the loss alone. All that a later stage needs of an earlier one is in the list, or in
  // the batch.
  virtual TensorList stage(int64_t index, const Batch& batch, TensorList x) = 0;
  // Whether the stage is a transformer block, which recomputation may compute twice. Unless
  // overridden all are but the first and the last.
  virtual bool is_block(int64_t index) { return 0 < index && index + 1 < num_stages(); }
};

// The interface, or null where the model does not have it.
template <class Interface>
Interface* find_interface(Model& model) {
  return dynamic_cast<Interface*>(&model);
}

namespace detail {
[[noreturn]] void throw_without(const Model& model, std::string_view needs, const char* interface);
template <class Interface>
inline constexpr const char* kInterfaceName = nullptr;
template <>
inline constexpr const char* kInterfaceName<HasOutputs> = "zinc::nn::HasOutputs";
template <>
inline constexpr const char* kInterfaceName<CausalLm> = "zinc::nn::CausalLm";
template <>
inline constexpr const char* kInterfaceName<CachedCausalLm> = "zinc::nn::CachedCausalLm";
template <>
inline constexpr const char* kInterfaceName<EncoderDecoderLm> = "zinc::nn::EncoderDecoderLm";
template <>
inline constexpr const char* kInterfaceName<Staged> = "zinc::nn::Staged";
}  // namespace detail

// Throws InvalidArgument where the model does not have it. `needs`: what asks, as in "generation".
template <class Interface>
Interface& require_interface(Model& model, std::string_view needs) {
  static_assert(detail::kInterfaceName<Interface> != nullptr, "an interface of nn/model.h");
  if (auto* found = dynamic_cast<Interface*>(&model)) return *found;
  detail::throw_without(model, needs, detail::kInterfaceName<Interface>);
}

}  // namespace zinc::nn
