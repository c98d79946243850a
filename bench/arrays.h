// bench/arrays.h: owned host arrays with reproducible contents, for benches.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/registry.h"
#include "core/shape.h"
#include "core/view.h"

namespace zinc::bench {

// Owns one contiguous array on the CPU; a cheap handle, copies share the bytes. 4 KiB aligned.
class Array {
 public:
  Array(const Shape& shape, DType dtype);  // uninitialised, but every page touched

  // Uniform in [low, high), rounded to dtype; a pure function of seed and index. i32 and i64: the
  // integers of that range.
  static Array uniform(const Shape& shape, DType dtype, double low, double high, uint64_t seed);
  static Array full(const Shape& shape, DType dtype, double value);
  static Array copy_of(const ConstView& view);                 // contiguous, same dtype
  static Array converted(const ConstView& view, DType dtype);  // contiguous, rounded

  const View& view() const { return view_; }
  operator View() const { return view_; }       // NOLINT(google-explicit-constructor)
  operator ConstView() const { return view_; }  // NOLINT(google-explicit-constructor)

 private:
  std::shared_ptr<void> storage_;
  View view_;
};

// |got - expected| / |expected| over all pairs together; views of any float dtype and stride, each
// pair of equal shape. Infinity where a value is not finite in one and finite in the other.
double relative_l2(std::initializer_list<std::pair<ConstView, ConstView>> got_and_expected);

}  // namespace zinc::bench
