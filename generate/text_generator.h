// generate/text_generator.h: writes texts for several prompts at once, with any kind of model that
// makes text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "generate/cached_logits.h"
#include "generate/generate.h"
#include "nn/model.h"

namespace zinc::generate {

class TextGenerator {
 public:
  // Runs `pass`, which calls the model, with the model's parameters available and without
  // gradients, as zero::Engine::predict() does.
  using RunPass = std::function<void(const std::function<void()>& pass)>;

  // The cost of a new token depends on the model:
  // - nn::CachedCausalLm: a pass over the new tokens; keys and values are kept.
  // - nn::EncoderDecoderLm: likewise; the encoder reads the prompts in the constructor, in one
  //   pass.
  // - any other nn::CausalLm: a pass over the whole text, one text after the other.
  //
  // Each prompt has one or more tokens. `run` may be empty: passes then run under NoGrad. `model`
  // must outlive this. Throws InvalidArgument for any other model and for an empty prompt. Throws
  // ConfigError for bad options, and if keys and values of all texts would exceed
  // options.cache_limit. Throws a DataError for a prompt longer than the model allows, if
  // options.context is 0.
  TextGenerator(nn::Model& model, std::vector<std::vector<int32_t>> prompts,
                GenerateOptions options, RunPass run = {});
  TextGenerator(TextGenerator&&) = delete;

  // Writes the texts of each prompt. Throws NumericsError if logits are not numbers.
  std::vector<GeneratedTexts> write(const OnToken& on_token = {});
  // Makes one pass as write() does, and drops its result: for a rank that takes part because it
  // holds a share of the parameters.
  void pass_along();

 private:
  void require_memory(int64_t elements_per_token, int64_t columns, int64_t source_columns) const;
  void choose_source();
  void read_prompts(nn::EncoderDecoderLm& model);
  Tensor next_logits(std::span<const OpenText> texts);

  nn::Model& model_;
  std::vector<std::vector<int32_t>> prompts_;  // encoder-decoder: prompts of the decoder
  GenerateOptions options_;
  RunPass run_;
  NextLogits source_;  // by passes of run_
  std::unique_ptr<CachedLogits> cached_;
};

}  // namespace zinc::generate
