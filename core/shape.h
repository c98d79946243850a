// core/shape.h: the extents of a tensor, a small value without heap memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/error.h"

namespace zinc {

inline constexpr int kMaxRank = 6;

// Extents are >= 0; rank 0 is a scalar with one element. Products of extents that do not fit
// int64_t throw InvalidArgument.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents)
      : Shape(std::span<const int64_t>(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents) {
    require(extents.size() <= kMaxRank, "shape: at most ", kMaxRank, " dimensions, not ",
            extents.size());
    for (const int64_t extent : extents) push_back(extent);
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[static_cast<size_t>(checked(i))]; }
  // Negative dimensions count from the end: -1 is the last.
  int64_t dim(int i) const { return (*this)[i < 0 ? i + rank_ : i]; }
  void set(int i, int64_t extent) {
    require(extent >= 0, "shape: an extent must not be negative: ", extent);
    extents_[static_cast<size_t>(checked(i))] = extent;
  }
  void push_back(int64_t extent) {
    require(rank_ < kMaxRank, "shape: at most ", kMaxRank, " dimensions");
    require(extent >= 0, "shape: an extent must not be negative: ", extent);
    extents_[static_cast<size_t>(rank_++)] = extent;
  }

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n = times(n, extents_[static_cast<size_t>(i)]);
    return n;
  }
  // Product of all extents but the last: the rows of the matrix that row kernels see. 1 for rank 0.
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank_; ++i) n = times(n, extents_[static_cast<size_t>(i)]);
    return n;
  }
  int64_t cols() const { return rank_ == 0 ? 1 : extents_[static_cast<size_t>(rank_ - 1)]; }

  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  int checked(int i) const {
    require(i >= 0 && i < rank_, "shape: dimension ", i, " of a tensor with ", rank_);
    return i;
  }
  static int64_t times(int64_t a, int64_t b) {
    int64_t product = 0;
    require(!__builtin_mul_overflow(a, b, &product), "shape: ", a, " x ", b,
            " elements are too many");
    return product;
  }

  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

// "[2, 3]"
std::string to_string(const Shape& shape);

}  // namespace zinc
