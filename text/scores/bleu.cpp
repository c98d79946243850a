#include "text/scores/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/scores/characters.h"

namespace zinc::text {
namespace {

// The Chinese characters of sacrebleu 2.6, with its two misread ranges (2000 to 2a6d, 2f81 to
// 2fa1), so that scores are equal.
constexpr std::pair<uint32_t, uint32_t> kChinese[] = {
    {0x2001, 0x2a6d}, {0x2e80, 0x2eff}, {0x2f00, 0x2fdf}, {0x2ff0, 0x2fff}, {0x3000, 0x303f},
    {0x3100, 0x312f}, {0x31a0, 0x31bf}, {0x31c0, 0x31ef}, {0x3200, 0x32ff}, {0x3300, 0x33ff},
    {0x3400, 0x4db5}, {0x4e00, 0x9fbb}, {0xf900, 0xfa2d}, {0xfa30, 0xfa6a}, {0xfa70, 0xfad9},
    {0xfe10, 0xfe1f}, {0xfe30, 0xfe4f}, {0xff00, 0xffef}};

bool is_chinese(std::string_view character) {
  const uint32_t point = code_point_of(character);
  return std::ranges::any_of(
      kChinese, [&](const auto& range) { return range.first <= point && point <= range.second; });
}

std::string trimmed(std::string_view text, bool in_front) {
  std::vector<std::string_view> characters;
  for (const std::string_view c : CharactersOf(text)) characters.push_back(c);
  size_t begin = 0, end = characters.size();
  while (end > 0 && is_white_space(characters[end - 1])) --end;
  while (in_front && begin < end && is_white_space(characters[begin])) ++begin;
  std::string kept;
  for (; begin < end; ++begin) kept += characters[begin];
  return kept;
}

void replace_each(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }
// ASCII symbols that are words anywhere: all but ' - . and ,.
bool is_symbol(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Where `matches` holds for two neighbours, `put` writes both, and neither is looked at again.
template <class Matches, class Put>
std::string rewrite_pairs(const std::string& text, const Matches& matches, const Put& put) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      put(result, text[i], text[i + 1]);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string split_symbols(const std::string& line) {
  std::string text;
  for (const char c : line) {
    if (is_symbol(c)) text += ' ';
    text += c;
    if (is_symbol(c)) text += ' ';
  }
  const auto apart = [](std::string& out, char a, char b) { (((out += a) += ' ') += b) += ' '; };
  text = rewrite_pairs(
      text, [](char a, char b) { return !is_digit(a) && is_point(b); }, apart);
  text = rewrite_pairs(
      text, [](char a, char b) { return is_point(a) && !is_digit(b); },
      [](std::string& out, char a, char b) { (((out += ' ') += a) += ' ') += b; });
  text = rewrite_pairs(
      text, [](char a, char b) { return is_digit(a) && b == '-'; }, apart);
  std::string words;
  bool begins = false;
  for (const std::string_view c : CharactersOf(text)) {
    if (is_white_space(c)) {
      begins = true;
      continue;
    }
    if (begins && !words.empty()) words += ' ';
    begins = false;
    words += c;
  }
  return words;
}

std::string international(std::string line) {
  replace_each(line, "<skipped>", "");
  replace_each(line, "-\n", "");
  std::ranges::replace(line, '\n', ' ');
  replace_each(line, "&quot;", "\"");
  replace_each(line, "&amp;", "&");
  replace_each(line, "&lt;", "<");
  replace_each(line, "&gt;", ">");
  return split_symbols(" " + line + " ");
}

std::string chinese(std::string_view line) {
  std::string text;
  for (const std::string_view c : CharactersOf(line)) {
    const bool apart = is_chinese(c);
    if (apart) text += ' ';
    text += c;
    if (apart) text += ' ';
  }
  return split_symbols(text);
}

using Grams = std::map<std::vector<std::string_view>, int64_t>;

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> parts;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    parts.push_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return parts;
}

Grams grams_of(const std::vector<std::string_view>& words) {
  Grams grams;
  for (size_t n = 1; n <= 4; ++n) {
    for (size_t i = 0; i + n <= words.size(); ++i) {
      const auto begin = words.begin() + static_cast<int64_t>(i);
      ++grams[{begin, begin + static_cast<int64_t>(n)}];
    }
  }
  return grams;
}

}  // namespace

std::string bleu_words(std::string_view text, BleuWords words) {
  return words == BleuWords::chinese ? chinese(trimmed(text, true))
                                     : international(trimmed(text, false));
}

void Bleu::add(std::string_view generated, std::span<const std::string> references) {
  require(!references.empty(), "bleu: a text without a reference");
  const std::string own = bleu_words(generated, words_);
  const std::vector<std::string_view> own_words = split(own);
  const auto length = static_cast<int64_t>(own_words.size());
  Grams most;
  int64_t closest = 0, distance = std::numeric_limits<int64_t>::max();
  std::vector<std::string> kept;  // owns the strings that the grams refer to
  kept.reserve(references.size());
  for (const std::string& reference : references) {
    const std::vector<std::string_view> words =
        split(kept.emplace_back(bleu_words(reference, words_)));
    for (const auto& [gram, count] : grams_of(words)) {
      int64_t& largest = most[gram];
      largest = std::max(largest, count);
    }
    const auto other = static_cast<int64_t>(words.size());
    const int64_t off = std::abs(length - other);
    if (off < distance || (off == distance && other < closest)) closest = other, distance = off;
  }
  for (const auto& [gram, count] : grams_of(own_words)) {
    const size_t order = gram.size() - 1;
    totals_[order] += count;
    const auto found = most.find(gram);
    if (found != most.end()) hits_[order] += std::min(count, found->second);
  }
  generated_words_ += length;
  reference_words_ += closest;
}

BleuScore Bleu::score(bool single) const {
  BleuScore score{.brevity_penalty = 1.0,
                  .generated_words = generated_words_,
                  .reference_words = reference_words_};
  if (generated_words_ < reference_words_) {
    score.brevity_penalty = generated_words_ > 0
                                ? std::exp(1.0 - static_cast<double>(reference_words_) /
                                                     static_cast<double>(generated_words_))
                                : 0.0;
  }
  if (std::ranges::all_of(hits_, [](int64_t hits) { return hits == 0; })) return score;
  double smoothing = 1.0;
  size_t orders = 4;
  for (size_t n = 0; n < 4; ++n) {
    if (totals_[n] == 0) break;
    if (single) orders = n + 1;
    const auto total = static_cast<double>(totals_[n]);
    if (hits_[n] == 0) {
      smoothing *= 2.0;
      score.precisions[n] = 100.0 / (smoothing * total);
    } else {
      score.precisions[n] = 100.0 * static_cast<double>(hits_[n]) / total;
    }
  }
  double logs = 0.0;
  for (size_t n = 0; n < orders; ++n) {
    logs += score.precisions[n] > 0.0 ? std::log(score.precisions[n]) : -9999999999.0;
  }
  score.score = score.brevity_penalty * std::exp(logs / static_cast<double>(orders));
  return score;
}

}  // namespace zinc::text
