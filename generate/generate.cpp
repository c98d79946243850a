#include "generate/generate.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/parallel.h"
#include "generate/beam_search.h"
#include "generate/text_generator.h"

namespace zinc::generate {
namespace {

// One of the texts of a prompt.
struct Drawn {
  int64_t prompt = 0;
  int64_t sequence = 0;         // index among the prompt's texts
  std::vector<int32_t> tokens;  // the prompt's too
  int64_t row = 0;              // in the last call
};

std::span<const int32_t> window_of(const std::vector<int32_t>& tokens, int64_t context) {
  const auto seen = std::min(std::ssize(tokens), context);
  return std::span(tokens).last(static_cast<size_t>(seen));
}

// Greedy where the temperature is 0.
std::vector<GeneratedTexts> draw_texts(const NextLogits& next_logits,
                                       std::span<const std::vector<int32_t>> prompts,
                                       const GenerateOptions& options, const OnToken& on_token) {
  std::vector<GeneratedTexts> texts(
      prompts.size(), GeneratedTexts(static_cast<size_t>(options.num_return_sequences)));
  std::vector<Drawn> open;
  std::vector<OpenText> asked;
  for (int64_t p = 0; p < std::ssize(prompts); ++p) {
    const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(p)];
    asked.push_back({.tokens = window_of(prompt, options.context), .parent = p});
    for (int64_t s = 0; s < options.num_return_sequences; ++s) open.push_back({p, s, prompt, p});
  }
  for (int64_t position = 0; position < options.max_tokens && !open.empty(); ++position) {
    const Tensor logits = next_logits(asked);
    const std::vector<float> values = logits.to_vector<float>();
    const auto vocabulary = static_cast<size_t>(logits.dim(1));
    std::vector<int32_t> tokens(open.size());
    parallel_for(std::ssize(open), 1, [&](int64_t i, int64_t) {
      const Drawn& text = open[static_cast<size_t>(i)];
      tokens[static_cast<size_t>(i)] = sample_token(
          std::span(values).subspan(static_cast<size_t>(text.row) * vocabulary, vocabulary),
          text.tokens, options.sampling,
          sampling_key(options.seed + static_cast<uint64_t>(text.prompt), position, text.sequence));
    });
    std::vector<Drawn> going_on;
    for (size_t i = 0; i < open.size(); ++i) {
      Drawn& text = open[i];
      const int32_t token = tokens[i];
      const auto prompt = static_cast<size_t>(text.prompt);
      GeneratedText& made = texts[prompt][static_cast<size_t>(text.sequence)];
      made.stopped = std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end();
      if (made.stopped) continue;
      made.tokens.push_back(token);
      if (on_token && text.sequence == 0) on_token(text.prompt, token);
      made.stopped = options.ends && options.ends(made.tokens);
      if (made.stopped) continue;
      text.tokens.push_back(token);
      going_on.push_back(std::move(text));
    }
    open = std::move(going_on);
    asked.clear();
    for (Drawn& text : open) {
      asked.push_back({.tokens = window_of(text.tokens, options.context), .parent = text.row});
      text.row = std::ssize(asked) - 1;
    }
  }
  return texts;
}

}  // namespace

void validate(const GenerateOptions& options) {
  const auto check = [](bool condition, std::string_view text, auto value) {
    if (!condition) throw ConfigError(str("generate: ", text, ", not ", value));
  };
  validate(options.sampling);
  const BeamOptions& beams = options.beams;
  check(options.max_tokens >= 0 && options.max_tokens <= kMostNewTokens,
        "max_tokens must lie in [0, 2^31]", options.max_tokens);
  check(options.context >= 0, "the context must not be negative", options.context);
  check(beams.num_beams >= 1, "num_beams must be >= 1", beams.num_beams);
  check(std::isfinite(beams.length_penalty), "length_penalty must be a number",
        beams.length_penalty);
  check(options.num_return_sequences >= 1, "num_return_sequences must be >= 1",
        options.num_return_sequences);
  if (beams.num_beams == 1) return;
  if (options.num_return_sequences > beams.num_beams) {
    throw ConfigError(str("generate: num_return_sequences of ", options.num_return_sequences,
                          " are more than the ", beams.num_beams, " texts that num_beams keeps"));
  }
  const SamplingOptions& sampling = options.sampling;
  const bool draws = (sampling.temperature != 1.0 && sampling.temperature != 0.0) ||
                     sampling.top_k > 0 || sampling.top_p < 1.0 || sampling.min_p > 0.0 ||
                     sampling.typical_p < 1.0;
  if (draws) {
    throw ConfigError(
        "generate: a beam search (num_beams > 1) draws nothing: temperature, top_k, top_p, min_p "
        "and typical_p have no meaning there; leave them out, or num_beams");
  }
}

std::vector<GeneratedTexts> generate_tokens(const NextLogits& next_logits,
                                            std::span<const std::vector<int32_t>> prompts,
                                            const GenerateOptions& options,
                                            const OnToken& on_token) {
  validate(options);
  require(options.context > 0, "generate: the context must be positive, not ", options.context);
  for (const std::vector<int32_t>& prompt : prompts) {
    require(!prompt.empty(), "generate: the prompt must have at least one token");
  }
  if (options.beams.num_beams == 1) return draw_texts(next_logits, prompts, options, on_token);
  std::vector<GeneratedTexts> texts = search_beams(next_logits, prompts, options);
  for (size_t p = 0; on_token && p < texts.size(); ++p) {
    for (const int32_t token : texts[p].front().tokens) on_token(static_cast<int64_t>(p), token);
  }
  return texts;
}

std::vector<int32_t> generate_tokens(zero::Engine& engine, std::span<const int32_t> prompt,
                                     GenerateOptions options,
                                     const std::function<void(int32_t)>& on_token) {
  TextGenerator generator(engine.model(), {{prompt.begin(), prompt.end()}}, std::move(options),
                          [&](const std::function<void()>& pass) { engine.predict(pass); });
  OnToken heard;
  if (on_token) heard = [&](int64_t, int32_t token) { on_token(token); };
  return generator.write(heard).front().front().tokens;
}

}  // namespace zinc::generate
