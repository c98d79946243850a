// text/bpe_trainer.h: learns a byte-level BPE vocabulary from text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zinc::text {

// Counts the pieces of texts, then learns merges: again and again the most frequent pair of
// neighbours becomes one token; of equal pairs the one of smaller ids. The merges are those of
// Hugging Face's BpeTrainer with the alphabet of all bytes and no limits.
class BpeTrainer {
 public:
  struct Options {
    int64_t vocabulary_size = 8192;       // special tokens and the 256 bytes included
    int64_t min_frequency = 0;            // a rarer pair ends the training
    std::vector<std::string> specials{};  // the first ids
    std::string pattern{};                // a pattern of text/pattern.h; empty: GPT-2's
  };
  // ConfigError for a vocabulary that the bytes and specials fill already.
  explicit BpeTrainer(Options options);

  void add_text(std::string_view text);  // UTF-8; ill-formed parts count as U+FFFD
  int64_t num_pieces() const { return static_cast<int64_t>(counts_.size()); }  // distinct ones
  // `progress`(tokens so far) is called now and then. Once.
  void train(const std::function<void(int64_t)>& progress = {});

  // After train(): the texts of files that transformers loads.
  std::string tokenizer_json() const;
  std::string vocab_json() const;
  std::string merges_txt() const;
  std::string tokenizer_config_json() const;
  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  Options options_;
  std::unordered_map<std::string, int64_t> counts_;  // count of each piece, as bytes
  std::vector<std::string> tokens_;                  // by id
  std::vector<std::pair<int32_t, int32_t>> merges_;
};

}  // namespace zinc::text
