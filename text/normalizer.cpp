#include "text/normalizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/json_parts.h"
#include "text/precompiled_map.h"
#include "text/unicode/normal_form.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

constexpr size_t kMaxNormalizerSteps = 64;
constexpr size_t kMaxContentBytes = 4096;
constexpr size_t kMaxGrowth = 64;  // of a step: bytes of its result for one byte of its text

using TextFunction = std::function<std::string(std::string_view)>;

// Replaces characters, whatever stands before them.
class FunctionStep final : public NormalizerStep {
 public:
  // `keeps_first`: where the first character is removed, the next one stands for it, as with
  // Precompiled in Hugging Face's library.
  FunctionStep(TextFunction function, bool keeps_first)
      : function_(std::move(function)), keeps_first_(keeps_first) {}
  std::string apply(std::string_view text, size_t& of_first) const override {
    std::string out = function_(text);
    if (of_first == 0) return out;
    const size_t made = function_(text.substr(0, of_first)).size();
    of_first = 0;
    // Up to the end of a character: a composed character stands for the first of its parts.
    while (of_first < made && of_first < out.size()) next_character(out, of_first);
    if (keeps_first_ && made == 0 && !out.empty()) next_character(out, of_first);
    return out;
  }

 private:
  TextFunction function_;
  bool keeps_first_;
};

// `change` appends the replacement of a character to its first argument.
template <class Change>
std::string change_characters(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) change(out, next_character(text, at));
  return out;
}

std::string without_kind(std::string_view text, uint16_t kind) {
  const CharacterTable& table = CharacterTable::get();
  return change_characters(text, [&](std::string& out, char32_t c) {
    if (!table.is(c, kind)) append_utf8(out, c);
  });
}

