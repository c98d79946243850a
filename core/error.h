// core/error.h: the one error vocabulary of zinc.
//
// A caller's mistake is `require`d and throws InvalidArgument; a mistake of zinc's own is
// `bug_check`ed and throws InternalError; the outside world throws the type that names it.
// Messages name the place and, where there is one, the cure. The library never prints, exits or
// aborts; `apps/` turns these types into messages and exit codes (docs/exit_codes.md).
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace zinc {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A configuration file or flag is wrong. The message holds key, file:line:column where known, and
// the nearest valid key. Several problems of one file arrive in one message.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A function was called with arguments that its contract excludes: "<op>: <what> <expected> vs
// <got>".
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// A data set, weights file or checkpoint is not as its format demands. Names file and place.
class DataError : public Error {
 public:
  using Error::Error;
};

class CudaError : public Error {
 public:
  using Error::Error;
};

// A collective failed: names the operation and the ranks that are missing or disagree.
class CommError : public Error {
 public:
  using Error::Error;
};

// An operating-system call on a file failed.
class IoError : public Error {
 public:
  // `operation` as in "write"; `error_number` an errno value, 0 for a short transfer.
  IoError(std::string_view operation, std::string path, int64_t offset, int error_number,
          std::string_view hint = {});
  const std::string& path() const { return path_; }
  int64_t offset() const { return offset_; }  // bytes; -1 where an offset means nothing
  int error_number() const { return error_number_; }

 private:
  std::string path_;
  int64_t offset_;
  int error_number_;
};

// Work that ranks do together failed on another one, whose own error says why.
class PeerFailed : public Error {
 public:
  PeerFailed(std::string_view operation, int rank);
  int rank() const { return rank_; }

 private:
  int rank_;
};

// An allocation would exceed its limit, or the system has no memory left (limit_bytes() is -1 where
// zinc was given no limit). what() carries the label table of the allocator.
class OutOfMemory : public Error {
 public:
  OutOfMemory(std::string message, int64_t asked_bytes, int64_t limit_bytes)
      : Error(std::move(message)), asked_bytes_(asked_bytes), limit_bytes_(limit_bytes) {}
  int64_t asked_bytes() const { return asked_bytes_; }
  int64_t limit_bytes() const { return limit_bytes_; }

 private:
  int64_t asked_bytes_;
  int64_t limit_bytes_;
};

// The numbers of a run left the range in which training makes sense: the loss scale overflowed at
// its minimum, or too many steps in a row were skipped. Names the first tensor that was not finite.
class NumericsError : public Error {
 public:
  using Error::Error;
};

// An invariant of zinc itself is broken.
class InternalError : public Error {
 public:
  using Error::Error;
};

namespace detail {

template <class T>
void append_text(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, char>) {
    out += value;
  } else if constexpr (std::is_arithmetic_v<T>) {
    char buffer[64];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
    out.append(buffer, result.ptr);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    out += std::string_view(value);
  } else {
    out += to_string(value);
  }
}

[[noreturn]] void throw_invalid_argument(std::string message);
[[noreturn]] void throw_internal_error(std::string message);

}  // namespace detail

// The parts in a row. Numbers are printed so that they read back to the same value. A type of zinc
// is printed by the `to_string(const T&)` beside it.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (detail::append_text(out, parts), ...);
  return out;
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]] {
    detail::throw_invalid_argument(str(parts...));
  }
}

template <class... Parts>
void bug_check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]] {
    detail::throw_internal_error(str("internal error: ", parts...));
  }
}

}  // namespace zinc
