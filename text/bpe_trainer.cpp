#include "text/bpe_trainer.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <utility>

#include "core/error.h"
#include "files/json/writer.h"
#include "files/utf8.h"
#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct TrainingWord {
  std::vector<int32_t> symbols;
  int64_t count;
};

// A pair that may be merged next, and the words that had it when its count was taken.
struct PairCandidate {
  int64_t count;
  uint64_t pair;
  std::shared_ptr<const std::vector<size_t>> words;
  bool operator<(const PairCandidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// The counts of pairs, and which words have them.
class PairCounts {
 public:
  void change(int32_t left, int32_t right, int64_t by, size_t word) {
    const uint64_t pair = pair_key(left, right);
    counts_[pair] += by;
    if (by <= 0) return;
    std::vector<size_t>& words = grown_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }
  int64_t of(uint64_t pair) const { return counts_.at(pair); }
  // Candidates of all pairs whose count grew since the last call.
  void offer(std::priority_queue<PairCandidate>& queue) {
    for (auto& [pair, words] : grown_) {
      const int64_t count = counts_.at(pair);
      if (count <= 0) continue;
      queue.push({count, pair, std::make_shared<const std::vector<size_t>>(std::move(words))});
    }
    grown_.clear();
  }

 private:
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<size_t>> grown_;
};

// Merges a pair wherever a word has it.
void merge_in_word(TrainingWord& word, size_t index, uint64_t pair, int32_t product,
                   PairCounts& counts) {
  const auto left = static_cast<int32_t>(pair >> 32), right = static_cast<int32_t>(pair);
  std::vector<int32_t>& symbols = word.symbols;
  size_t out = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] != left || i + 1 >= symbols.size() || symbols[i + 1] != right) {
      symbols[out++] = symbols[i];
      continue;
    }
    if (out > 0) {
      counts.change(symbols[out - 1], left, -word.count, index);
      counts.change(symbols[out - 1], product, word.count, index);
    }
    if (i + 2 < symbols.size()) {
      counts.change(right, symbols[i + 2], -word.count, index);
      counts.change(product, symbols[i + 2], word.count, index);
    }
    symbols[out++] = product;
    ++i;
  }
  symbols.resize(out);
}

}  // namespace

BpeTrainer::BpeTrainer(Options options) : options_(std::move(options)) {
  const auto fixed = static_cast<int64_t>(options_.specials.size()) + 256;
  if (options_.vocabulary_size < fixed) {
    throw ConfigError(str("a vocabulary of ", options_.vocabulary_size,
                          " tokens is too small: ", fixed, " are special tokens and bytes"));
  }
  if (options_.pattern.empty()) options_.pattern = kGpt2Pattern;
}

void BpeTrainer::add_text(std::string_view text) {
  const std::string repaired =
      files::first_invalid_utf8(text) ? files::replace_invalid_utf8(text) : "";
  if (!repaired.empty()) text = repaired;
  const std::unique_ptr<Pattern> pattern = make_pattern(options_.pattern);
  size_t done = 0;
  std::string piece;
  const auto count = [&](size_t begin, size_t end) {
    if (begin == end) return;
    piece.assign(text.substr(begin, end - begin));
    ++counts_[piece];
  };
  pattern->for_each_match(text, [&](size_t begin, size_t end) {
    count(done, begin);
    count(begin, end);
    done = end;
  });
  count(done, text.size());
}

