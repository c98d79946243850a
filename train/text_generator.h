// train/text_generator.h: texts for several prompts at once from a model of any kind that makes
// text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "nn/model.h"
#include "train/cached_logits.h"
#include "train/generate.h"

namespace zinc::train {

class TextGenerator {
 public:
  // Runs `pass`, which calls the model, where the model's parameters are at hand and without
  // gradients: as zero::Engine::predict() does.
  using RunPass = std::function<void(const std::function<void()>& pass)>;

  // For an nn::CachedCausalLm, which keeps keys and values; an nn::EncoderDecoderLm, whose encoder
  // reads the prompts now, in one pass; or another nn::CausalLm, a pass over all of a text for each
  // token. Each prompt has one token or more. `run` may be empty: under NoGrad. `model` has to
  // outlive this. Throws InvalidArgument for another model and an empty prompt, ConfigError for
  // options, and where keys and values of all texts would take more than options.cache_limit;
  // DataError for prompts that are longer than the model where options.context is 0.
  TextGenerator(nn::Model& model, std::vector<std::vector<int32_t>> prompts,
                GenerateOptions options, RunPass run = {});
  TextGenerator(TextGenerator&&) = delete;

  // Texts of each prompt. NumericsError where logits are no numbers.
  std::vector<GeneratedTexts> write(const OnToken& on_token = {});
  // A pass as write() makes them, of no use but to ranks that share the parameters.
  void pass_along();

 private:
  void require_memory(int64_t elements_per_token, int64_t columns, int64_t source_columns) const;
  void choose_source();
  void read_prompts(nn::EncoderDecoderLm& model);
  Tensor next_logits(std::span<const OpenText> texts);

  nn::Model& model_;
  std::vector<std::vector<int32_t>> prompts_;  // of an encoder-decoder's decoder
  GenerateOptions options_;
  RunPass run_;
  NextLogits source_;  // within run_
  std::unique_ptr<CachedLogits> cached_;
};

}  // namespace zinc::train
