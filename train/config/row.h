// train/config/row.h: how a row of the table of keys is written.
//
//   block("zero_optimization", "...",
//         {works("stage", at(&Config::engine, &EngineConfig::zero, &ZeroConfig::stage),
//                between(0, 3), "", "what is sharded")})
//
// The type of a key follows from its member, and so does its default: that of a Config{}.
#pragma once

#include <chrono>
#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "train/config/config.h"
#include "train/config/key.h"

namespace zinc::train {

// --- values of JSON and of members
std::string_view deepspeed_name(DType dtype);  // "fp32", "fp16", "bf16"
// The index of `name` in upper or lower case; names.size() where it is none of them.
size_t index_of_name(const std::vector<std::string>& names, std::string_view name);
std::optional<double> number_of(const files::json::Value& value);  // numbers in quotes too
// "2GiB", "512MiB" or a number of bytes, at most kLargestCount as a number.
std::optional<int64_t> bytes_of(const files::json::Value& value);

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

// Products of the first two and any number of ranks stay within int64.
inline constexpr int64_t kLargestBatch = 1'000'000;
inline constexpr int64_t kLargestTotalBatch = 1'000'000'000'000;
inline constexpr int64_t kMostBuffers = 65'536;

using Milliseconds = std::chrono::milliseconds;  // in a file: seconds
using Texts = std::vector<std::string>;
using Integers = std::vector<int64_t>;

template <class T>
KeyType type_of() {
  if constexpr (is_optional<T>) {
    return type_of<typename T::value_type>();
  } else if constexpr (std::same_as<T, bool>) {
    return KeyType::boolean;
  } else if constexpr (std::same_as<T, uint64_t>) {
    return KeyType::unsigned_integer;
  } else if constexpr (std::integral<T>) {
    return KeyType::integer;
  } else if constexpr (std::same_as<T, DType>) {
    return KeyType::dtype;
  } else if constexpr (std::same_as<T, std::string>) {
    return KeyType::text;
  } else if constexpr (std::same_as<T, Texts>) {
    return KeyType::texts;
  } else if constexpr (std::same_as<T, Integers>) {
    return KeyType::integers;
  } else {
    static_assert(std::same_as<T, double> || std::same_as<T, Milliseconds>);
    return KeyType::number;
  }
}

template <class T>
files::json::Value to_value(const T& member) {
  if constexpr (is_optional<T>) {
    return member ? to_value(*member) : files::json::Value();
  } else if constexpr (std::same_as<T, DType>) {
    return deepspeed_name(member);
  } else if constexpr (std::same_as<T, Milliseconds>) {
    return static_cast<double>(member.count()) / 1000.0;
  } else if constexpr (std::same_as<T, Texts> || std::same_as<T, Integers>) {
    return files::json::Array(member.begin(), member.end());
  } else {
    return member;
  }
}

template <class T>
void assign(T& member, const files::json::Value& value) {
  if constexpr (is_optional<T>) {
    member.reset();
    if (!value.is_null()) assign(member.emplace(), value);
  } else if constexpr (std::same_as<T, bool>) {
    member = value.as_bool();
  } else if constexpr (std::same_as<T, uint64_t>) {
    member = value.as_uint64();
  } else if constexpr (std::integral<T>) {
    member = static_cast<T>(value.as_int64());
  } else if constexpr (std::same_as<T, DType>) {
    member = parse_dtype(value.as_string()).value();
  } else if constexpr (std::same_as<T, std::string>) {
    member = value.as_string();
  } else if constexpr (std::same_as<T, Texts>) {
    member.clear();
    for (const files::json::Value& text : value.as_array()) member.push_back(text.as_string());
  } else if constexpr (std::same_as<T, Integers>) {
    member.clear();
    for (const files::json::Value& one : value.as_array()) member.push_back(one.as_int64());
  } else if constexpr (std::same_as<T, Milliseconds>) {
    member = Milliseconds(static_cast<int64_t>(value.as_double() * 1000.0));
  } else {
    member = value.as_double();
  }
}

// --- settings
// The member of a Config that a chain of members leads to.
template <class... Members>
auto access(Members... members) {
  return [members...](auto& config) -> auto& { return (config.*....*members); };
}

template <class... Members>
Setting at(Members... members) {
  const auto member = access(members...);
  using Type = std::remove_cvref_t<decltype(member(std::declval<Config&>()))>;
  return {.type = type_of<Type>(),
          .get = [member](const Config& config, int64_t) { return to_value(member(config)); },
          .set = [member](Config& config,
                          const files::json::Value& value) { assign(member(config), value); }};
}

// A member of an enum type whose values have the names of name_of().
template <class Enum, class... Members>
Setting one_of(std::initializer_list<Enum> values, Members... members) {
  const auto member = access(members...);
  Setting setting{.type = KeyType::choice};
  for (const Enum value : values) setting.choices.emplace_back(name_of(value));
  setting.get = [member](const Config& config, int64_t) -> files::json::Value {
    const std::optional<Enum> value = member(config);
    return value ? files::json::Value(name_of(*value)) : files::json::Value();
  };
  setting.set = [member, all = std::vector<Enum>(values)](Config& config,
                                                          const files::json::Value& value) {
    for (const Enum one : all) {
      if (value.is_string(name_of(one))) member(config) = one;
    }
    if constexpr (is_optional<std::remove_cvref_t<decltype(member(config))>>) {
      if (value.is_null()) member(config).reset();
    }
  };
  return setting;
}

// --- ranges
inline Bounds at_least(double least) { return {.least = least}; }
inline Bounds between(double least, double most) { return {.least = least, .most = most}; }
inline Bounds positive() { return {.positive = true}; }

// --- rows
struct Row : Key {
  // A flag that gives the value; the file may not contradict it.
  template <class T>
  Row with_flag(std::string_view name, std::optional<T> Overrides::*given) && {
    option = name;
    flag = [given](const Overrides& flags) { return to_value(flags.*given); };
    return *this;
  }
  // A flag that counts where the file gives no value.
  template <class T>
  Row with_fallback(std::string_view name, std::optional<T> Overrides::*given) && {
    flag_yields = true;
    return std::move(*this).with_flag(name, given);
  }
  Row by_default(files::json::Value value) && {
    default_value = std::move(value);
    return *this;
  }
  Row by_default_as(std::string_view words) && {
    default_note = words;
    return *this;
  }
  Row when_auto(std::string_view words,
                std::function<files::json::Value(const Config&, const Overrides&)> value) && {
    auto_note = words;
    automatic = std::move(value);
    return *this;
  }
  // "auto" is found by a search over plans: plan/fill.h.
  Row fills_memory(std::string_view words) && {
    auto_note = words;
    is_filled = true;
    return *this;
  }
  Row off_at_most(double value) && {
    off_up_to = value;
    return *this;
  }
  Row absent_where_false() && {
    false_is_absent = true;
    return *this;
  }
  // The value in force, if it is not the member's.
  Row shown_as(std::function<files::json::Value(const Config&, int64_t)> get) && {
    setting.get = std::move(get);
    return *this;
  }
};

inline Row works(std::string_view name, Setting setting, const Bounds& range, std::string_view unit,
                 std::string_view note) {
  return {{.path = std::string(name),
           .setting = std::move(setting),
           .range = range,
           .unit = std::string(unit),
           .note = std::string(note)}};
}
inline Row works(std::string_view name, Setting setting, const Bounds& range,
                 std::string_view note) {
  return works(name, std::move(setting), range, "", note);
}
inline Row works(std::string_view name, Setting setting, std::string_view note) {
  return works(name, std::move(setting), {}, "", note);
}

inline Row no_effect(std::string_view name, KeyType type, std::string_view note,
                     KeyClass key_class = KeyClass::no_effect) {
  return {{.path = std::string(name),
           .key_class = key_class,
           .setting = {.type = type},
           .note = std::string(note)}};
}
inline Row warning(std::string_view name, std::string_view note) {
  return no_effect(name, KeyType::block, note, KeyClass::warning);
}
inline Row refused(std::string_view name, std::string_view note) {
  return no_effect(name, KeyType::any, note, KeyClass::refused);
}

// Another name of the key `of` in the same block; deprecated names are told.
inline Row other_name(std::string_view name, std::string_view of, KeyClass key_class) {
  return {{.path = std::string(name), .key_class = key_class, .stands_for = std::string(of)}};
}
inline Row deprecated(std::string_view name, std::string_view of) {
  return other_name(name, of, KeyClass::deprecated);
}

// Rows one after the other; one row is Rows, too.
struct Rows : std::vector<Row> {
  Rows(Row row) { push_back(std::move(row)); }  // NOLINT(google-explicit-constructor)
  Rows(std::initializer_list<Rows> parts) {
    for (const Rows& part : parts) insert(end(), part.begin(), part.end());
  }
};

// A block and its keys, whose names begin with its own from then on.
Rows block(std::string_view name, std::string_view note, Rows inner);
// Rows whose values may stand in quotes: Note [Values in quotes].
Rows read_loosely(Rows rows);
// Rows that count under a condition; in words where a note should begin with them.
Rows only(std::string_view words, const std::function<bool(const Config&)>& condition, Rows rows);

// --- the table, in parts
Rows batch_rows();
Rows optimizer_rows();
Rows scheduler_rows();
Rows precision_rows();
Rows gradient_rows();
Rows zero_rows();
Rows activation_rows();
Rows aio_rows();
Rows monitor_rows();
Rows sparse_attention_rows();
Rows absent_rows();  // parts of DeepSpeed that zinc does not have
Rows zinc_rows();

}  // namespace zinc::train
