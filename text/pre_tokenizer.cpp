#include "text/pre_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/json_parts.h"
#include "text/pattern.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

constexpr size_t kMaxSteps = 64;

// The treatment of the matches of a Split.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous,
};

SplitBehavior parse_behavior(const files::json::Value& value) {
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [name, behavior] : kNames) {
    if (value.is_string(name)) return behavior;
  }
  refuse_type(value, "split behavior",
              "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

PreToken part_of(const PreToken& whole, size_t begin, size_t end) {
  const size_t of_first = std::min(whole.of_first, end);
  return {.text = whole.text.substr(begin, end - begin),
          .of_first = of_first > begin ? of_first - begin : 0};
}

// Takes matches and what lies between them, in order, and gives the pieces that a behavior makes of
// them.
class PieceMaker {
 public:
  PieceMaker(PreToken whole, SplitBehavior behavior, PreTokenVisit visit)
      : whole_(whole), behavior_(behavior), visit_(visit) {}

  void add(size_t begin, size_t end, bool is_match) {
    switch (behavior_) {
      case SplitBehavior::removed:
        if (!is_match) emit(begin, end);
        return;
      case SplitBehavior::isolated:
        emit(begin, end);
        return;
      case SplitBehavior::merged_with_previous:
        hold(begin, end, is_match && !last_was_match_ && held_);
        break;
      case SplitBehavior::merged_with_next:
        hold(begin, end, last_was_match_ && !is_match && held_);
        break;
      case SplitBehavior::contiguous:
        hold(begin, end, is_match == last_was_match_ && held_);
        break;
    }
    last_was_match_ = is_match;
  }
  void finish() {
    if (held_) emit(begin_, end_);
    held_ = false;
  }

 private:
  void hold(size_t begin, size_t end, bool extends) {
    if (extends) {
      end_ = end;
      return;
    }
    finish();
    begin_ = begin;
    end_ = end;
    held_ = true;
  }
  // An empty match only parts what lies before it from what follows.
  void emit(size_t begin, size_t end) {
    if (begin == end) return;
    visit_(part_of(whole_, begin, end));
  }

  PreToken whole_;
  SplitBehavior behavior_;
  PreTokenVisit visit_;
  size_t begin_ = 0, end_ = 0;
  bool held_ = false;
  bool last_was_match_ = false;
};

class SplitStep final : public PreTokenizerStep {
 public:
  SplitStep(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(PreToken piece, PreTokenVisit visit) const override {
    PieceMaker maker(piece, behavior_, visit);
    size_t done = 0;
    pattern_->for_each_match(piece.text, [&](size_t begin, size_t end) {
      if (done < begin) maker.add(done, begin, invert_);
      maker.add(begin, end, !invert_);
      done = end;
    });
    if (done < piece.text.size()) maker.add(done, piece.text.size(), invert_);
    maker.finish();
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at each character of some kind.
template <class IsMatch>
class CharacterStep final : public PreTokenizerStep {
 public:
  CharacterStep(IsMatch is_match, SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  void split(PreToken piece, PreTokenVisit visit) const override {
    PieceMaker maker(piece, behavior_, visit);
    size_t done = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const size_t begin = at;
      if (!is_match_(next_character(piece.text, at))) continue;
      if (done < begin) maker.add(done, begin, false);
      maker.add(begin, at, true);
      done = at;
    }
    if (done < piece.text.size()) maker.add(done, piece.text.size(), false);
    maker.finish();
  }

 private:
  IsMatch is_match_;
  SplitBehavior behavior_;
};

template <class IsMatch>
std::unique_ptr<PreTokenizerStep> at_characters(SplitBehavior behavior, IsMatch is_match) {
  return std::make_unique<CharacterStep<IsMatch>>(is_match, behavior);
}

std::unique_ptr<PreTokenizerStep> at_kind(SplitBehavior behavior, uint16_t kind) {
  const CharacterTable& table = CharacterTable::get();
  return at_characters(behavior, [kind, &table](char32_t c) { return table.is(c, kind); });
}

// `\w+|[^\w\s]+`: words and what lies between words and spaces.
class WhitespaceStep final : public PreTokenizerStep {
 public:
  void split(PreToken piece, PreTokenVisit visit) const override {
    const CharacterTable& table = CharacterTable::get();
    enum Sort { space, word, other };
    const auto sort = [&](char32_t c) {
      return table.is(c, kWordCharacter) ? word : table.is(c, kSpace) ? space : other;
    };
    size_t begin = 0;
    Sort last = space;
    const auto emit = [&](size_t end) {
      if (end > begin && last != space) {
        visit(part_of(piece, begin, end));
      }
      begin = end;
    };
    for (size_t at = 0; at < piece.text.size();) {
      const size_t here = at;
      const Sort now = sort(next_character(piece.text, at));
      if (now != last) emit(here);
      last = now;
    }
    emit(piece.text.size());
  }
};

class PrefixSpaceStep final : public PreTokenizerStep {
 public:
  void split(PreToken piece, PreTokenVisit visit) const override {
    if (piece.text.starts_with(' ')) return visit(piece);
    visit({.text = " " + std::string(piece.text),
           .of_first = piece.of_first > 0 ? piece.of_first + 1 : 0});
  }
};

class ByteCharactersStep final : public PreTokenizerStep {
 public:
  void split(PreToken piece, PreTokenVisit visit) const override {
    visit({.text = bytes_to_characters(piece.text),
           .of_first = bytes_to_characters(piece.text.substr(0, piece.of_first)).size()});
  }
};

enum class PrependScheme : uint8_t { always, first, never };

class MetaspaceStep final : public PreTokenizerStep {
 public:
  MetaspaceStep(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}

  void split(PreToken piece, PreTokenVisit visit) const override {
    std::string text;
    text.reserve(piece.text.size() + 8);
    const bool is_first = piece.of_first > 0;
    const bool prepends =
        scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && is_first);
    if (prepends && !piece.text.starts_with(replacement_) && !piece.text.starts_with(' ')) {
      text = replacement_;
    }
    size_t of_first = 0;
    for (size_t i = 0; i < piece.text.size(); ++i) {
      if (piece.text[i] == ' ') {
        text += replacement_;
      } else {
        text += piece.text[i];
      }
      if (i < piece.of_first) of_first = text.size();
    }
    visit({.text = text, .of_first = of_first});
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

PrependScheme parse_scheme(const files::json::Value& part) {
  if (const files::json::Value* legacy = part.find("add_prefix_space");
      legacy != nullptr && part.find("prepend_scheme") == nullptr) {
    return legacy->as_bool() ? PrependScheme::always : PrependScheme::never;
  }
  const files::json::Value* scheme = part.find("prepend_scheme");
  if (scheme == nullptr || scheme->is_string("always")) return PrependScheme::always;
  if (scheme->is_string("first")) return PrependScheme::first;
  if (scheme->is_string("never")) return PrependScheme::never;
  refuse_type(*scheme, "prepend scheme", "always, first, never");
}

char32_t parse_character(const files::json::Value& value) {
  const std::string& text = value.as_string();
  size_t at = 0;
  const char32_t c = text.empty() ? 0 : next_character(text, at);
  if (text.empty() || at != text.size()) value.fail("must be one character");
  return c;
}

}  // namespace

void PreTokenizer::run_from(size_t step, PreToken piece, PreTokenVisit visit) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return visit(piece);
  steps_[step]->split(piece, [&](PreToken part) { run_from(step + 1, part, visit); });
}

void PreTokenizer::add(const files::json::Value& part) {
  constexpr auto kIsolated = SplitBehavior::isolated, kRemoved = SplitBehavior::removed;
  const files::json::Value& type = part.at("type");
  const auto push = [&](std::unique_ptr<PreTokenizerStep> step) {
    steps_.push_back(std::move(step));
  };
  if (steps_.size() >= kMaxSteps) part.fail(str("more than ", kMaxSteps, " steps"));
  if (gives_bytes_) {  // ByteLevel was not the last step: its characters are text to the others
    push(std::make_unique<ByteCharactersStep>());
    gives_bytes_ = false;
  }
  if (type.is_string("Sequence")) {
    require_known_keys(part, {"type", "pretokenizers"});
    for (const files::json::Value& inner : part.at("pretokenizers").as_array()) add(inner);
  } else if (type.is_string("ByteLevel")) {
    require_known_keys(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (flag(part, "add_prefix_space", true)) push(std::make_unique<PrefixSpaceStep>());
    if (flag(part, "use_regex", true)) {
      push(std::make_unique<SplitStep>(make_pattern(std::string(kGpt2Pattern)), kIsolated, false));
    }
    gives_bytes_ = true;
  } else if (type.is_string("Split")) {
    require_known_keys(part, {"type", "pattern", "behavior", "invert"});
    push(std::make_unique<SplitStep>(parse_pattern(part.at("pattern")),
                                     parse_behavior(part.at("behavior")),
                                     flag(part, "invert", false)));
  } else if (type.is_string("Metaspace")) {
    require_known_keys(
        part, {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
    const std::string replacement = to_utf8(parse_character(part.at("replacement")));
    push(std::make_unique<MetaspaceStep>(replacement, parse_scheme(part)));
    if (flag(part, "split", true)) {
      push(std::make_unique<SplitStep>(make_literal_pattern(replacement),
                                       SplitBehavior::merged_with_next, false));
    }
  } else if (type.is_string("Digits")) {
    require_known_keys(part, {"type", "individual_digits"});
    push(at_kind(flag(part, "individual_digits", false) ? kIsolated : SplitBehavior::contiguous,
                 kNumeric));
  } else if (type.is_string("Punctuation")) {
    require_known_keys(part, {"type", "behavior"});
    const files::json::Value* behavior = part.find("behavior");
    push(at_kind(behavior != nullptr ? parse_behavior(*behavior) : kIsolated, kPunctuation));
  } else if (type.is_string("Whitespace")) {
    require_known_keys(part, {"type"});
    push(std::make_unique<WhitespaceStep>());
  } else if (type.is_string("WhitespaceSplit")) {
    require_known_keys(part, {"type"});
    push(at_kind(kRemoved, kSpace));
  } else if (type.is_string("BertPreTokenizer")) {
    require_known_keys(part, {"type"});
    push(at_kind(kRemoved, kSpace));
    push(at_kind(kIsolated, kPunctuation));
  } else if (type.is_string("CharDelimiterSplit")) {
    require_known_keys(part, {"type", "delimiter"});
    const char32_t delimiter = parse_character(part.at("delimiter"));
    push(at_characters(kRemoved, [delimiter](char32_t c) { return c == delimiter; }));
  } else {
    refuse_type(type, "pre-tokenizer",
                "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, "
                "Sequence, Split, Whitespace, WhitespaceSplit");
  }
}

PreTokenizer PreTokenizer::parse(const files::json::Value* part) {
  PreTokenizer pre_tokenizer;
  if (part != nullptr && !part->is_null()) pre_tokenizer.add(*part);
  return pre_tokenizer;
}

}  // namespace zinc::text
