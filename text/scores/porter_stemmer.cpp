#include "text/scores/porter_stemmer.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace zinc::text {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kIrregular{
    {{"sky", "sky"},
     {"skies", "sky"},
     {"dying", "die"},
     {"lying", "lie"},
     {"tying", "tie"},
     {"news", "news"},
     {"inning", "inning"},
     {"innings", "inning"},
     {"outing", "outing"},
     {"outings", "outing"},
     {"canning", "canning"},
     {"cannings", "canning"},
     {"howe", "howe"},
     {"proceed", "proceed"},
     {"exceed", "exceed"},
     {"succeed", "succeed"}}};

bool is_plain_vowel(char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; }

// Whether each letter is a consonant; y is one at the start and behind a vowel.
std::vector<bool> consonants_of(std::string_view word) {
  std::vector<bool> flags;
  for (const char c : word) {
    flags.push_back(c == 'y' ? flags.empty() || !flags.back() : !is_plain_vowel(c));
  }
  return flags;
}

// Porter's m: how often a consonant follows a vowel.
int measure(std::string_view word) {
  const std::vector<bool> flags = consonants_of(word);
  int count = 0;
  for (size_t i = 1; i < flags.size(); ++i) count += flags[i] && !flags[i - 1] ? 1 : 0;
  return count;
}

bool has_vowel(std::string_view word) {
  const std::vector<bool> flags = consonants_of(word);
  return std::ranges::find(flags, false) != flags.end();
}

bool ends_with_double_consonant(std::string_view word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && consonants_of(word).back();
}

// Porter's *o.
bool ends_with_short_syllable(std::string_view word) {
  const std::vector<bool> flags = consonants_of(word);
  const size_t n = word.size();
  if (n == 2) return !flags[0] && flags[1];
  return n >= 3 && flags[n - 3] && !flags[n - 2] && flags[n - 1] && word[n - 1] != 'w' &&
         word[n - 1] != 'x' && word[n - 1] != 'y';
}

std::string_view without(std::string_view word, size_t letters) {
  return word.substr(0, word.size() - letters);
}

struct Ending {
  std::string_view from, to;
};

// The first ending that the word has is replaced where the measure of the rest is above `least`.
std::string replace_ending(std::string word, std::span<const Ending> endings, int least) {
  for (const Ending& ending : endings) {
    if (!word.ends_with(ending.from)) continue;
    const std::string_view rest = without(word, ending.from.size());
    // -logi is judged with its l.
    const bool fits = ending.from == "logi" ? measure(without(word, 3)) > least
                      : ending.from == "ion"
                          ? measure(rest) > least && (rest.back() == 's' || rest.back() == 't')
                          : measure(rest) > least;
    return fits ? std::string(rest).append(ending.to) : word;
  }
  return word;
}

std::string plural(std::string word) {  // step 1a
  if (word.ends_with("ies")) return std::string(without(word, word.size() == 4 ? 1 : 2));
  if (word.ends_with("sses")) return std::string(without(word, 2));
  if (word.ends_with("s") && !word.ends_with("ss")) return std::string(without(word, 1));
  return word;
}

std::string past_and_gerund(std::string word) {  // step 1b
  if (word.ends_with("ied")) return std::string(without(word, word.size() == 4 ? 1 : 2));
  if (word.ends_with("eed")) {
    return measure(without(word, 3)) > 0 ? std::string(without(word, 1)) : word;
  }
  std::string stem;
  for (const std::string_view ending : {"ed", "ing"}) {
    if (!word.ends_with(ending) || !has_vowel(without(word, ending.size()))) continue;
    stem = without(word, ending.size());
    break;
  }
  if (stem.empty()) return word;
  if (stem.ends_with("at") || stem.ends_with("bl") || stem.ends_with("iz")) return stem + "e";
  if (ends_with_double_consonant(stem)) {
    const char last = stem.back();
    if (last != 'l' && last != 's' && last != 'z') stem.pop_back();
    return stem;
  }
  return measure(stem) == 1 && ends_with_short_syllable(stem) ? stem + "e" : stem;
}

std::string final_y(std::string word) {  // step 1c
  const std::string_view rest = word.ends_with("y") ? without(word, 1) : std::string_view();
  if (rest.size() > 1 && consonants_of(rest).back()) word.back() = 'i';
  return word;
}

std::string double_suffix(std::string word) {  // step 2
  static constexpr Ending kEndings[] = {
      {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
      {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
      {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
      {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
      {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
      {"fulli", "ful"},   {"logi", "log"}};
  while (word.ends_with("alli") && measure(without(word, 4)) > 0) word = without(word, 2);
  return replace_ending(std::move(word), kEndings, 0);
}

std::string simple_suffix(std::string word) {  // step 3
  static constexpr Ending kEndings[] = {{"icate", "ic"}, {"ative", ""},  {"alize", "al"},
                                        {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""},
                                        {"ness", ""}};
  return replace_ending(std::move(word), kEndings, 0);
}

std::string last_suffix(std::string word) {  // step 4
  static constexpr Ending kEndings[] = {{"al", ""},    {"ance", ""}, {"ence", ""}, {"er", ""},
                                        {"ic", ""},    {"able", ""}, {"ible", ""}, {"ant", ""},
                                        {"ement", ""}, {"ment", ""}, {"ent", ""},  {"ion", ""},
                                        {"ou", ""},    {"ism", ""},  {"ate", ""},  {"iti", ""},
                                        {"ous", ""},   {"ive", ""},  {"ize", ""}};
  return replace_ending(std::move(word), kEndings, 1);
}

std::string final_e_and_l(std::string word) {  // step 5
  if (word.ends_with("e")) {
    const std::string_view rest = without(word, 1);
    const int m = measure(rest);
    if (m > 1 || (m == 1 && !ends_with_short_syllable(rest))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(without(word, 1)) > 1) word.pop_back();
  return word;
}

}  // namespace

std::string porter_stem(std::string_view word) {
  for (const auto& [from, to] : kIrregular) {
    if (word == from) return std::string(to);
  }
  std::string stem(word);
  if (word.size() <= 2) return stem;
  for (const auto step : {plural, past_and_gerund, final_y, double_suffix, simple_suffix,
                          last_suffix, final_e_and_l}) {
    stem = step(std::move(stem));
  }
  return stem;
}

}  // namespace zinc::text
