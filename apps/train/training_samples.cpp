#include "apps/train/training_samples.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>

#include "comm/gather_values.h"
#include "comm/world.h"
#include "generate/generate.h"
#include "text/tokenizer.h"

namespace zinc::apps {
namespace {

constexpr int64_t kSampleTokens = 400;

// A signal came while the sample was made.
struct SampleStopped {};

}  // namespace

std::vector<train::SampleText> make_samples(Console& console, zero::Engine& engine,
                                            const TrainArguments& options,
                                            const TrainingSetup& setup,
                                            const std::atomic<bool>& stop) {
  const bool writes = nn::find_interface<nn::CausalLm>(engine.model()) != nullptr ||
                      nn::find_interface<nn::EncoderDecoderLm>(engine.model()) != nullptr;
  if (!writes) return {};
  const text::ByteTokenizer bytes;
  const text::Tokenizer& tokenizer = setup.tokenizer.tokenizer ? *setup.tokenizer.tokenizer : bytes;
  if (&tokenizer == &bytes && engine.model().vocab_size() != bytes.vocabulary_size()) return {};
  const auto stops = [&](std::span<const int32_t>) {
    if (comm::any_rank(engine.world(), stop)) throw SampleStopped{};
    return false;
  };
  const std::optional<int32_t> end = tokenizer.end_of_text();
  std::vector<train::SampleText> samples;
  try {
    for (const std::string& prompt : options.sample_prompts) {
      const std::vector<int32_t> tokens = generate::generate_tokens(
          engine, tokenizer.encode_with_specials(prompt),
          {.max_tokens = kSampleTokens,
           .sampling = {.temperature = 0.8, .top_k = 40},
           .seed = setup.config.seed,
           .stop_tokens = end ? std::vector{*end} : std::vector<int32_t>{},
           .context = setup.seq,
           .ends = stops});
      samples.push_back({prompt, tokenizer.decode(tokens)});
      console.line("sample:\n---\n" + samples.back().text + "\n---");
    }
  } catch (const SampleStopped&) {
    console.line("note: no sample: stopped by a signal");
  } catch (const std::exception& error) {
    console.line(fmt::format("note: no sample: {}", error.what()));
  }
  return samples;
}

}  // namespace zinc::apps
