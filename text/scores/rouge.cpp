#include "text/scores/rouge.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/scores/characters.h"
#include "text/scores/porter_stemmer.h"

namespace zinc::text {
namespace {

using Words = std::vector<int32_t>;  // each word by its number

class Numbers {
 public:
  explicit Numbers(RougeWords kind) : kind_(kind) {}

  Words words_of(std::string_view text) {
    return kind_ == RougeWords::characters ? characters(text) : ascii_words(text);
  }

 private:
  int32_t number(std::string word) {
    return numbers_.try_emplace(std::move(word), static_cast<int32_t>(numbers_.size()))
        .first->second;
  }

  Words characters(std::string_view text) {
    Words words;
    for (const std::string_view c : CharactersOf(text)) {
      if (!is_white_space(c)) words.push_back(number(std::string(c)));
    }
    return words;
  }

  Words ascii_words(std::string_view text) {
    Words words;
    std::string word;
    const auto end = [&] {
      if (word.empty()) return;
      if (kind_ == RougeWords::stemmed && word.size() > 3) word = porter_stem(word);
      words.push_back(number(std::exchange(word, {})));
    };
    for (const std::string_view c : CharactersOf(text)) {
      const std::string lower = ascii_of_lower_case(c);
      word += lower;
      // The dot that stays of a dotted I is no letter.
      if (lower.empty() || c == "\u0130") end();
    }
    end();
    return words;
  }

  RougeWords kind_;
  std::unordered_map<std::string, int32_t> numbers_;
};

RougeScore score_of(double hits, size_t reference, size_t generated) {
  RougeScore score{.precision = hits / static_cast<double>(std::max<size_t>(generated, 1)),
                   .recall = hits / static_cast<double>(std::max<size_t>(reference, 1))};
  const double sum = score.precision + score.recall;
  if (sum > 0.0) score.f = 2.0 * score.precision * score.recall / sum;
  return score;
}

RougeScore of_ngrams(const Words& reference, const Words& generated, size_t n) {
  std::map<Words, int64_t> counts;
  const auto each = [n](const Words& words, const auto& visit) {
    for (size_t i = 0; i + n <= words.size(); ++i) {
      visit(Words(words.begin() + static_cast<int64_t>(i),
                  words.begin() + static_cast<int64_t>(i + n)));
    }
    return words.size() >= n ? words.size() - n + 1 : 0;
  };
  const size_t total = each(reference, [&](const Words& gram) { ++counts[gram]; });
  int64_t hits = 0;
  const size_t made = each(generated, [&](const Words& gram) {
    const auto found = counts.find(gram);
    if (found == counts.end() || found->second == 0) return;
    --found->second;
    ++hits;
  });
  return score_of(static_cast<double>(hits), total, made);
}

// Lengths of longest common subsequences of all beginnings.
class Subsequences {
 public:
  Subsequences(const Words& a, const Words& b)
      : a_(a), b_(b), columns_(b.size() + 1), lengths_((a.size() + 1) * columns_) {
    for (size_t i = 1; i <= a.size(); ++i) {
      for (size_t j = 1; j <= b.size(); ++j) {
        at(i, j) =
            a[i - 1] == b[j - 1] ? at(i - 1, j - 1) + 1 : std::max(at(i - 1, j), at(i, j - 1));
      }
    }
  }
  int32_t length() const { return lengths_.back(); }
  // Marks the places in `a` of one of the longest.
  void mark(std::vector<bool>& places) {
    size_t i = a_.size(), j = b_.size();
    while (i > 0 && j > 0) {
      if (a_[i - 1] == b_[j - 1]) {
        places[i - 1] = true;
        --i, --j;
      } else if (at(i, j - 1) > at(i - 1, j)) {
        --j;
      } else {
        --i;
      }
    }
  }

 private:
  int32_t& at(size_t i, size_t j) { return lengths_[i * columns_ + j]; }

  const Words& a_;
  const Words& b_;
  size_t columns_;
  std::vector<int32_t> lengths_;
};

RougeScore of_subsequence(const Words& reference, const Words& generated) {
  if (reference.empty() || generated.empty()) return {};
  return score_of(Subsequences(reference, generated).length(), reference.size(), generated.size());
}

std::vector<Words> lines_of(std::string_view text, Numbers& numbers) {
  std::vector<Words> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(numbers.words_of(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

RougeScore of_lines(const std::vector<Words>& reference, const std::vector<Words>& generated) {
  std::unordered_map<int32_t, int64_t> left_of_reference, left_of_generated;
  size_t total = 0, made = 0;
  for (const Words& line : reference) {
    total += line.size();
    for (const int32_t word : line) ++left_of_reference[word];
  }
  for (const Words& line : generated) {
    made += line.size();
    for (const int32_t word : line) ++left_of_generated[word];
  }
  if (total == 0 || made == 0) return {};
  int64_t hits = 0;
  for (const Words& line : reference) {
    std::vector<bool> in_union(line.size(), false);
    for (const Words& other : generated) Subsequences(line, other).mark(in_union);
    for (size_t i = 0; i < line.size(); ++i) {
      // A word counts as often as both texts have it.
      if (!in_union[i]) continue;
      int64_t &here = left_of_reference[line[i]], &there = left_of_generated[line[i]];
      if (here == 0 || there == 0) continue;
      --here, --there, ++hits;
    }
  }
  return score_of(static_cast<double>(hits), total, made);
}

}  // namespace

RougeScores rouge(std::string_view reference, std::string_view generated, RougeWords kind) {
  Numbers numbers(kind);
  const Words a = numbers.words_of(reference), b = numbers.words_of(generated);
  return {.rouge1 = of_ngrams(a, b, 1),
          .rouge2 = of_ngrams(a, b, 2),
          .rouge_l = of_subsequence(a, b),
          .rouge_lsum = of_lines(lines_of(reference, numbers), lines_of(generated, numbers))};
}

}  // namespace zinc::text
