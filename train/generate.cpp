#include "train/generate.h"

#include <algorithm>

#include "core/error.h"
#include "train/cached_logits.h"

namespace zinc::train {

std::vector<int32_t> generate(const NextLogits& next_logits, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token) {
  require(!prompt.empty(), "generate: the prompt must have at least one token");
  require(options.max_tokens >= 0,
          "generate: max_tokens must not be negative: ", options.max_tokens);
  require(options.context > 0, "generate: the context must be positive, not ", options.context);
  validate(options.sampling);

  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  const auto prompt_length = static_cast<int64_t>(prompt.size());
  for (int64_t position = 0; position < options.max_tokens; ++position) {
    const auto seen = std::min(static_cast<int64_t>(tokens.size()), options.context);
    const std::span<const int32_t> window(tokens.data() + tokens.size() - seen,
                                          static_cast<size_t>(seen));
    const Tensor logits = next_logits(Tensor::from<int32_t>(window, {1, seen}));
    const std::vector<float> values = logits.to_vector<float>();
    const int32_t token =
        sample_token(values, options.sampling, sampling_key(options.seed, position));
    if (options.stop_token && token == *options.stop_token) break;
    tokens.push_back(token);
    if (on_token) on_token(token);
    if (options.ends && options.ends(std::span(tokens).subspan(prompt.size()))) break;
  }
  return {tokens.begin() + prompt_length, tokens.end()};
}

namespace {

// The encoder reads the prompt; the answer's own tokens are all kept.
std::vector<int32_t> answer(zero::Engine& engine, nn::EncoderDecoderLm& model,
                            std::span<const int32_t> prompt, GenerateOptions options,
                            const std::function<void(int32_t)>& on_token) {
  require(!prompt.empty(), "generate: the prompt must have at least one token");
  const auto length = static_cast<int64_t>(prompt.size());
  if (options.context > 0 && options.context < length) {
    prompt = prompt.last(static_cast<size_t>(options.context));
  }
  options.context = options.max_tokens + 1;
  const std::vector<int32_t> start{static_cast<int32_t>(model.decoder_start_token())};
  return engine.predict([&] {
    const nn::Batch text{
        .tensors = {{"input_ids",
                     Tensor::from<int32_t>(prompt, {1, static_cast<int64_t>(prompt.size())})}}};
    CachedLogits logits(model, text, options.context);
    return generate([&](const Tensor& ids) { return logits(ids); }, start, options, on_token);
  });
}

}  // namespace

std::vector<int32_t> generate(zero::Engine& engine, std::span<const int32_t> prompt,
                              GenerateOptions options,
                              const std::function<void(int32_t)>& on_token) {
  if (auto* model = nn::find_interface<nn::EncoderDecoderLm>(engine.model())) {
    return answer(engine, *model, prompt, std::move(options), on_token);
  }
  auto& model = nn::require_interface<nn::CausalLm>(engine.model(), "generation");
  const int64_t longest = engine.model().max_sequence();
  const int64_t whole = std::ssize(prompt) + options.max_tokens;
  if (options.context == 0) options.context = longest > 0 ? longest : std::max<int64_t>(whole, 1);
  NextLogits logits = [&](const Tensor& ids) { return model.next_logits(ids); };
  std::optional<CachedLogits> cached;
  if (nn::find_interface<nn::CachedCausalLm>(engine.model()) != nullptr) {
    cached.emplace(engine.model(), std::clamp<int64_t>(whole, 1, options.context));
    logits = [&](const Tensor& ids) { return (*cached)(ids); };
  }
  return engine.predict([&] { return generate(logits, prompt, options, on_token); });
}

}  // namespace zinc::train
