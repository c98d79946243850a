#include "text/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "text/json_parts.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the least likely token

}  // namespace

UnigramModel::UnigramModel(std::vector<Entry> entries, std::optional<int32_t> unknown,
                           bool byte_fallback)
    : unknown_(unknown) {
  if (entries.empty() || static_cast<int64_t>(entries.size()) > kMaxVocabulary) {
    throw DataError(str("a vocabulary of ", entries.size(), " tokens"));
  }
  if (unknown && (*unknown < 0 || static_cast<size_t>(*unknown) >= entries.size())) {
    throw DataError(str("unk_id ", *unknown, " is not in the vocabulary"));
  }
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!std::isfinite(entries[i].score)) {
      throw DataError(str("the score of token ", i, " is not finite"));
    }
    lowest = std::min(lowest, entries[i].score);
    scores_.push_back(entries[i].score);
    trie_.insert(entries[i].text, id);
    if (!vocabulary_.add(entries[i].text, id)) {
      throw DataError(str("token '", entries[i].text, "' is there twice"));
    }
  }
  unknown_score_ = lowest - kUnknownPenalty;
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    static constexpr char kDigits[] = "0123456789ABCDEF";
    const std::string text = str("<0x", kDigits[byte / 16], kDigits[byte % 16], '>');
    fallback_ids_.push_back(vocabulary_.find(text).value_or(-1));
  }
}

std::unique_ptr<TokenModel> UnigramModel::parse(const files::json::Value& part) {
  require_known_keys(part, {"type", "unk_id", "vocab", "byte_fallback"});
  std::vector<Entry> entries;
  for (const files::json::Value& entry : part.at("vocab").as_array()) {
    if (entry.size() != 2) entry.fail("a token of a Unigram model is [text, score]");
    entries.push_back({entry.at(size_t{0}).as_string(), entry.at(size_t{1}).as_double()});
  }
  std::optional<int32_t> unknown;
  if (const files::json::Value* id = part.find("unk_id"); id != nullptr && !id->is_null()) {
    unknown = static_cast<int32_t>(id->as_int64(0, kMaxVocabulary - 1));
  }
  try {
    return std::make_unique<UnigramModel>(std::move(entries), unknown,
                                          flag(part, "byte_fallback", false));
  } catch (const DataError& error) {
    part.fail(error.what());
  }
}

void UnigramModel::append(std::string_view text, std::vector<int32_t>& ids) const {
  if (const std::optional<int32_t> id = vocabulary_.find(text)) {
    ids.push_back(*id);
    return;
  }
  const auto fallback = [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)]; };
  if (!fallback_ids_.empty() &&
      std::all_of(text.begin(), text.end(), [&](char c) { return fallback(c) >= 0; })) {
    for (const char c : text) ids.push_back(fallback(c));
    return;
  }
  if (!unknown_) {
    throw DataError(str("'", text, "' is in no token, and the model has no unknown token"));
  }
  ids.push_back(*unknown_);
}

void UnigramModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  constexpr size_t kNowhere = ~size_t{0};
  constexpr int32_t kUnknown = -1;
  struct Node {
    double score = 0.0;
    size_t begin = kNowhere;  // of the last token of the best segmentation that ends here
    int32_t id = kUnknown;
  };
  std::vector<Node> best(piece.size() + 1);
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    const double total = best[begin].score + score;
    if (best[end].begin == kNowhere || total > best[end].score) best[end] = {total, begin, id};
  };
  for (size_t begin = 0; begin < piece.size();) {
    size_t next = begin;
    next_character(piece, next);
    bool has_single = false;
    trie_.for_each_prefix(piece.substr(begin), [&](size_t length, int32_t id) {
      offer(begin, begin + length, scores_[static_cast<size_t>(id)], id);
      has_single = has_single || length == next - begin;
    });
    if (!has_single) offer(begin, next, unknown_score_, unknown_.value_or(kUnknown));
    begin = next;
  }
  // Collected from the end; neighbouring unknown characters are one token.
  std::vector<std::pair<size_t, size_t>> cuts;
  const auto is_unknown = [&](const Node& node) { return node.id == unknown_.value_or(kUnknown); };
  for (size_t end = piece.size(); end > 0;) {
    size_t begin = best[end].begin;
    if (is_unknown(best[end])) {
      while (begin > 0 && is_unknown(best[begin])) begin = best[begin].begin;
    }
    cuts.emplace_back(begin, end);
    end = begin;
  }
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    append(piece.substr(cut->first, cut->second - cut->first), ids);
  }
}

}  // namespace zinc::text
