// tests/comm/rank_data.h: what every rank of a test brings, and what it must get.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/view.h"

namespace zinc::comm::testing {

// One rank of a test.
struct Rank {
  Communicator& group;
  Context& context;

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  StreamRef gather() const { return context.stream(StreamRole::gather); }
  StreamRef reduce() const { return context.stream(StreamRole::reduce); }
};

inline uint64_t scramble(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t draw(int rank, int64_t i, uint64_t salt) {
  return scramble(scramble(salt * 1000003 + static_cast<uint64_t>(rank)) +
                  static_cast<uint64_t>(i));
}

// A value of either sign whose magnitude varies by 2^12, so that sums in another order differ.
template <class T>
T value_of(int rank, int64_t i, uint64_t salt) {
  const uint64_t bits = draw(rank, i, salt);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    const double unit = static_cast<double>(bits >> 12) * 0x1p-52 * 2.0 - 1.0;
    const double scaled = unit * static_cast<double>(1 << (bits % 12));
    if constexpr (sizeof(T) == 2) {
      return T(static_cast<float>(scaled));
    } else {
      return static_cast<T>(scaled);
    }
  }
}

template <class T>
std::vector<T> values_of(int rank, int64_t n, uint64_t salt) {
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = value_of<T>(rank, i, salt);
  return values;
}

// Calls body.template operator()<T>() for every dtype.
template <class Body>
void for_every_dtype(Body&& body) {
  body.template operator()<double>();
  body.template operator()<float>();
  body.template operator()<bf16>();
  body.template operator()<f16>();
  body.template operator()<int64_t>();
  body.template operator()<int32_t>();
  body.template operator()<uint8_t>();
}

template <class Body>
void for_every_float(Body&& body) {
  body.template operator()<double>();
  body.template operator()<float>();
  body.template operator()<bf16>();
  body.template operator()<f16>();
}

template <class T>
View view_of(std::vector<T>& values) {
  return View(values.data(), kDTypeOf<T>, Shape{static_cast<int64_t>(values.size())});
}
template <class T>
View view_of(std::vector<T>& values, int64_t begin, int64_t count) {
  return View(values.data() + begin, kDTypeOf<T>, Shape{count});
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Index of the first element that differs in a bit; -1 where there is none.
template <class T>
int64_t first_difference(std::span<const T> a, std::span<const T> b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return static_cast<int64_t>(i);
  }
  return -1;
}
template <class T>
int64_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  return first_difference(std::span<const T>(a), std::span<const T>(b));
}

// Note [Ordered reduction] written out for every world of the tests.
template <class A>
A written_out_tree(const std::vector<A>& x) {
  switch (x.size()) {
    case 1:
      return x[0];
    case 2:
      return x[0] + x[1];
    case 3:
      return (x[0] + x[1]) + x[2];
    case 4:
      return (x[0] + x[1]) + (x[2] + x[3]);
    case 5:
      return ((x[0] + x[1]) + (x[2] + x[3])) + x[4];
    case 6:
      return ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]);
    case 7:
      return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]);
    default:
      throw InternalError("written_out_tree: no such world");
  }
}

template <class T>
AccumulatorOf<T> sum_of_ranks(int size, int64_t i, uint64_t salt) {
  std::vector<AccumulatorOf<T>> values;
  for (int r = 0; r < size; ++r) {
    values.push_back(static_cast<AccumulatorOf<T>>(value_of<T>(r, i, salt)));
  }
  return written_out_tree(values);
}

// Bytes for a collective's workspace, between two guards.
class GuardedWorkspace {
 public:
  GuardedWorkspace(const Communicator& group, Collective collective, int64_t bytes, DType dtype)
      : bytes_(group.workspace_bytes(collective, bytes, dtype)),
        memory_(static_cast<size_t>(bytes_) + 2 * kGuard, kFill) {}

  View view() { return View(memory_.data() + kGuard, DType::u8, Shape{bytes_}); }
  bool guards_hold() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (memory_[i] != kFill || memory_[memory_.size() - 1 - i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kFill = 0xa5;

  int64_t bytes_;
  std::vector<uint8_t> memory_;
};

}  // namespace zinc::comm::testing
