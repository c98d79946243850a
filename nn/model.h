// nn/model.h: a whole model: the interface that training needs, and further interfaces that a model
// may have.
//
//   struct MyModel : zinc::nn::Model {
//     ... layers
//     zinc::Tensor loss(const zinc::Batch& batch) override;
//   };
//
// This is enough to train a model. The other interfaces in this file add abilities. A model derives
// from the interfaces that it has. A command that needs another interface names it.
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

  // A batch of the shapes that the model trains on, at most `sequences` x `positions`. An engine
  // records the model with this batch before the first step, on a device without memory.
  // `positions` is 0 if neither the model nor the configuration limits it. Gives tokens and labels;
  // override it for a model that reads other tensors.
  virtual Batch example(int64_t sequences, int64_t positions) const;

  // The field "model_type" of Hugging Face's config.json.
  virtual std::string_view model_type() const { return "model"; }
  virtual int64_t vocab_size() const { return 0; }    // token ids lie below; 0: takes no tokens
  virtual int64_t max_sequence() const { return 0; }  // longest T; 0: the model has no limit
  // Floating-point operations of forward and backward per token, without recomputation: 6 per
  // weight that is multiplied with every token, plus attention's 12 L H D T, or half of that if
  // causal. An embedding lookup is no multiplication. Default: 6 per parameter.
  virtual double flops_per_token(int64_t sequence);
  // The layer that gives the logits of a vocabulary, if there is one: "all-linear" (nn/lora.h)
  // leaves it out.
  virtual Linear* logits_layer() { return nullptr; }
  // A note for a user who runs the model in this dtype: one line without a line end. Empty:
  // nothing.
  virtual std::string_view note_on(DType) const { return {}; }

  // Recomputation: forward drops the activations inside each segment of `every` blocks, and
  // backward computes them again. 0: keeps all activations. `most`: only the first `most` blocks
  // are recomputed, because backward frees the activations of later blocks first. A Staged model
  // needs no code for this.
  void set_recompute_every(int64_t every, std::optional<int64_t> most = {});
  int64_t recompute_every() const { return recompute_every_; }
  int64_t most_recomputed() const { return most_recomputed_; }
  // The number of transformer blocks, the unit of recomputation and by default of sharding.
  int64_t num_blocks();

 private:
  int64_t recompute_every_ = 0;
  int64_t most_recomputed_ = std::numeric_limits<int64_t>::max();
};

// A model that gives its outputs, not only its loss.
class HasOutputs {
 public:
  virtual ~HasOutputs() = default;
  // The outputs that the model has: "logits" ([B, T, V] for tokens, [B, classes] for a classifier),
  // "hidden" [B, T, C] (the last hidden state), "pooled" [B, C]. Labels are read only if a
  // decoder's input is made of them.
  virtual NamedTensors outputs(const Batch& batch) = 0;
};

// A decoder that continues a text token by token.
class CausalLm {
 public:
  virtual ~CausalLm() = default;
  // ids [B, T] i32 -> logits [B, V] of the position after the last token, float.
  virtual Tensor next_logits(const Tensor& ids) = 0;
};

// A decoder that keeps keys and values from token to token.
class CachedCausalLm : public CausalLm {
 public:
  using CausalLm::next_logits;
  // The same for ids [B, T] that follow the tokens in the cache. Adds ids to the cache. Without
  // gradients.
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache) = 0;
  // Elements of keys and values that a token adds to the cache, in all layers.
  virtual int64_t cached_elements_per_token() const = 0;
};

// An encoder that reads texts, and a decoder that writes an answer to each, token by token. After
// encode() has filled the cache, next_logits() is used as that of a CachedCausalLm.
class EncoderDecoderLm {
 public:
  virtual ~EncoderDecoderLm() = default;
  // Reads the batch's "input_ids" [B, T], with "lengths", and keeps in the cache what the decoder's
  // layers attend to. The cache has no tokens of the answers then. Without gradients.
  virtual void encode(const Batch& batch, KvCache& cache) = 0;
  // ids [B, U] i32: tokens of the answers that follow those in the cache. Returns logits [B, V] f32
  // of the position after the last. An answer begins with decoder_start_token().
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache) = 0;
  virtual int64_t decoder_start_token() const = 0;
  // Elements of keys and values that a token of an answer adds to the cache, in all layers. A token
  // of the source text takes as many.
  virtual int64_t cached_elements_per_token() const = 0;
};

using TensorList = std::vector<Tensor>;

// A model whose forward pass is a sequence of stages. Needed for passes that take several batches
// side by side, layer by layer, and for ranks that each have some of the stages. nn/stages.h runs
// the stages.
class Staged {
 public:
  virtual ~Staged() = default;
  // The number of stages: two or more, the same in every pass.
  virtual int64_t num_stages() = 0;
  // Runs one stage. x: empty for stage 0, otherwise the output of the stage before for this batch.
  // The last stage gives the loss alone. A stage takes all that it needs from x and from the batch.
  virtual TensorList stage(int64_t index, const Batch& batch, TensorList x) = 0;
  // True for a transformer block, which may be recomputed. Default: all stages but the first and
  // the last.
  virtual bool is_block(int64_t index) { return 0 < index && index + 1 < num_stages(); }
};

// The model's interface, or null if it has none of this kind.
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

// Throws InvalidArgument if the model does not have the interface. `needs`: the caller's purpose,
// for the message: "generation".
template <class Interface>
Interface& require_interface(Model& model, std::string_view needs) {
  static_assert(detail::kInterfaceName<Interface> != nullptr, "an interface of nn/model.h");
  if (auto* found = dynamic_cast<Interface*>(&model)) return *found;
  detail::throw_without(model, needs, detail::kInterfaceName<Interface>);
}

}  // namespace zinc::nn
