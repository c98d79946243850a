#include "files/json/parser.h"

#include <rapidjson/error/error.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include "core/error.h"
#include "files/other_content.h"
#include "files/utf8.h"

namespace zinc::files::json {

namespace {

std::string_view explain(rapidjson::ParseErrorCode code) {
  switch (code) {
    case rapidjson::kParseErrorDocumentEmpty:
      return "there is no value here";
    case rapidjson::kParseErrorDocumentRootNotSingular:
      return "something follows the value, which has ended";
    case rapidjson::kParseErrorValueInvalid:
      return "a value must stand here: an object, an array, a string, a number, true, false or "
             "null";
    case rapidjson::kParseErrorObjectMissName:
      return "a key in double quotes must stand here";
    case rapidjson::kParseErrorObjectMissColon:
      return "a colon must follow the key";
    case rapidjson::kParseErrorObjectMissCommaOrCurlyBracket:
      return "a comma or a closing } must stand here";
    case rapidjson::kParseErrorArrayMissCommaOrSquareBracket:
      return "a comma or a closing ] must stand here";
    case rapidjson::kParseErrorStringUnicodeEscapeInvalidHex:
      return "\\u needs four hexadecimal digits";
    case rapidjson::kParseErrorStringUnicodeSurrogateInvalid:
      return "\\u escapes half of a surrogate pair";
    case rapidjson::kParseErrorStringEscapeInvalid:
      return "unknown escape: only \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u are known";
    case rapidjson::kParseErrorStringMissQuotationMark:
      return "the string does not end";
    case rapidjson::kParseErrorStringInvalidEncoding:
      return "a control character in a string, or a string that does not end in its line";
    case rapidjson::kParseErrorNumberTooBig:
      return "this number is too large";
    case rapidjson::kParseErrorNumberMissFraction:
      return "a digit must follow the point";
    case rapidjson::kParseErrorNumberMissExponent:
      return "a digit must follow the exponent's mark";
    default:
      return "this is no JSON";
  }
}

// Errors for which RapidJSON's offset lies within or behind the token that is wrong.
bool concerns_token(rapidjson::ParseErrorCode code) {
  switch (code) {
    case rapidjson::kParseErrorValueInvalid:
    case rapidjson::kParseErrorStringMissQuotationMark:
    case rapidjson::kParseErrorNumberTooBig:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Receives RapidJSON's events and builds the value. See Note [Places].
class Builder {
 public:
  Builder(std::shared_ptr<const Source> source, std::string_view text, const ParseOptions& options)
      : source_(std::move(source)), text_(text), options_(options) {}

  // Note [Places]
  // RapidJSON tells where it stands, which is behind a scalar and on a bracket. What lies between
  // two events is white space, commas and colons only (comments are blanked before), so the place
  // of a token is found by stepping over those from the end of the token before it.
  size_t now = 0;  // position of the stream; kept by the stream

  // The reason why the builder stopped the parse, if it did.
  const std::string& refusal() const { return refusal_; }
  uint32_t refusal_at() const { return refusal_at_; }
  const std::vector<std::string>& duplicates() const { return duplicates_; }
  Value take_root() { return std::move(root_); }

  bool scalar(Value value) {
    const Span span = token(now);
    value.span_ = span;
    value.source_ = source_;
    return add(std::move(value));
  }

  bool number(std::string_view text) {
    const std::optional<Number> value = Number::parse(text);
    if (!value.has_value()) return refuse(token(now).begin, "this number is too large");
    return scalar(Value(*value));
  }

  bool string(std::string_view text) {
    return is_unicode(text) && scalar(Value(std::string(text)));
  }

  bool key(std::string_view text) {
    if (!is_unicode(text)) return false;
    frames_.back().key = text;
    frames_.back().key_span = token(now);
    return true;
  }

  // The beginning of the token that the stream is in.
  size_t token_begin() const { return step_over_separators(now); }

  bool begin(bool object) {
    const auto at = static_cast<uint32_t>(now);
    cursor_ = now + 1;
    if (static_cast<int>(frames_.size()) >= options_.max_depth) {
      return refuse(at, str("nested deeper than ", options_.max_depth, " levels"));
    }
    frames_.push_back({.object = object, .at = {at, at + 1}});
    return true;
  }

  bool end() {
    cursor_ = now + 1;
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    Value value;
    if (frame.object) {
      report_duplicates(frame.members);
      value = Value(std::move(frame.members));
    } else {
      value = Value(std::move(frame.elements));
    }
    value.span_ = frame.at;
    value.source_ = source_;
    return add(std::move(value));
  }

 private:
  struct Frame {
    bool object;
    Span at;
    Object members{};
    Array elements{};
    std::string key{};
    Span key_span{};
  };

  size_t step_over_separators(size_t end) const {
    size_t at = cursor_;
    while (at < end &&
           (text_[at] == ',' || text_[at] == ':' || static_cast<unsigned char>(text_[at]) <= ' ')) {
      ++at;
    }
    return at;
  }

  Span token(size_t end) {
    const Span span{static_cast<uint32_t>(step_over_separators(end)), static_cast<uint32_t>(end)};
    cursor_ = end;
    return span;
  }

  // RapidJSON lets an escaped low surrogate pass that has no high one before it.
  bool is_unicode(std::string_view text) {
    return !first_invalid_utf8(text) ||
           refuse(token(now).begin, explain(rapidjson::kParseErrorStringUnicodeSurrogateInvalid));
  }

  bool add(Value value) {
    if (++count_ > options_.max_values) {
      return refuse(value.span_.begin, str("more than ", options_.max_values, " values"));
    }
    if (frames_.empty()) {
      root_ = std::move(value);
    } else if (frames_.back().object) {
      Frame& frame = frames_.back();
      frame.members.append({std::move(frame.key), std::move(value), frame.key_span});
    } else {
      frames_.back().elements.push_back(std::move(value));
    }
    return true;
  }

  void report_duplicates(Object& object) {
    constexpr size_t kMostReported = 20;
    for (const uint32_t i : object.sort_by_key()) {
      const Member& again = object.begin()[i];
      const Member& first = *std::find_if(object.begin(), object.end(), [&](const Member& member) {
        return member.key == again.key;
      });
      if (duplicates_.size() == kMostReported) return;
      duplicates_.push_back(source_->describe(
          again.key_span, str("duplicate key \"", again.key, "\": it stands in line ",
                              source_->position(first.key_span.begin).line, " already")));
    }
  }

  bool refuse(uint32_t at, std::string_view why) {
    refusal_ = why;
    refusal_at_ = at;
    return false;
  }

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  const ParseOptions& options_;
  std::vector<Frame> frames_;
  size_t cursor_ = 0;  // behind the last token
  int64_t count_ = 0;
  Value root_;
  std::string refusal_;
  uint32_t refusal_at_ = 0;
  std::vector<std::string> duplicates_;
};

namespace {

struct SaxEvents {
  Builder& builder;
  bool Null() { return builder.scalar(Value()); }
  bool Bool(bool value) { return builder.scalar(Value(value)); }
  bool RawNumber(const char* text, rapidjson::SizeType length, bool) {
    return builder.number({text, length});
  }
  bool String(const char* text, rapidjson::SizeType length, bool) {
    return builder.string({text, length});
  }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    return builder.key({text, length});
  }
  bool StartObject() { return builder.begin(true); }
  bool EndObject(rapidjson::SizeType) { return builder.end(); }
  bool StartArray() { return builder.begin(false); }
  bool EndArray(rapidjson::SizeType) { return builder.end(); }
  // Never called: numbers arrive as text.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }
};

// RapidJSON's stream concept over a string_view; the position lives in the builder.
struct Stream {
  using Ch = char;
  std::string_view text;
  Builder& builder;

  Ch Peek() const { return builder.now < text.size() ? text[builder.now] : '\0'; }
  Ch Take() { return builder.now < text.size() ? text[builder.now++] : '\0'; }
  size_t Tell() const { return builder.now; }
  Ch* PutBegin() { return nullptr; }
  void Put(Ch) {}
  void Flush() {}
  size_t PutEnd(Ch*) { return 0; }
};

// Puts spaces in the place of comments. Returns the offset of a block comment without an end, or
// npos.
size_t blank_comments(std::string& text) {
  size_t i = 0;
  const auto blank = [&](size_t end) {
    for (; i < end; ++i) {
      if (text[i] != '\n' && text[i] != '\r') text[i] = ' ';
    }
  };
  while (i < text.size()) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i) {
        if (text[i] == '\\') ++i;
      }
      ++i;
    } else if (text[i] == '#' || text.compare(i, 2, "//") == 0) {
      blank(std::min(text.find('\n', i), text.size()));
    } else if (text.compare(i, 2, "/*") == 0) {
      const size_t close = text.find("*/", i + 2);
      if (close == std::string::npos) return i;
      blank(close + 2);
    } else {
      ++i;
    }
  }
  return std::string::npos;
}

// Puts a number of the same length in the place of Infinity, so that offsets in the text stay.
void replace_infinity(std::string& text) {
  constexpr std::string_view kWord = "Infinity", kNumber = "1e000015";
  static_assert(kWord.size() == kNumber.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (text.compare(i, kWord.size(), kWord) == 0) {
      text.replace(i, kWord.size(), kNumber);
    }
  }
}

constexpr unsigned kFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag |
                            rapidjson::kParseNumbersAsStringsFlag;

rapidjson::ParseResult run(std::string_view text, Builder& builder, bool relaxed) {
  rapidjson::Reader reader;
  Stream stream{text, builder};
  SaxEvents events{builder};
  if (relaxed) {
    return reader.Parse<kFlags | rapidjson::kParseTrailingCommasFlag>(stream, events);
  }
  return reader.Parse<kFlags>(stream, events);
}

[[noreturn]] void refuse(const Source& source, size_t at, std::string_view why) {
  const auto begin = static_cast<uint32_t>(at);
  throw DataError(source.describe({begin, begin + 1}, why));
}

// Explains text that people and programs write and that is no JSON; empty for anything else.
std::string_view explain_by_text(std::string_view text, size_t at) {
  const std::string_view here = text.substr(at);
  if (here.starts_with("...")) return "\"...\" is a placeholder: write the values in its place";
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"}) {
    if (here.starts_with(word)) {
      return "JSON has no NaN and no infinities: write null, or leave the record out";
    }
  }
  if (here.starts_with("\xEF\xBB\xBF")) {
    return "a byte order mark stands here, as where files were joined: take these three bytes out";
  }
  return at == 0 ? other_content(text) : std::string_view();
}

