#include "text/bpe_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/json_parts.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

constexpr size_t kShortPiece = 48;  // symbols; merged by looking at all pairs again and again
constexpr int32_t kNoSymbol = -1;

size_t slot_of(uint64_t key, size_t slots) {
  return (key * 0x9E3779B97F4A7C15u >> 30) & (slots - 1);
}

std::string byte_token(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return str("<0x", kDigits[byte >> 4], kDigits[byte & 15], '>');
}

BpeModel::Merges parse_merges(const files::json::Value& list) {
  BpeModel::Merges merges;
  merges.reserve(list.as_array().size());
  for (const files::json::Value& merge : list.as_array()) {
    if (merge.is_array()) {
      if (merge.size() != 2) merge.fail("a merge has two parts");
      merges.emplace_back(merge.at(size_t{0}).as_string(), merge.at(size_t{1}).as_string());
      continue;
    }
    const std::string& text = merge.as_string();
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      merge.fail("a merge is two parts with a space between them");
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, const Merges& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  size_t slots = 64;
  while (slots < 2 * (merges.size() + 1)) slots *= 2;
  merges_.resize(slots);
  const auto id_of = [&](const std::string& token, size_t rank) {
    const std::optional<int32_t> id = vocabulary_.find(token);
    if (!id) throw DataError(str("merge ", rank, ": '", token, "' is not in the vocabulary"));
    return *id;
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    std::string_view rest = right;
    if (!options_.subword_prefix.empty() && rest.starts_with(options_.subword_prefix)) {
      rest.remove_prefix(options_.subword_prefix.size());
    }
    const int32_t left_id = id_of(left, rank), right_id = id_of(right, rank);
    add_merge(left_id, right_id, static_cast<int32_t>(rank), id_of(left + std::string(rest), rank));
  }
  unknown_id_ = vocabulary_.find(options_.unknown).value_or(kNoSymbol);
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<unsigned char>(byte);
    fallback_ids_.push_back(vocabulary_.find(byte_token(value)).value_or(kNoSymbol));
    const std::string character = bytes_to_characters(std::string(1, static_cast<char>(value)));
    byte_ids_.push_back(vocabulary_.find(character).value_or(kNoSymbol));
  }
  if (!options_.bytes || !options_.ignore_merges) return;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.has(id)) continue;
    if (auto bytes = characters_to_bytes(vocabulary_.text(id))) by_bytes_.add(*bytes, id);
  }
}

std::unique_ptr<TokenModel> BpeModel::parse(const files::json::Value& part, bool bytes) {
  require_known_keys(
      part, {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const files::json::Value* dropout = part.find("dropout");
      dropout != nullptr && !dropout->is_null() && dropout->as_double() != 0.0) {
    dropout->fail("dropout is not supported: set it to null");
  }
  BpeOptions options{.unknown = text_or(part, "unk_token", ""),
                     .subword_prefix = text_or(part, "continuing_subword_prefix", ""),
                     .word_suffix = text_or(part, "end_of_word_suffix", ""),
                     .fuse_unknown = flag(part, "fuse_unk", false),
                     .byte_fallback = flag(part, "byte_fallback", false),
                     .ignore_merges = flag(part, "ignore_merges", false),
                     .bytes = bytes};
  // Bytes are symbols by themselves only where nothing is put around them.
  if (bytes && !(options.subword_prefix.empty() && options.word_suffix.empty())) {
    part.fail("continuing_subword_prefix and end_of_word_suffix are not supported with ByteLevel");
  }
  try {
    return std::make_unique<BpeModel>(Vocabulary::parse(part.at("vocab")),
                                      parse_merges(part.at("merges")), std::move(options));
  } catch (const DataError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) throw;  // has a place
    part.fail(error.what());
  }
}

void BpeModel::add_merge(int32_t left, int32_t right, int32_t rank, int32_t product) {
  const uint64_t key = uint64_t(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  size_t i = slot_of(key, merges_.size());
  while (merges_[i].key != kNoMerge && merges_[i].key != key) i = (i + 1) & (merges_.size() - 1);
  merges_[i] = {.key = key, .rank = rank, .product = product};  // the last of equal merges counts
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t key = uint64_t(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  for (size_t i = slot_of(key, merges_.size()); merges_[i].key != kNoMerge;
       i = (i + 1) & (merges_.size() - 1)) {
    if (merges_[i].key == key) return &merges_[i];
  }
  return nullptr;
}

bool BpeModel::append_byte_tokens(std::string_view symbol, std::vector<int32_t>& symbols) const {
  const auto id_of = [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)]; };
  for (const char c : symbol) {
    if (id_of(c) == kNoSymbol) return false;
  }
  for (const char c : symbol) symbols.push_back(id_of(c));
  return true;
}