class ReplaceStep final : public NormalizerStep {
 public:
  ReplaceStep(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  // The replacement of several characters stands for the last of them.
  std::string apply(std::string_view text, size_t& of_first) const override {
    if (text.empty()) return {};  // also where the pattern matches nothing
    std::string out;
    size_t done = 0, first = 0;
    const auto keep = [&](size_t end) {
      if (done < of_first) first = out.size() + std::min(end, of_first) - done;
      out += text.substr(done, end - done);
    };
    pattern_->for_each_match(text, [&](size_t begin, size_t end) {
      keep(begin);
      out += content_;
      if (end <= of_first) first = out.size();
      done = end;
    });
    keep(text.size());
    of_first = first;
    return out;
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

bool is_chinese(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
      {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  for (const auto& [first, last] : kRanges) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

std::string bert_clean(std::string_view text) {
  const CharacterTable& table = CharacterTable::get();
  return change_characters(text, [&](std::string& out, char32_t c) {
    if (table.is(c, kCleaned)) return;
    if (table.is(c, kSpace)) {
      out += ' ';
    } else {
      append_utf8(out, c);
    }
  });
}

std::string space_around_chinese(std::string_view text) {
  return change_characters(text, [](std::string& out, char32_t c) {
    const bool chinese = is_chinese(c);
    if (chinese) out += ' ';
    append_utf8(out, c);
    if (chinese) out += ' ';
  });
}

class StripStep final : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string_view text, size_t& of_first) const override {
    const CharacterTable& table = CharacterTable::get();
    while (left_ && !text.empty()) {
      size_t at = 0;
      if (!table.is(next_character(text, at), kSpace)) break;
      text.remove_prefix(at);
      of_first -= std::min(of_first, at);
    }
    while (right_ && !text.empty()) {
      size_t at = character_before(text, text.size());
      const size_t begin = at;
      if (!table.is(next_character(text, at), kSpace)) break;
      text = text.substr(0, begin);
    }
    of_first = std::min(of_first, text.size());
    return std::string(text);
  }

 private:
  bool left_, right_;
};

class PrependStep final : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string_view text, size_t& of_first) const override {
    if (text.empty()) return {};
    if (of_first > 0) of_first += prefix_.size();
    return prefix_ + std::string(text);
  }

 private:
  std::string prefix_;
};

// sentencepiece's "nmt" rules: control characters go, separators become spaces.
std::string nmt(std::string_view text) {
  return change_characters(text, [](std::string& out, char32_t c) {
    const bool removed = (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) ||
                         c == 0x7F || c == 0x8F || c == 0x9F;
    const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    if (space) {
      out += ' ';
    } else if (!removed) {
      append_utf8(out, c);
    }
  });
}

TextFunction parse_bert(const files::json::Value& part) {
  require_known_keys(part,
                     {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool clean = flag(part, "clean_text", true);
  const bool chinese = flag(part, "handle_chinese_chars", true);
  const bool lower = flag(part, "lowercase", true);
  const bool accents = flag(part, "strip_accents", lower);
  if (accents) require_normal_forms("the normalizer BertNormalizer with strip_accents");
  return [=](std::string_view text) {
    std::string out(text);
    if (clean) out = bert_clean(out);
    if (chinese) out = space_around_chinese(out);
    if (accents) out = without_kind(normalize(out, NormalForm::nfd), kBertAccent);
    if (lower) out = lower_case(out);
    return out;
  };
}

TextFunction parse_normal_form(const files::json::Value& type) {
  static constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::nfc},
                                                                       {"NFD", NormalForm::nfd},
                                                                       {"NFKC", NormalForm::nfkc},
                                                                       {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : kForms) {
    if (!type.is_string(name)) continue;
    require_normal_forms(str("the normalizer ", name));
    return [form = form](std::string_view text) { return normalize(text, form); };
  }
  return nullptr;
}

TextFunction parse_precompiled(const files::json::Value& part) {
  require_known_keys(part, {"type", "precompiled_charsmap"});
  require_normal_forms("the normalizer Precompiled");
  const files::json::Value& table = part.at("precompiled_charsmap");
  const std::optional<std::string> bytes = decode_base64(table.as_string());
  if (!bytes) table.fail("is not base64");
  try {
    const auto map = std::make_shared<const PrecompiledMap>(*bytes);
    return [map](std::string_view text) { return map->apply(text); };
  } catch (const DataError& error) {
    table.fail(error.what());
  }
}

// Null where the type is none of these.
TextFunction parse_simple(const files::json::Value& part, const files::json::Value& type) {
  if (TextFunction form = parse_normal_form(type)) {
    require_known_keys(part, {"type"});
    return form;
  }
  if (type.is_string("Lowercase")) {
    require_known_keys(part, {"type"});
    return lower_case;
  }
  if (type.is_string("StripAccents")) {
    require_known_keys(part, {"type"});
    return [](std::string_view text) { return without_kind(text, kAccent); };
  }
  if (type.is_string("Nmt")) {
    require_known_keys(part, {"type"});
    return nmt;
  }
  if (type.is_string("ByteLevel")) {
    require_known_keys(part, {"type"});
    return bytes_to_characters;
  }
  if (type.is_string("BertNormalizer")) return parse_bert(part);
  if (type.is_string("Precompiled")) return parse_precompiled(part);
  return nullptr;
}

}  // namespace

void Normalizer::add(const files::json::Value& part) {
  const files::json::Value& type = part.at("type");
  if (steps_.size() >= kMaxNormalizerSteps) {
    part.fail(str("more than ", kMaxNormalizerSteps, " steps"));
  }
  if (type.is_string("Sequence")) {
    require_known_keys(part, {"type", "normalizers"});
    for (const files::json::Value& inner : part.at("normalizers").as_array()) add(inner);
  } else if (type.is_string("Replace")) {
    require_known_keys(part, {"type", "pattern", "content"});
    if (part.at("content").as_string().size() > kMaxContentBytes) {
      part.at("content").fail(str("is longer than ", kMaxContentBytes, " bytes"));
    }
    steps_.push_back(std::make_unique<ReplaceStep>(parse_pattern(part.at("pattern")),
                                                   part.at("content").as_string()));
  } else if (type.is_string("Strip")) {
    require_known_keys(part, {"type", "strip_left", "strip_right"});
    steps_.push_back(std::make_unique<StripStep>(flag(part, "strip_left", true),
                                                 flag(part, "strip_right", true)));
  } else if (type.is_string("Prepend")) {
    require_known_keys(part, {"type", "prepend"});
    steps_.push_back(std::make_unique<PrependStep>(part.at("prepend").as_string()));
  } else if (TextFunction function = parse_simple(part, type)) {
    steps_.push_back(
        std::make_unique<FunctionStep>(std::move(function), type.is_string("Precompiled")));
  } else {
    refuse_type(type, "normalizer",
                "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, "
                "Prepend, Replace, Sequence, Strip, StripAccents");
  }
}

Normalizer Normalizer::parse(const files::json::Value* part) {
  Normalizer normalizer;
  if (part != nullptr && !part->is_null()) normalizer.add(*part);
  return normalizer;
}

std::string Normalizer::apply(std::string_view text) const {
  size_t of_first = 0;
  return apply(text, of_first);
}

std::string Normalizer::apply(std::string_view text, size_t& of_first) const {
  std::string out(text);
  const size_t limit = kMaxGrowth * (text.size() + 1024);
  for (const auto& step : steps_) {
    out = step->apply(out, of_first);
    if (out.size() > limit) {
      throw DataError(str("the normalizer makes more than ", limit, " bytes of text of ",
                          text.size(), " bytes"));
    }
  }
  return out;
}

}  // namespace zinc::text
