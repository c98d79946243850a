#include "text/normalizer.h"

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
constexpr size_t kMaxGrowth = 64;  // of a step: bytes of its result for one of its text

using TextFunction = std::function<std::string(std::string_view)>;

class FunctionStep final : public NormalizerStep {
 public:
  explicit FunctionStep(TextFunction function) : function_(std::move(function)) {}
  std::string apply(std::string_view text) const override { return function_(text); }

 private:
  TextFunction function_;
};

// `change` appends to its first argument what a character becomes.
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
  std::string apply(std::string_view text) const override {
    std::string out;
    size_t done = 0;
    pattern_->for_each_match(text, [&](size_t begin, size_t end) {
      out += text.substr(done, begin - done);
      out += content_;
      done = end;
    });
    return out += text.substr(done);
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

std::string strip(std::string_view text, bool left, bool right) {
  const CharacterTable& table = CharacterTable::get();
  while (left && !text.empty()) {
    size_t at = 0;
    if (!table.is(next_character(text, at), kSpace)) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    size_t at = character_before(text, text.size());
    const size_t begin = at;
    if (!table.is(next_character(text, at), kSpace)) break;
    text = text.substr(0, begin);
  }
  return std::string(text);
}

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
  if (type.is_string("Strip")) {
    require_known_keys(part, {"type", "strip_left", "strip_right"});
    const bool left = flag(part, "strip_left", true), right = flag(part, "strip_right", true);
    return [=](std::string_view text) { return strip(text, left, right); };
  }
  if (type.is_string("Prepend")) {
    require_known_keys(part, {"type", "prepend"});
    return [prefix = part.at("prepend").as_string()](std::string_view text) {
      return text.empty() ? std::string() : prefix + std::string(text);
    };
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
  } else if (TextFunction function = parse_simple(part, type)) {
    steps_.push_back(std::make_unique<FunctionStep>(std::move(function)));
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
  std::string out(text);
  const size_t limit = kMaxGrowth * (text.size() + 1024);
  for (const auto& step : steps_) {
    out = step->apply(out);
    if (out.size() > limit) {
      throw DataError(str("the normalizer makes more than ", limit, " bytes of text of ",
                          text.size(), " bytes"));
    }
  }
  return out;
}

}  // namespace zinc::text