void BpeModel::split_bytes(std::string_view piece, std::vector<int32_t>& symbols) const {
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id == kNoSymbol) return split_characters(bytes_to_characters(piece), symbols);
    symbols.push_back(id);
  }
}

void BpeModel::split_characters(std::string_view piece, std::vector<int32_t>& symbols) const {
  symbols.clear();
  bool pending = false;  // an unknown character that is not written yet
  const auto flush = [&] {
    if (std::exchange(pending, false)) symbols.push_back(unknown_id_);
  };
  const bool is_decorated = !options_.subword_prefix.empty() || !options_.word_suffix.empty();
  std::string decorated;
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    next_character(piece, at);
    std::string_view symbol = piece.substr(begin, at - begin);
    if (is_decorated) {
      decorated = str(begin > 0 ? options_.subword_prefix : "", symbol,
                      at == piece.size() ? options_.word_suffix : "");
      symbol = decorated;
    }
    if (const std::optional<int32_t> id = vocabulary_.find(symbol)) {
      flush();
      symbols.push_back(*id);
      continue;
    }
    // Pending tokens stay pending, as in Hugging Face's tokenizers.
    if (options_.byte_fallback && append_byte_tokens(symbol, symbols)) continue;
    if (options_.unknown.empty()) continue;
    if (unknown_id_ == kNoSymbol) {
      throw DataError(str("'", symbol, "' is in no token, and the unknown token '",
                          options_.unknown, "' is not in the vocabulary"));
    }
    if (!options_.fuse_unknown) flush();
    pending = true;
  }
  flush();
}

void BpeModel::merge_short(std::vector<int32_t>& symbols) const {
  constexpr int32_t kLast = std::numeric_limits<int32_t>::max();
  size_t count = symbols.size();
  int32_t ranks[kShortPiece], products[kShortPiece];
  const auto look = [&](size_t i) {
    const Merge* merge = i + 1 < count ? find_merge(symbols[i], symbols[i + 1]) : nullptr;
    ranks[i] = merge != nullptr ? merge->rank : kLast;
    products[i] = merge != nullptr ? merge->product : kNoSymbol;
  };
  for (size_t i = 0; i < count; ++i) look(i);
  while (count > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + count) - ranks);
    if (ranks[best] == kLast) break;
    symbols[best] = products[best];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      products[i] = products[i + 1];
    }
    look(best);
    if (best > 0) look(best - 1);
  }
  symbols.resize(count);
}

// A heap of candidates over a linked list: n log n. A candidate whose pair is gone is passed over.
void BpeModel::merge_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    uint64_t order;  // the rank, then the place
    uint64_t pair;
    bool operator>(const Candidate& other) const { return order > other.order; }
  };
  if (symbols.size() >= std::numeric_limits<uint32_t>::max()) {
    throw DataError(str("a piece of ", symbols.size(), " symbols is too long"));
  }
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> previous(count), next(count);
  for (uint32_t i = 0; i < count; ++i) {
    previous[i] = i - 1;  // the first symbol has no previous one
    next[i] = i + 1;
  }
  const auto pair_at = [&](uint32_t i) {
    return uint64_t(static_cast<uint32_t>(symbols[i])) << 32 |
           static_cast<uint32_t>(symbols[next[i]]);
  };
  std::vector<Candidate> heap;
  heap.reserve(count);
  const auto candidate = [&](uint32_t i) {
    if (i >= count || next[i] >= count) return false;
    const Merge* merge = find_merge(symbols[i], symbols[next[i]]);
    if (merge == nullptr) return false;
    heap.push_back({uint64_t(static_cast<uint32_t>(merge->rank)) << 32 | i, pair_at(i)});
    return true;
  };
  const std::greater<> last_first;
  const auto offer = [&](uint32_t i) {
    if (candidate(i)) std::push_heap(heap.begin(), heap.end(), last_first);
  };
  for (uint32_t i = 0; i + 1 < count; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), last_first);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), last_first);
    const Candidate best = heap.back();
    heap.pop_back();
    const auto i = static_cast<uint32_t>(best.order);
    if (symbols[i] == kNoSymbol || next[i] >= count || pair_at(i) != best.pair) continue;
    const uint32_t gone = next[i];
    symbols[i] = find_merge(symbols[i], symbols[gone])->product;
    symbols[gone] = kNoSymbol;
    next[i] = next[gone];
    if (next[i] < count) previous[next[i]] = i;
    offer(i);
    offer(previous[i]);
  }
  std::erase(symbols, kNoSymbol);
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const Vocabulary& tokens = options_.bytes ? by_bytes_ : vocabulary_;
    if (const std::optional<int32_t> id = tokens.find(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  if (options_.bytes) {
    split_bytes(piece, symbols);
  } else {
    split_characters(piece, symbols);
  }
  if (symbols.size() <= kShortPiece) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace zinc::text
