#include "text/token_decoder.h"

#include <optional>
#include <utility>

#include "core/error.h"
#include "files/utf8.h"
#include "text/byte_level.h"
#include "text/json_parts.h"
#include "text/pattern.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

constexpr size_t kMaxDecoderSteps = 64;

// A step that treats each token alone.
class SingleStep : public DecoderStep {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    bool first = true;
    for (std::string& token : tokens) {
      token = decode_one(std::move(token), std::exchange(first, false));
    }
  }
};

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = text.find(from); at != text.npos; at = text.find(from)) {
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  return out += text;
}

// Joins all tokens as bytes.
class ByteLevelDecoder final : public DecoderStep {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += decode_one(token, false);
    tokens = {files::replace_invalid_utf8(bytes)};
  }
  std::string decode_one(std::string token, bool) const override {
    std::optional<std::string> bytes = characters_to_bytes(token);
    return bytes ? std::move(*bytes) : token;
  }
};

class WordPieceDecoder final : public SingleStep {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  std::string decode_one(std::string token, bool first) const override {
    if (!first) {
      token = token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
    }
    if (!cleanup_) return token;
    static constexpr std::pair<std::string_view, std::string_view> kClean[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kClean) token = replace_all(token, from, to);
    return token;
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class MetaspaceDecoder final : public SingleStep {
 public:
  MetaspaceDecoder(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), drops_first_(drops_first) {}
  std::string decode_one(std::string token, bool first) const override {
    return replace_all(token, replacement_, first && drops_first_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

class ReplaceDecoder final : public SingleStep {
 public:
  ReplaceDecoder(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string decode_one(std::string token, bool) const override {
    std::string out;
    size_t done = 0;
    pattern_->for_each_match(token, [&](size_t begin, size_t end) {
      out += token.substr(done, begin - done) + content_;
      done = end;
    });
    return out += token.substr(done);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class FuseDecoder final : public DecoderStep {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {all};
  }
  std::string decode_one(std::string token, bool) const override { return token; }
};

class StripDecoder final : public DecoderStep {
 public:
  // `of_whole`: tokens are fused before, so that only the text has a beginning.
  StripDecoder(std::string content, int64_t start, int64_t stop, bool of_whole)
      : content_(std::move(content)), start_(start), stop_(stop), of_whole_(of_whole) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = strip(std::move(token));
  }
  std::string decode_one(std::string token, bool first) const override {
    return first || !of_whole_ ? strip(std::move(token)) : token;
  }

 private:
  std::string strip(std::string token) const {
    std::string_view rest = token;
    for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
      rest.remove_prefix(content_.size());
    }
    for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
      rest.remove_suffix(content_.size());
    }
    return std::string(rest);
  }
  std::string content_;
  int64_t start_, stop_;
  bool of_whole_;
};

// <0x..> tokens are bytes.
class ByteFallbackDecoder final : public DecoderStep {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (files::first_invalid_utf8(std::string_view(bytes))) {
        for (size_t i = 0; i < bytes.size(); ++i) out.emplace_back("\xEF\xBF\xBD");
      } else {
        out.push_back(bytes);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = byte_of(token)) {
        bytes += *byte;
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }
  std::string decode_one(std::string token, bool) const override {
    const std::optional<char> byte = byte_of(token);
    return byte ? std::string(1, *byte) : token;
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return {};
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return {};
      value = value * 16 + digit;
    }
    return static_cast<char>(value);
  }
};

class JoinDecoder final : public SingleStep {
 public:
  std::string decode_one(std::string token, bool first) const override {
    return first ? token : " " + token;
  }
};

}  // namespace

void TokenDecoder::add(const files::json::Value& part) {
  const files::json::Value& type = part.at("type");
  if (steps_.size() >= kMaxDecoderSteps) {
    part.fail(str("more than ", kMaxDecoderSteps, " steps"));
  }
  const auto push = [&](std::unique_ptr<DecoderStep> step) { steps_.push_back(std::move(step)); };
  if (type.is_string("Sequence")) {
    require_known_keys(part, {"type", "decoders"});
    for (const files::json::Value& inner : part.at("decoders").as_array()) add(inner);
  } else if (type.is_string("ByteLevel")) {
    require_known_keys(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    push(std::make_unique<ByteLevelDecoder>());
  } else if (type.is_string("WordPiece")) {
    require_known_keys(part, {"type", "prefix", "cleanup"});
    push(std::make_unique<WordPieceDecoder>(text_or(part, "prefix", "##"),
                                            flag(part, "cleanup", true)));
  } else if (type.is_string("Metaspace")) {
    require_known_keys(
        part, {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
    const files::json::Value& replacement = part.at("replacement");
    if (replacement.as_string().empty()) replacement.fail("must be one character");
    const files::json::Value* scheme = part.find("prepend_scheme");
    const bool prepends =
        scheme != nullptr ? !scheme->is_string("never") : flag(part, "add_prefix_space", true);
    push(std::make_unique<MetaspaceDecoder>(replacement.as_string(), prepends));
  } else if (type.is_string("Replace")) {
    require_known_keys(part, {"type", "pattern", "content"});
    push(std::make_unique<ReplaceDecoder>(parse_pattern(part.at("pattern")),
                                          part.at("content").as_string()));
  } else if (type.is_string("Fuse")) {
    require_known_keys(part, {"type"});
    push(std::make_unique<FuseDecoder>());
  } else if (type.is_string("Strip")) {
    require_known_keys(part, {"type", "content", "start", "stop"});
    if (part.at("content").as_string().empty()) part.at("content").fail("must be one character");
    const bool fused =
        !steps_.empty() && dynamic_cast<const FuseDecoder*>(steps_.back().get()) != nullptr;
    push(std::make_unique<StripDecoder>(part.at("content").as_string(),
                                        part.at("start").as_int64(0), part.at("stop").as_int64(0),
                                        fused));
  } else if (type.is_string("ByteFallback")) {
    require_known_keys(part, {"type"});
    push(std::make_unique<ByteFallbackDecoder>());
  } else {
    refuse_type(type, "decoder",
                "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece");
  }
}

TokenDecoder TokenDecoder::parse(const files::json::Value* part) {
  TokenDecoder decoder;
  if (part == nullptr || part->is_null()) {
    decoder.steps_.push_back(std::make_unique<JoinDecoder>());
    return decoder;
  }
  decoder.add(*part);
  decoder.byte_level_ = part->at("type").is_string("ByteLevel");
  return decoder;
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step->decode(tokens);
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string TokenDecoder::bytes_of(std::string token, bool first) const {
  for (const auto& step : steps_) token = step->decode_one(std::move(token), first);
  return token;
}

}  // namespace zinc::text
