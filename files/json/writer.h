// files/json/writer.h: JSON text with numbers that read back to the same bits.
//
// Keys keep the order of the calls. Numbers are the shortest decimal text that reads back to the
// same value of their type; NaN and infinities, which JSON cannot say, become null. Strings are
// UTF-8; bytes that are not become U+FFFD. Calls that make no JSON throw InternalError.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/json/value.h"

namespace zinc::files::json {

class Writer {
 public:
  // indent 0: everything on one line without spaces; otherwise one member or element per line,
  // except arrays of scalars.
  explicit Writer(int indent = 0) : indent_(indent) {}

  Writer& begin_object();
  Writer& end_object();
  Writer& begin_array();
  Writer& end_array();
  Writer& key(std::string_view key);

  Writer& value(std::nullptr_t);
  Writer& value(std::same_as<bool> auto x) { return literal(x ? "true" : "false"); }
  Writer& value(std::signed_integral auto x) { return integer(static_cast<int64_t>(x)); }
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Writer& value(T x) { return natural(static_cast<uint64_t>(x)); }
  Writer& value(double x);
  Writer& value(float x);  // shortest text that gives the same float, also by way of a double
  Writer& value(std::string_view x);
  Writer& value(const char* x) { return value(std::string_view(x)); }
  Writer& value(const std::string& x) { return value(std::string_view(x)); }
  Writer& value(const Value& x);

  // key() and value().
  template <class T>
  Writer& member(std::string_view name, const T& x) {
    key(name);
    return value(x);
  }

  // The text of one complete value; the writer is empty afterwards.
  std::string take();

 private:
  struct Frame {
    bool object;
    bool flat;  // on one line
    bool has_key = false;
    int64_t count = 0;
  };
  Writer& literal(std::string_view text);
  Writer& integer(int64_t x);
  Writer& natural(uint64_t x);
  void begin_value(bool scalar);
  void newline(size_t depth);
  void begin(bool object, bool flat);
  void end(bool object);

  int indent_;
  std::string out_;
  std::vector<Frame> frames_;
};

// The text of a value; with indent a newline ends it.
std::string write(const Value& value, int indent = 0);

// Appends `text` in quotes with JSON's escapes.
void append_quoted(std::string& out, std::string_view text);

// JSON that may stand in a script element of HTML: '<', '>' and '&', which are in strings alone,
// are written as escapes.
std::string without_markup(std::string_view json);

}  // namespace zinc::files::json
