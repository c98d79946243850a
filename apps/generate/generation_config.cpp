#include "apps/generate/generation_config.h"

#include <fmt/format.h>

#include <vector>

#include "core/error.h"
#include "files/input_file.h"
#include "files/json/parser.h"

namespace zinc::apps {
namespace {

using files::json::Value;
using Given = std::function<bool(std::string_view)>;

// Keys that change the text and that zinc lacks.
constexpr std::string_view kNotFollowed[] = {"assistant_early_exit",
                                             "bad_words_ids",
                                             "begin_suppress_tokens",
                                             "constraints",
                                             "diversity_penalty",
                                             "dola_layers",
                                             "encoder_no_repeat_ngram_size",
                                             "encoder_repetition_penalty",
                                             "epsilon_cutoff",
                                             "eta_cutoff",
                                             "exponential_decay_length_penalty",
                                             "force_words_ids",
                                             "forced_bos_token_id",
                                             "forced_decoder_ids",
                                             "forced_eos_token_id",
                                             "guidance_scale",
                                             "min_length",
                                             "min_new_tokens",
                                             "num_beam_groups",
                                             "penalty_alpha",
                                             "sequence_bias",
                                             "suppress_tokens",
                                             "watermarking_config"};
// Whether the value asks for nothing, as files often write it.
bool asks_for_nothing(std::string_view key, const Value& value) {
  if (value.is_null() || (value.is_bool() && !value.as_bool())) return true;
  if (!value.is_number()) return false;
  const double number = value.as_double();
  return number == 0.0 || (number == 1.0 && (key == "num_beam_groups" || key == "guidance_scale" ||
                                             key == "encoder_repetition_penalty"));
}

class Taken {
 public:
  Taken(const Value& file, const Given& given) : file_(file), given_(given) {}

  template <class T>
  void take(const char* key, std::string_view option, T& value) {
    const Value* said = file_.find(key);
    if (said == nullptr || said->is_null() || given_(option)) return;
    T found;
    if constexpr (std::is_floating_point_v<T>) {
      found = said->as_double();
    } else {
      found = said->as_int64(0, generate::kMostNewTokens);
    }
    if (found == value) return;
    value = found;
    words_.push_back(fmt::format("{} {}", key, value));
  }
  void note(std::string words) { words_.push_back(std::move(words)); }
  std::string line() const { return fmt::format("{}", fmt::join(words_, ", ")); }

 private:
  const Value& file_;
  const Given& given_;
  std::vector<std::string> words_;
};

void take_early_stopping(const Value& file, const Given& given, generate::BeamOptions& beams,
                         Taken& taken) {
  using Early = generate::BeamOptions::EarlyStopping;
  const Value* said = file.find("early_stopping");
  if (said == nullptr || said->is_null() || given("--early-stopping")) return;
  if (said->is_bool()) {
    beams.early_stopping = said->as_bool() ? Early::yes : Early::no;
  } else if (said->is_string("never")) {
    beams.early_stopping = Early::never;
  } else {
    said->fail("must be true, false or \"never\"");
  }
  if (beams.early_stopping != Early::no) {
    taken.note(beams.early_stopping == Early::yes ? "early_stopping true" : "early_stopping never");
  }
}

void take_drawing(const Value& file, const Given& given, generate::SamplingOptions& sampling,
                  Taken& taken) {
  const Value* draws = file.find("do_sample");
  if (draws == nullptr || draws->is_null()) return;
  if (!draws->as_bool()) {
    if (given("--temperature")) return;
    sampling.temperature = 0.0;
    return taken.note("do_sample false: the most likely token each time");
  }
  taken.take("temperature", "--temperature", sampling.temperature);
  taken.take("top_k", "--top-k", sampling.top_k);
  taken.take("top_p", "--top-p", sampling.top_p);
  taken.take("min_p", "--min-p", sampling.min_p);
  taken.take("typical_p", "--typical-p", sampling.typical_p);
}

}  // namespace

std::string take_generation_config(const std::string& folder, const Given& given,
                                   generate::GenerateOptions& options) {
  const std::string path = folder + "/generation_config.json";
  if (!files::file_exists(path)) return {};
  const Value file = files::json::parse_file(path);
  Taken taken(file, given);
  taken.take("max_new_tokens", "--max-new-tokens", options.max_tokens);
  taken.take("repetition_penalty", "--repetition-penalty", options.sampling.repetition_penalty);
  taken.take("no_repeat_ngram_size", "--no-repeat-ngram-size",
             options.sampling.no_repeat_ngram_size);
  taken.take("num_beams", "--num-beams", options.beams.num_beams);
  taken.take("length_penalty", "--length-penalty", options.beams.length_penalty);
  take_early_stopping(file, given, options.beams, taken);
  if (options.beams.num_beams == 1) take_drawing(file, given, options.sampling, taken);
  for (const std::string_view key : kNotFollowed) {
    const Value* said = file.find(key);
    if (said != nullptr && !asks_for_nothing(key, *said)) {
      taken.note(fmt::format("{} is not followed", key));
    }
  }
  const std::string line = taken.line();
  return line.empty() ? line : fmt::format("{}: {}", path, line);
}

}  // namespace zinc::apps
