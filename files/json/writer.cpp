#include "files/json/writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "files/utf8.h"

namespace zinc::files::json {
namespace {

void append_escaped(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    out += c;
    return;
  }
  out += "\\u00";
  out += kHex[static_cast<unsigned char>(c) >> 4];
  out += kHex[static_cast<unsigned char>(c) & 15];
}

bool is_flat(const Value& array) {
  return std::none_of(array.as_array().begin(), array.as_array().end(),
                      [](const Value& x) { return x.is_array() || x.is_object(); });
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t length = utf8_character_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1) {
      append_escaped(out, text.front());
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

void Writer::newline(size_t depth) {
  if (indent_ == 0) return;
  out_ += '\n';
  out_.append(depth * static_cast<size_t>(indent_), ' ');
}

void Writer::begin_value(bool scalar) {
  if (frames_.empty()) {
    bug_check(out_.empty(), "json::Writer: a second value at the top");
    return;
  }
  Frame& frame = frames_.back();
  if (frame.object) {
    bug_check(std::exchange(frame.has_key, false), "json::Writer: a value without a key");
    return;
  }
  bug_check(scalar || !frame.flat, "json::Writer: a container in a flat array");
  if (frame.count++ > 0) out_ += frame.flat && indent_ > 0 ? ", " : ",";
  if (!frame.flat) newline(frames_.size());
}

void Writer::begin(bool object, bool flat) {
  begin_value(false);
  out_ += object ? '{' : '[';
  frames_.push_back({.object = object, .flat = flat});
}

void Writer::end(bool object) {
  bug_check(!frames_.empty() && frames_.back().object == object && !frames_.back().has_key,
            "json::Writer: nothing to close here");
  const Frame frame = frames_.back();
  frames_.pop_back();
  if (frame.count > 0 && !frame.flat) newline(frames_.size());
  out_ += object ? '}' : ']';
}

Writer& Writer::begin_object() {
  begin(true, false);
  return *this;
}

Writer& Writer::end_object() {
  end(true);
  return *this;
}

Writer& Writer::begin_array() {
  begin(false, false);
  return *this;
}

Writer& Writer::end_array() {
  end(false);
  return *this;
}

Writer& Writer::key(std::string_view key) {
  bug_check(!frames_.empty() && frames_.back().object && !frames_.back().has_key,
            "json::Writer: no place for a key");
  Frame& frame = frames_.back();
  if (frame.count++ > 0) out_ += ',';
  newline(frames_.size());
  append_quoted(out_, key);
  out_ += indent_ > 0 ? ": " : ":";
  frame.has_key = true;
  return *this;
}

Writer& Writer::literal(std::string_view text) {
  begin_value(true);
  out_ += text;
  return *this;
}

Writer& Writer::integer(int64_t x) { return literal(str(x)); }
Writer& Writer::natural(uint64_t x) { return literal(str(x)); }
Writer& Writer::value(std::nullptr_t) { return literal("null"); }

Writer& Writer::value(double x) { return literal(std::isfinite(x) ? Number(x).text() : "null"); }

Writer& Writer::value(float x) {
  if (!std::isfinite(x)) return literal("null");
  const std::string text = str(x);
  double read = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), read);
  // A reader that goes by way of a double rounds twice.
  if (static_cast<float>(read) != x) return value(static_cast<double>(x));
  const bool has_point = text.find_first_of(".e") != text.npos;
  return literal(has_point ? text : text + ".0");
}

Writer& Writer::value(std::string_view x) {
  begin_value(true);
  append_quoted(out_, x);
  return *this;
}

Writer& Writer::value(const Value& x) {
  switch (x.kind()) {
    case Kind::null:
      return value(nullptr);
    case Kind::boolean:
      return value(x.as_bool());
    case Kind::number:
      return std::isfinite(x.as_double()) ? literal(x.as_number().text()) : value(nullptr);
    case Kind::string:
      return value(x.as_string());
    case Kind::array:
      begin(false, is_flat(x));
      for (const Value& element : x.as_array()) value(element);
      return end_array();
    case Kind::object:
      break;
  }
  begin_object();
  for (const Member& member : x.as_object()) {
    key(member.key);
    value(member.value);
  }
  return end_object();
}

std::string Writer::take() {
  bug_check(frames_.empty() && !out_.empty(), "json::Writer: the value is not complete");
  return std::exchange(out_, {});
}

std::string write(const Value& value, int indent) {
  Writer writer(indent);
  writer.value(value);
  std::string text = writer.take();
  if (indent > 0) text += '\n';
  return text;
}

std::string without_markup(std::string_view json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else if (c == '>') {
      safe += "\\u003e";
    } else if (c == '&') {
      safe += "\\u0026";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace zinc::files::json