void BpeTrainer::train(const std::function<void(int64_t)>& progress) {
  require(tokens_.empty(), "a BpeTrainer trains once");
  constexpr size_t kReportEvery = 64;
  std::unordered_map<std::string, int32_t> id_of;
  const auto add_token = [&](const std::string& token) {
    const auto [found, is_new] = id_of.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  };
  for (const std::string& special : options_.specials) add_token(special);
  // Bytes in the order of the characters that stand for them.
  std::vector<std::string> alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet.push_back(bytes_to_characters(std::string(1, static_cast<char>(byte))));
  }
  std::sort(alphabet.begin(), alphabet.end());
  for (const std::string& character : alphabet) add_token(character);

  std::vector<TrainingWord> words;
  PairCounts counts;
  for (const auto& [piece, count] : counts_) {
    TrainingWord word{{}, count};
    for (const char byte : piece) {
      word.symbols.push_back(id_of.at(bytes_to_characters(std::string(1, byte))));
    }
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      counts.change(word.symbols[i], word.symbols[i + 1], count, words.size());
    }
    words.push_back(std::move(word));
  }
  std::priority_queue<PairCandidate> queue;
  counts.offer(queue);
  while (static_cast<int64_t>(tokens_.size()) < options_.vocabulary_size && !queue.empty()) {
    PairCandidate best = queue.top();
    queue.pop();
    const int64_t now = counts.of(best.pair);
    if (best.count != now) {
      best.count = now;
      queue.push(std::move(best));
      continue;
    }
    if (best.count < std::max<int64_t>(1, options_.min_frequency)) break;
    const auto left = static_cast<int32_t>(best.pair >> 32),
               right = static_cast<int32_t>(best.pair);
    const int32_t product =
        add_token(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
    merges_.emplace_back(left, right);
    for (const size_t word : *best.words) {
      merge_in_word(words[word], word, best.pair, product, counts);
    }
    counts.offer(queue);
    if (progress && merges_.size() % kReportEvery == 0) progress(num_tokens());
  }
}

std::string BpeTrainer::vocab_json() const {
  files::json::Writer writer;
  writer.begin_object();
  for (size_t id = 0; id < tokens_.size(); ++id) writer.member(tokens_[id], id);
  return writer.end_object().take();
}

std::string BpeTrainer::merges_txt() const {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : merges_) {
    text += tokens_[static_cast<size_t>(left)] + " " + tokens_[static_cast<size_t>(right)] + "\n";
  }
  return text;
}

std::string BpeTrainer::tokenizer_config_json() const {
  files::json::Writer writer(2);
  writer.begin_object().member("tokenizer_class", "PreTrainedTokenizerFast");
  if (!options_.specials.empty()) {
    writer.member("eos_token", options_.specials.front());
    writer.member("bos_token", options_.specials.front());
  }
  return writer.end_object().take() + "\n";
}

std::string BpeTrainer::tokenizer_json() const {
  files::json::Writer writer(1);
  writer.begin_object().member("version", "1.0").member("truncation", nullptr);
  writer.member("padding", nullptr).key("added_tokens").begin_array();
  for (size_t id = 0; id < options_.specials.size(); ++id) {
    writer.begin_object().member("id", id).member("content", options_.specials[id]);
    for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"}) {
      writer.member(key, false);
    }
    writer.member("special", true).end_object();
  }
  writer.end_array().member("normalizer", nullptr).key("pre_tokenizer");
  const bool gpt2 = options_.pattern == kGpt2Pattern;
  const auto byte_level = [&](bool use_regex) {
    writer.begin_object().member("type", "ByteLevel").member("add_prefix_space", false);
    writer.member("trim_offsets", true).member("use_regex", use_regex).end_object();
  };
  if (gpt2) {
    byte_level(true);
  } else {
    writer.begin_object().member("type", "Sequence").key("pretokenizers").begin_array();
    writer.begin_object().member("type", "Split").key("pattern");
    writer.begin_object().member("Regex", options_.pattern).end_object();
    writer.member("behavior", "Isolated").member("invert", false).end_object();
    byte_level(false);
    writer.end_array().end_object();
  }
  writer.key("post_processor");
  byte_level(true);
  writer.key("decoder");
  byte_level(true);
  writer.key("model").begin_object().member("type", "BPE").member("dropout", nullptr);
  for (const char* key : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    writer.member(key, nullptr);
  }
  for (const char* key : {"fuse_unk", "byte_fallback", "ignore_merges"}) writer.member(key, false);
  writer.key("vocab").begin_object();
  for (size_t id = 0; id < tokens_.size(); ++id) writer.member(tokens_[id], id);
  writer.end_object().key("merges").begin_array();
  for (const auto& [left, right] : merges_) {
    writer.begin_array().value(tokens_[static_cast<size_t>(left)]);
    writer.value(tokens_[static_cast<size_t>(right)]).end_array();
  }
  return writer.end_array().end_object().end_object().take() + "\n";
}

}  // namespace zinc::text