void check_bytes(const Source& source) {
  if (const auto bad = first_invalid_utf8(source.text())) {
    refuse(source, static_cast<size_t>(*bad), "this byte is not part of UTF-8 text");
  }
  const size_t nul = source.text().find('\0');
  if (nul != std::string::npos) refuse(source, nul, "a NUL byte: this is no text");
}

}  // namespace

Value parse(std::string text, std::string name, const ParseOptions& options) {
  const int64_t limit = std::min<int64_t>(options.max_bytes, int64_t{UINT32_MAX} - 1);
  if (static_cast<int64_t>(text.size()) > limit) {
    throw DataError(
        str(name, ": ", text.size(), " bytes of JSON are more than the limit of ", limit));
  }
  if (options.relaxed && text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  const auto source =
      std::make_shared<const Source>(std::move(name), std::move(text), options.first_line);
  check_bytes(*source);

  std::string blanked;
  std::string_view view = source->text();
  if (options.relaxed) {
    blanked = source->text();
    const size_t open = blank_comments(blanked);
    if (open != std::string::npos) refuse(*source, open, "this comment does not end");
    replace_infinity(blanked);
    view = blanked;
  }

  Builder builder(source, view, options);
  const rapidjson::ParseResult result = run(view, builder, options.relaxed);
  if (!builder.refusal().empty()) refuse(*source, builder.refusal_at(), builder.refusal());
  if (result.IsError()) {
    const size_t at = concerns_token(result.Code()) ? builder.token_begin()
                                                    : std::min(result.Offset(), view.size());
    const std::string_view said = explain_by_text(view, at);
    refuse(*source, at, said.empty() ? explain(result.Code()) : said);
  }
  std::string problems;
  for (const std::string& duplicate : builder.duplicates()) {
    problems += (problems.empty() ? "" : "\n") + duplicate;
  }
  if (!problems.empty()) throw DataError(problems);
  return builder.take_root();
}

Value parse_file(const std::string& path, const ParseOptions& options) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) throw IoError("open", path, -1, errno);
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    const size_t got = std::fread(chunk, 1, sizeof chunk, file.get());
    text.append(chunk, got);
    if (std::ferror(file.get()) != 0) {
      throw IoError("read", path, static_cast<int64_t>(text.size()), errno);
    }
    if (got < sizeof chunk || static_cast<int64_t>(text.size()) > options.max_bytes) break;
  }
  if (static_cast<int64_t>(text.size()) > options.max_bytes) {
    throw DataError(
        str(path, ": the file is larger than the limit of ", options.max_bytes, " bytes for JSON"));
  }
  if (const std::string_view other = other_content(text); !other.empty()) {
    throw DataError(str(path, ": ", other));
  }
  return parse(std::move(text), path, options);
}

}  // namespace zinc::files::json
