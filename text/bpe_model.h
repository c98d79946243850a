// text/bpe_model.h: byte pair encoding (Sennrich et al. 2016; GPT-2's on bytes).
//
// A piece starts as its bytes or characters; of all neighbours that are a merge, the one of lowest
// rank, and of equal ones the leftmost, becomes one token, until none is left.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/token_model.h"

namespace zinc::text {

struct BpeOptions {
  std::string unknown{};         // token for a character that is in no token; empty: none
  std::string subword_prefix{};  // before every character but the first of a piece
  std::string word_suffix{};     // behind the last character of a piece
  bool fuse_unknown = false;     // neighbouring unknown characters are one token
  bool byte_fallback = false;    // an unknown character becomes <0x..> tokens of its bytes
  bool ignore_merges = false;    // a piece that is a token is that token
  bool bytes = false;            // pieces are bytes; see parse_token_model
};

class BpeModel final : public TokenModel {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;

  // Merges in order of rank. DataError where a merge's parts or its product are no tokens.
  BpeModel(Vocabulary vocabulary, const Merges& merges, BpeOptions options);
  static std::unique_ptr<TokenModel> parse(const files::json::Value& part, bool bytes);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Merge {
    uint64_t key = kNoMerge;  // left << 32 | right
    int32_t rank = 0;
    int32_t product = 0;
  };
  static constexpr uint64_t kNoMerge = ~uint64_t{0};

  void add_merge(int32_t left, int32_t right, int32_t rank, int32_t product);
  const Merge* find_merge(int32_t left, int32_t right) const;
  void split_bytes(std::string_view piece, std::vector<int32_t>& symbols) const;
  void split_characters(std::string_view piece, std::vector<int32_t>& symbols) const;
  bool append_byte_tokens(std::string_view symbol, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  Vocabulary vocabulary_;  // as written in the file
  Vocabulary by_bytes_;    // with options_.bytes: keyed by bytes
  BpeOptions options_;
  int32_t unknown_id_ = -1;            // -1: none
  std::vector<Merge> merges_;          // open addressing, a power of two, at most half full
  std::vector<int32_t> byte_ids_;      // with options_.bytes: for each byte, -1: none
  std::vector<int32_t> fallback_ids_;  // for <0x00> .. <0xFF>, -1: none
};

}  // namespace zinc::text
