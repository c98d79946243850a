#include "text/scores/score_pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "core/error.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "text/scores/labels.h"

namespace zinc::text {
namespace {

double mean_rouge(std::span<const TextPair> pairs, RougeWords words,
                  RougeScore RougeScores::*which) {
  double sum = 0.0;
  for (const TextPair& pair : pairs) {
    double best = 0.0;
    for (const std::string& reference : pair.references) {
      best = std::max(best, (rouge(reference, pair.prediction, words).*which).f);
    }
    sum += best;
  }
  return pairs.empty() ? 0.0 : sum / static_cast<double>(pairs.size());
}

double share_of_matches(std::span<const TextPair> pairs) {
  const auto matches = std::ranges::count_if(pairs, [](const TextPair& pair) {
    return std::ranges::find(pair.references, pair.prediction) != pair.references.end();
  });
  return pairs.empty() ? 0.0 : static_cast<double>(matches) / static_cast<double>(pairs.size());
}

double corpus_bleu(std::span<const TextPair> pairs, BleuWords words) {
  Bleu bleu(words);
  for (const TextPair& pair : pairs) bleu.add(pair.prediction, pair.references);
  return bleu.score().score;
}

double f1_of(std::string_view name, std::span<const TextPair> pairs, const std::string& positive) {
  std::map<std::string, int64_t> numbers;
  const auto number = [&](const std::string& label) {
    return numbers.try_emplace(label, static_cast<int64_t>(numbers.size())).first->second;
  };
  std::vector<int64_t> real, predicted;
  for (const TextPair& pair : pairs) {
    real.push_back(number(pair.references.front()));
    predicted.push_back(number(pair.prediction));
  }
  if (name == "f1") return f1_binary(real, predicted, number(positive));
  return name == "f1_micro" ? f1_micro(real, predicted) : f1_macro(real, predicted);
}

std::string text_of(const files::json::Value& value, const std::string& place) {
  if (value.is_string()) return value.as_string();
  if (value.is_number()) return std::to_string(value.as_int64());
  throw DataError(str(place, ": a prediction or reference must be a text or an integer"));
}

TextPair pair_of(const files::json::Value& line, const std::string& place) {
  const files::json::Value* prediction = line.is_object() ? line.find("prediction") : nullptr;
  const files::json::Value* one = line.is_object() ? line.find("reference") : nullptr;
  const files::json::Value* many = line.is_object() ? line.find("references") : nullptr;
  if (prediction == nullptr || (one == nullptr) == (many == nullptr)) {
    throw DataError(str(place,
                        ": wants {\"prediction\": ..., \"reference\": ...}, or "
                        "\"references\": [...]"));
  }
  TextPair pair{.prediction = text_of(*prediction, place)};
  if (one != nullptr) pair.references.push_back(text_of(*one, place));
  if (many != nullptr) {
    if (!many->is_array() || many->as_array().empty()) {
      throw DataError(str(place, ": \"references\" must be a list of at least one"));
    }
    for (const files::json::Value& value : many->as_array()) {
      pair.references.push_back(text_of(value, place));
    }
  }
  return pair;
}

}  // namespace

const std::vector<std::string>& score_names() {
  static const std::vector<std::string> names{"rouge1",   "rouge2",      "rougeL",   "rougeLsum",
                                              "bleu",     "exact_match", "accuracy", "f1",
                                              "f1_micro", "f1_macro"};
  return names;
}

double score_of(std::string_view name, std::span<const TextPair> pairs,
                const ScoreOptions& options) {
  for (const TextPair& pair : pairs) {
    require(!pair.references.empty(), "score: a prediction without a reference");
  }
  if (name == "rouge1") return mean_rouge(pairs, options.rouge_words, &RougeScores::rouge1);
  if (name == "rouge2") return mean_rouge(pairs, options.rouge_words, &RougeScores::rouge2);
  if (name == "rougeL") return mean_rouge(pairs, options.rouge_words, &RougeScores::rouge_l);
  if (name == "rougeLsum") return mean_rouge(pairs, options.rouge_words, &RougeScores::rouge_lsum);
  if (name == "bleu") return corpus_bleu(pairs, options.bleu_words);
  if (name == "exact_match" || name == "accuracy") return share_of_matches(pairs);
  if (name.starts_with("f1") && std::ranges::find(score_names(), name) != score_names().end()) {
    return f1_of(name, pairs, options.positive);
  }
  std::string known;
  for (const std::string& one : score_names()) known += (known.empty() ? "" : ", ") + one;
  throw ConfigError(str("there is no score '", name, "'; known are ", known));
}

std::vector<TextPair> read_pairs(const std::string& path) {
  const files::InputFile file = files::InputFile::open(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  std::vector<TextPair> pairs;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = str(path, ", line ", number);
    pairs.push_back(pair_of(files::json::parse(line, place), place));
  }
  if (pairs.empty()) throw DataError(str(path, ": has no pair of prediction and reference"));
  return pairs;
}

}  // namespace zinc::text
