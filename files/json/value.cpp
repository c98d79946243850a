#include "files/json/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"

namespace zinc::files::json {
namespace {

// Objects up to this size are searched in order.
constexpr size_t kLinearSearch = 8;
constexpr double kTwo64 = 18446744073709551616.0;

constexpr double kTwo53 = 9007199254740992.0;

// A number's text taken apart: digits x 10^exponent, without leading and trailing zeros.
struct Decimal {
  std::string digits;
  int64_t exponent = 0;
  bool negative = false;

  // The power of ten of the first digit.
  int64_t scale() const { return exponent + static_cast<int64_t>(digits.size()); }
  bool is_whole() const { return digits.empty() || exponent >= 0; }
};

Decimal take_apart(std::string_view text) {
  constexpr int64_t kFar = 1'000'000'000'000;  // further than any text is long
  Decimal decimal;
  decimal.negative = text.starts_with('-');
  if (decimal.negative) text.remove_prefix(1);
  const size_t mark = std::min(text.find_first_of("eE"), text.size());
  if (mark < text.size()) {
    std::string_view power = text.substr(mark + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    const char* end = power.data() + power.size();
    if (std::from_chars(power.data(), end, decimal.exponent).ec != std::errc{}) {
      decimal.exponent = power.starts_with('-') ? -kFar : kFar;
    }
    decimal.exponent = std::clamp(decimal.exponent, -kFar, kFar);
  }
  std::string digits(text.substr(0, mark));
  if (const size_t point = digits.find('.'); point != std::string::npos) {
    decimal.exponent -= static_cast<int64_t>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  const size_t last = digits.find_last_not_of('0');
  if (last == std::string::npos) return decimal;
  decimal.exponent += static_cast<int64_t>(digits.size() - last - 1);
  decimal.digits = digits.substr(digits.find_first_not_of('0'), std::string::npos);
  decimal.digits.resize(decimal.digits.size() - (digits.size() - last - 1));
  return decimal;
}

// Empty where the whole number is beyond 64 bits.
std::optional<uint64_t> magnitude_of(const Decimal& whole) {
  if (whole.digits.empty()) return 0;
  if (whole.scale() > 20) return std::nullopt;
  uint64_t value = 0;
  const auto push = [&](uint64_t digit) {
    return !__builtin_mul_overflow(value, uint64_t{10}, &value) &&
           !__builtin_add_overflow(value, digit, &value);
  };
  for (const char c : whole.digits) {
    if (!push(static_cast<uint64_t>(c - '0'))) return std::nullopt;
  }
  for (int64_t i = 0; i < whole.exponent; ++i) {
    if (!push(0)) return std::nullopt;
  }
  return value;
}

constexpr uint64_t kInt64MinMagnitude = uint64_t{1} << 63;

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "a boolean";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "a string";
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
  }
  return "?";
}

Number::Number(double value)
    : value_(value), negative_(std::signbit(value)), integral_(false), has_point_(true) {
  const double magnitude = std::fabs(value);
  if (!(magnitude < kTwo64) || magnitude != std::floor(magnitude)) return;
  magnitude_ = static_cast<uint64_t>(magnitude);
  integral_ = !negative_ || magnitude_ <= kInt64MinMagnitude;
  if (!integral_) magnitude_ = 0;
}

Number::Number(int64_t value)
    : value_(static_cast<double>(value)),
      magnitude_(value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value)),
      negative_(value < 0) {}

Number::Number(uint64_t value) : value_(static_cast<double>(value)), magnitude_(value) {}

std::optional<Number> Number::parse(std::string_view text) {
  const Decimal decimal = take_apart(text);
  double value = 0.0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    if (decimal.scale() > 0) return std::nullopt;
    value = decimal.negative ? -0.0 : 0.0;
  } else if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  Number number(value);
  number.has_point_ = text.find_first_of(".eE") != text.npos;
  if (decimal.is_whole()) {
    const std::optional<uint64_t> magnitude = magnitude_of(decimal);
    number.integral_ =
        magnitude.has_value() && (!decimal.negative || *magnitude <= kInt64MinMagnitude);
    number.magnitude_ = number.integral_ ? *magnitude : 0;
  }
  return number;
}

std::optional<int64_t> Number::to_int64() const {
  if (!integral_) return std::nullopt;
  if (negative_) return static_cast<int64_t>(~magnitude_ + 1);
  if (magnitude_ >= kInt64MinMagnitude) return std::nullopt;
  return static_cast<int64_t>(magnitude_);
}

std::optional<uint64_t> Number::to_uint64() const {
  if (!integral_ || (negative_ && magnitude_ != 0)) return std::nullopt;
  return magnitude_;
}

std::string Number::text() const {
  if (integral_) return str(negative_ ? "-" : "", magnitude_, has_point_ ? ".0" : "");
  if (std::fabs(value_) < kTwo53) return str(value_);
  // Written out, the digits could be those of an integer that has its place in 64 bits.
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value_, std::chars_format::scientific);
  return std::string(buffer, end.ptr);
}

// --- Object

Object::Object() = default;
Object::~Object() = default;
Object::Object(const Object&) = default;
Object::Object(Object&&) noexcept = default;
Object& Object::operator=(const Object&) = default;
Object& Object::operator=(Object&&) noexcept = default;

size_t Object::size() const { return members_.size(); }
const Member* Object::begin() const { return members_.data(); }
const Member* Object::end() const { return members_.data() + members_.size(); }

