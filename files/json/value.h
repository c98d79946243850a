// files/json/value.h: a JSON document as a value type that remembers where it was written.
//
// Checked accessors throw DataError with the file, line, column and path of the value:
//   config.json:7:18: vocab_size: expected an integer, got "50257"
// A value made by code has no place; the message then has the words only. Copies are deep; every
// value keeps the text it came from alive.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "files/json/source.h"

namespace zinc::files::json {

enum class Kind : uint8_t { null, boolean, number, string, array, object };
std::string_view name_of(Kind kind);  // "a string", "an object", ...

// A number with its exact integer where it has one: 7, 1e9 and 2.50e1 are integers, 0.5 is not, nor
// is anything outside the union of int64 and uint64. (Digits behind the point that a double cannot
// hold do not count: 1.00000000000000000001 is 1.)
class Number {
 public:
  Number() = default;
  explicit Number(double value);
  explicit Number(int64_t value);
  explicit Number(uint64_t value);
  // `text` in JSON's number grammar; empty where the value overflows a double.
  static std::optional<Number> parse(std::string_view text);

  double to_double() const { return value_; }  // nearest double of the decimal text
  bool is_integer() const { return integral_; }
  std::optional<int64_t> to_int64() const;
  std::optional<uint64_t> to_uint64() const;
  // Shortest decimal text that parses to the same Number. A whole one that came from a double, or
  // from a text with a point or an exponent, keeps a point, 1.0: readers tell the two apart.
  std::string text() const;
  // Compares the values; the way they are written does not count.
  friend bool operator==(const Number& a, const Number& b) {
    return a.value_ == b.value_ && a.magnitude_ == b.magnitude_ && a.negative_ == b.negative_ &&
           a.integral_ == b.integral_;
  }

 private:
  double value_ = 0.0;
  uint64_t magnitude_ = 0;
  bool negative_ = false;
  bool integral_ = true;
  bool has_point_ = false;
};

class Value;
struct Member;

// Members in the order of the text; no two have the same key. find() is logarithmic for a parsed
// object.
class Object {
 public:
  Object();
  ~Object();
  Object(const Object&);
  Object(Object&&) noexcept;
  Object& operator=(const Object&);
  Object& operator=(Object&&) noexcept;

  size_t size() const;
  bool empty() const { return size() == 0; }
  const Member* begin() const;
  const Member* end() const;
  const Value* find(std::string_view key) const;  // null when absent
  const Member* find_member(std::string_view key) const;
  Value& set(std::string_view key, Value value);  // replaces or appends

 private:
  friend class Builder;
  void append(Member member);  // the caller knows the key is new, or checks afterwards
  // Returns the indices of members that repeat an earlier key.
  std::vector<uint32_t> sort_by_key();
  std::vector<Member> members_;
  std::vector<uint32_t> by_key_;  // sorted by key; empty where members_ is short or was changed
};

using Array = std::vector<Value>;

class Value {
 public:
  Value();  // null
  ~Value();
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;

  // NOLINTBEGIN(google-explicit-constructor)
  Value(std::nullptr_t) : Value() {}
  template <std::same_as<bool> T>
  Value(T value) : data_(value) {}
  template <class T>
  requires(std::signed_integral<T>) Value(T value) : data_(Number(static_cast<int64_t>(value))) {}
  template <class T>
  requires(std::unsigned_integral<T> && !std::same_as<T, bool>) Value(T value)
      : data_(Number(static_cast<uint64_t>(value))) {}
  Value(double value) : data_(Number(value)) {}
  Value(Number value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(Array value);
  Value(Object value);
  // NOLINTEND(google-explicit-constructor)

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_bool() const { return kind() == Kind::boolean; }
  bool is_number() const { return kind() == Kind::number; }
  bool is_integer() const { return is_number() && std::get<Number>(data_).is_integer(); }
  bool is_string() const { return kind() == Kind::string; }
  bool is_string(std::string_view text) const {
    return is_string() && std::get<std::string>(data_) == text;
  }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // --- checked access; DataError where the kind, or the range [min, max], does not fit
  bool as_bool() const;
  const Number& as_number() const;
  double as_double() const;
  int64_t as_int64(int64_t min = std::numeric_limits<int64_t>::min(),
                   int64_t max = std::numeric_limits<int64_t>::max()) const;
  uint64_t as_uint64() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;

  // Objects: null when the key is absent; DataError where this is no object.
  const Value* find(std::string_view key) const;
  // Objects: DataError `key "x" is missing` where the key is absent.
  const Value& at(std::string_view key) const;
  // Arrays: DataError where the index is not in [0, size).
  const Value& at(size_t index) const;
  size_t size() const;  // elements or members; DataError for a scalar

  // --- place
  const Source* source() const { return source_.get(); }  // null for a value made by code
  Span span() const { return span_; }                     // a container's is its first byte
  std::string path() const;                               // empty for the root
  // Throws DataError "<place>: <path>: <message>" with the line and a caret.
  [[noreturn]] void fail(std::string_view message) const;

  // Equal kinds and contents; objects by order too. Places are not compared.
  friend bool operator==(const Value& a, const Value& b);

 private:
  friend class Builder;
  [[noreturn]] void expected(std::string_view what) const;
  std::variant<std::monostate, bool, Number, std::string, Array, Object> data_;
  Span span_;
  std::shared_ptr<const Source> source_;
};

struct Member {
  std::string key;
  Value value;
  Span key_span;  // with its quotes
};

}  // namespace zinc::files::json
