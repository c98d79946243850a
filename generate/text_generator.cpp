#include "generate/text_generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/mode.h"
#include "core/error.h"

namespace zinc::generate {
namespace {

int64_t longest_of(const std::vector<std::vector<int32_t>>& prompts) {
  int64_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    longest = std::max(longest, std::ssize(prompt));
  }
  return longest;
}

// Makes a pass for each text, over the whole text.
NextLogits whole_passes(nn::CausalLm& model, const TextGenerator::RunPass& run) {
  return [&model, &run](std::span<const OpenText> texts) {
    std::vector<float> values;
    int64_t vocabulary = 0;
    for (const OpenText& text : texts) {
      Tensor row;
      run([&] {
        row = model.next_logits(Tensor::from<int32_t>(text.tokens, {1, std::ssize(text.tokens)}));
      });
      const std::vector<float> logits = row.to_vector<float>();
      vocabulary = row.dim(1);
      values.insert(values.end(), logits.begin(), logits.end());
    }
    return Tensor::from<float>(values, {std::ssize(texts), vocabulary});
  };
}

// Makes a pass over the new tokens of all texts.
NextLogits cached_passes(CachedLogits& cached, const TextGenerator::RunPass& run) {
  return [&cached, &run](std::span<const OpenText> texts) {
    Tensor logits;
    run([&] { logits = cached(texts); });
    return logits;
  };
}

// A batch of the texts, padded behind their ends.
nn::Batch batch_of_texts(const std::vector<std::vector<int32_t>>& texts) {
  const int64_t T = longest_of(texts), B = std::ssize(texts);
  std::vector<int32_t> ids, lengths;
  for (const std::vector<int32_t>& text : texts) {
    ids.insert(ids.end(), text.begin(), text.end());
    ids.insert(ids.end(), static_cast<size_t>(T) - text.size(), text.back());
    lengths.push_back(static_cast<int32_t>(text.size()));
  }
  nn::Batch batch{.tensors = {{"input_ids", Tensor::from<int32_t>(ids, {B, T})}}};
  if (std::ranges::any_of(lengths, [&](int32_t length) { return length < T; })) {
    batch.tensors.set("lengths", Tensor::from<int32_t>(lengths, {B}));
  }
  return batch;
}

// Refuses infinite logits too: a model whose weights are whole has none.
void require_numbers(const Tensor& logits) {
  bool are_numbers = true;
  for (const float value : logits.to_vector<float>()) are_numbers &= std::isfinite(value);
  if (are_numbers) return;
  throw NumericsError(
      "the model's logits are no numbers: its weights are damaged, or too large for their type "
      "(--dtype f32 has the widest range)");
}

}  // namespace

TextGenerator::TextGenerator(nn::Model& model, std::vector<std::vector<int32_t>> prompts,
                             GenerateOptions options, RunPass run)
    : model_(model),
      prompts_(std::move(prompts)),
      options_(std::move(options)),
      run_(std::move(run)) {
  validate(options_);
  require(!prompts_.empty(), "generate: there are no prompts");
  for (const std::vector<int32_t>& prompt : prompts_) {
    require(!prompt.empty(), "generate: the prompt must have at least one token");
  }
  if (!run_) {
    run_ = [](const std::function<void()>& pass) {
      const autograd::NoGrad no_grad;
      pass();
    };
  }
  const int64_t positions = model_.max_sequence();
  if (options_.context == 0 && positions > 0 && longest_of(prompts_) > positions) {
    throw DataError(str("generate: a prompt of ", longest_of(prompts_),
                        " tokens is longer than the model's ", positions,
                        " positions; shorten it, or set the context (--context ", positions,
                        "): the model sees that many of the last tokens then"));
  }
  choose_source();
}

void TextGenerator::choose_source() {
  if (auto* encoder_decoder = nn::find_interface<nn::EncoderDecoderLm>(model_)) {
    return read_prompts(*encoder_decoder);
  }
  auto& model = nn::require_interface<nn::CausalLm>(model_, "generation");
  const int64_t positions = model_.max_sequence();
  const int64_t whole = std::max<int64_t>(1, longest_of(prompts_) + options_.max_tokens);
  if (options_.context == 0) options_.context = positions > 0 ? positions : whole;
  auto* cached = nn::find_interface<nn::CachedCausalLm>(model_);
  if (cached == nullptr) {
    source_ = whole_passes(model, run_);
    return;
  }
  const int64_t columns = std::min(whole, options_.context);
  require_memory(cached->cached_elements_per_token(), columns, 0);
  cached_ = std::make_unique<CachedLogits>(model_, columns);
  source_ = cached_passes(*cached_, run_);
}

// Called before anything is computed. Counts in f64: the product of absurd counts has no room in 64
// bits.
void TextGenerator::require_memory(int64_t elements_per_token, int64_t columns,
                                   int64_t source_columns) const {
  if (options_.cache_limit == 0) return;
  const int64_t texts = std::max(options_.beams.num_beams, options_.num_return_sequences);
  const DType dtype = model_.named_parameters().front().second->dtype();
  const double bytes = static_cast<double>(texts) * static_cast<double>(prompts_.size()) *
                       static_cast<double>(columns + source_columns) *
                       static_cast<double>(elements_per_token) *
                       static_cast<double>(size_of(dtype));
  if (bytes <= static_cast<double>(options_.cache_limit)) return;
  throw ConfigError(str("generate: keys and values of ", prompts_.size(), " prompts x ", texts,
                        " texts x ", columns + source_columns, " tokens take ",
                        std::round(bytes / 1e6), " MB, and there are ",
                        options_.cache_limit / 1000000,
                        " MB: fewer beams or texts, a smaller batch, or a shorter context"));
}

void TextGenerator::read_prompts(nn::EncoderDecoderLm& model) {
  if (options_.context > 0) {
    for (std::vector<int32_t>& prompt : prompts_) {
      const int64_t unseen = std::ssize(prompt) - options_.context;
      if (unseen > 0) prompt.erase(prompt.begin(), prompt.begin() + unseen);
    }
  }
  options_.context = options_.max_tokens + 1;
  require_memory(model.cached_elements_per_token(), options_.context, longest_of(prompts_));
  const nn::Batch batch = batch_of_texts(prompts_);
  run_([&] { cached_ = std::make_unique<CachedLogits>(model, batch, options_.context); });
  source_ = cached_passes(*cached_, run_);
  const auto start = static_cast<int32_t>(model.decoder_start_token());
  prompts_.assign(prompts_.size(), {start});
}

Tensor TextGenerator::next_logits(std::span<const OpenText> texts) {
  Tensor logits = source_(texts);
  require_numbers(logits);
  return logits;
}

std::vector<GeneratedTexts> TextGenerator::write(const OnToken& on_token) {
  return generate_tokens([&](std::span<const OpenText> texts) { return next_logits(texts); },
                         prompts_, options_, on_token);
}

void TextGenerator::pass_along() {
  const OpenText text{.tokens = std::span(prompts_.front()).first(1), .parent = 0};
  source_({&text, 1});
}

}  // namespace zinc::generate
