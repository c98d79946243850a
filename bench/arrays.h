// bench/arrays.h: owned arrays with reproducible contents, for benches, on the device of the
// context that is current when they are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/registry.h"
#include "core/context.h"
#include "core/shape.h"
#include "core/view.h"

namespace zinc::bench {

// The f64 path of a GPU's bench runs on the CPU, in a context that knows the GPU's context through
// this.
struct BenchedGpu {
  Context* context = nullptr;  // a slot of the CPU's context
};

// A view's elements where the CPU reads them: the view itself, or a copy from the GPU.
class OnHost {
 public:
  explicit OnHost(const ConstView& view);
  const ConstView& view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  ConstView view_;
};

// Owns one contiguous array; a cheap handle, copies share the bytes. 4 KiB aligned on the CPU.
class Array {
 public:
  Array(const Shape& shape, DType dtype);  // uninitialised, but every page touched

  // Uniform in [low, high), rounded to dtype; a pure function of seed and index. i32 and i64: the
  // integers of that range.
  static Array uniform(const Shape& shape, DType dtype, double low, double high, uint64_t seed);
  static Array full(const Shape& shape, DType dtype, double value);
  // Contiguous; of a view on any device.
  static Array copy_of(const ConstView& view);
  static Array converted(const ConstView& view, DType dtype);  // rounded

  const View& view() const { return view_; }
  operator View() const { return view_; }       // NOLINT(google-explicit-constructor)
  operator ConstView() const { return view_; }  // NOLINT(google-explicit-constructor)

 private:
  struct HostMemory {};
  Array(const Shape& shape, DType dtype, HostMemory);
  static Array made_by(const ConstView& view, DType dtype);
  Array placed() const;  // this one, or what it holds on the current context's GPU

  std::shared_ptr<void> storage_;
  View view_;
};

// |got - expected| / |expected| over all pairs together; views of any dtype and stride, each
// pair of equal shape. Infinity where a value is not finite in one and finite in the other.
double relative_l2(std::initializer_list<std::pair<ConstView, ConstView>> got_and_expected);

}  // namespace zinc::bench