const Member* Object::find_member(std::string_view key) const {
  if (by_key_.empty()) {
    const auto found = std::find_if(members_.begin(), members_.end(),
                                    [&](const Member& member) { return member.key == key; });
    return found == members_.end() ? nullptr : &*found;
  }
  const auto found =
      std::lower_bound(by_key_.begin(), by_key_.end(), key,
                       [&](uint32_t i, std::string_view k) { return members_[i].key < k; });
  if (found == by_key_.end() || members_[*found].key != key) return nullptr;
  return &members_[*found];
}

const Value* Object::find(std::string_view key) const {
  const Member* member = find_member(key);
  return member == nullptr ? nullptr : &member->value;
}

Value& Object::set(std::string_view key, Value value) {
  if (const Member* present = find_member(key); present != nullptr) {
    Member& member = members_[static_cast<size_t>(present - members_.data())];
    member.value = std::move(value);
    return member.value;
  }
  by_key_.clear();
  members_.push_back({.key = std::string(key), .value = std::move(value), .key_span = {}});
  return members_.back().value;
}

void Object::append(Member member) { members_.push_back(std::move(member)); }

std::vector<uint32_t> Object::sort_by_key() {
  std::vector<uint32_t> order(members_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return members_[a].key < members_[b].key; });
  std::vector<uint32_t> repeated;
  for (size_t i = 1; i < order.size(); ++i) {
    if (members_[order[i]].key == members_[order[i - 1]].key) repeated.push_back(order[i]);
  }
  std::sort(repeated.begin(), repeated.end());
  if (members_.size() > kLinearSearch) by_key_ = std::move(order);
  return repeated;
}

// --- Value

Value::Value() = default;
Value::~Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::Value(Array value) : data_(std::move(value)) {}
Value::Value(Object value) : data_(std::move(value)) {}

std::string Value::path() const {
  return source_ == nullptr ? std::string() : source_->path(span_.begin);
}

void Value::fail(std::string_view message) const {
  if (source_ == nullptr) throw DataError(std::string(message));
  const std::string where = path();
  throw DataError(source_->describe(span_, str(where, where.empty() ? "" : ": ", message)));
}

void Value::expected(std::string_view what) const {
  std::string got(name_of(kind()));
  if (is_bool()) got = std::get<bool>(data_) ? "true" : "false";
  if (is_number()) got = std::get<Number>(data_).text();
  if (is_string()) {
    const std::string& text = std::get<std::string>(data_);
    got = text.size() <= 40 ? str("\"", text, "\"") : "a string";
  }
  fail(str("expected ", what, ", got ", got));
}

bool Value::as_bool() const {
  if (!is_bool()) expected("true or false");
  return std::get<bool>(data_);
}

const Number& Value::as_number() const {
  if (!is_number()) expected("a number");
  return std::get<Number>(data_);
}

double Value::as_double() const { return as_number().to_double(); }

int64_t Value::as_int64(int64_t min, int64_t max) const {
  if (!is_integer()) expected("an integer");
  const std::optional<int64_t> value = std::get<Number>(data_).to_int64();
  if (value.has_value() && *value >= min && *value <= max) return *value;
  if (max == std::numeric_limits<int64_t>::max()) {
    expected(min == std::numeric_limits<int64_t>::min() ? "a 64-bit integer"
                                                        : str("an integer of at least ", min));
  }
  expected(str("an integer from ", min, " to ", max));
}

uint64_t Value::as_uint64() const {
  if (!is_integer()) expected("an integer");
  const std::optional<uint64_t> value = std::get<Number>(data_).to_uint64();
  if (!value.has_value()) expected("an integer of at least 0");
  return *value;
}

const std::string& Value::as_string() const {
  if (!is_string()) expected("a string");
  return std::get<std::string>(data_);
}

const Array& Value::as_array() const {
  if (!is_array()) expected("an array");
  return std::get<Array>(data_);
}

const Object& Value::as_object() const {
  if (!is_object()) expected("an object");
  return std::get<Object>(data_);
}

const Value* Value::find(std::string_view key) const { return as_object().find(key); }

const Value& Value::at(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) fail(str("key \"", key, "\" is missing"));
  return *value;
}

const Value& Value::at(size_t index) const {
  const Array& array = as_array();
  if (index >= array.size()) {
    fail(str("element ", index, " is missing: there are ", array.size()));
  }
  return array[index];
}

size_t Value::size() const {
  if (is_object()) return std::get<Object>(data_).size();
  if (!is_array()) expected("an array or an object");
  return std::get<Array>(data_).size();
}

bool operator==(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::null:
      return true;
    case Kind::boolean:
      return std::get<bool>(a.data_) == std::get<bool>(b.data_);
    case Kind::number:
      return std::get<Number>(a.data_) == std::get<Number>(b.data_);
    case Kind::string:
      return std::get<std::string>(a.data_) == std::get<std::string>(b.data_);
    case Kind::array:
      return std::get<Array>(a.data_) == std::get<Array>(b.data_);
    case Kind::object:
      break;
  }
  const Object& left = std::get<Object>(a.data_);
  const Object& right = std::get<Object>(b.data_);
  return std::equal(
      left.begin(), left.end(), right.begin(), right.end(),
      [](const Member& x, const Member& y) { return x.key == y.key && x.value == y.value; });
}

}  // namespace zinc::files::json
