// tests/kernels/host_array.h: owned host arrays with known contents, and comparisons of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/shape.h"
#include "core/stream.h"
#include "core/view.h"
#include "tests/kernels/guarded_bytes.h"
#include "tests/kernels/test_device.h"
#include "tests/kernels/test_gpu.h"

namespace zinc::test {

inline constexpr DType kFloatDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr DType kShortFloatDTypes[] = {DType::f32, DType::bf16, DType::f16};

// Sizes round the edges of lanes, vectors and blocks.
inline constexpr int64_t kOddSizes[] = {0, 1, 3, 17, 1023, 1025};

// Half the distance from 1 to the next value: the largest relative error of one rounding.
double epsilon_of(DType dtype);

// An array on the heap between canaries; its views are on device() at the time they are taken.
// Where that is a GPU, the array has device memory too: it gets the elements when a view is taken,
// and everything that is read here comes from there, after the work that was launched on
// test_stream(). Fresh elements hold a NaN (floats) or a large number. Copies are deep.
class HostArray {
 public:
  HostArray() = default;
  HostArray(const Shape& shape, DType dtype);
  // Rows of shape.cols() elements, `padding` elements apart.
  static HostArray strided(const Shape& shape, DType dtype, int64_t padding);
  static HostArray of(const std::vector<double>& values, const Shape& shape, DType dtype);
  static HostArray full(const Shape& shape, DType dtype, double value);
  // Uniform in [low, high), rounded to dtype (integers: down); a pure function of seed and index.
  static HostArray random(const Shape& shape, DType dtype, uint64_t seed, double low = -1.0,
                          double high = 1.0);
  HostArray(const HostArray& other);
  HostArray& operator=(const HostArray& other);
  HostArray(HostArray&&) noexcept = default;
  HostArray& operator=(HostArray&&) noexcept = default;

  HostArray as(DType dtype) const;                // same layout, values rounded
  HostArray with_padding(int64_t padding) const;  // same values, other layout

  View view() const;
  operator View() const { return view(); }       // NOLINT(google-explicit-constructor)
  operator ConstView() const { return view(); }  // NOLINT(google-explicit-constructor)
  const Shape& shape() const { return view_.shape(); }
  DType dtype() const { return view_.dtype(); }
  int64_t numel() const { return view_.numel(); }

  double at(int64_t i) const;  // element i in row-major order
  void set(int64_t i, double value);
  void set_all(double value);
  std::vector<double> values() const;  // row-major
  // The whole buffer with its padding.
  std::vector<std::byte> bytes() const;
  // The elements in host memory, to read, and to write before the next view is taken.
  View on_host() const;

 private:
  int64_t offset(int64_t i) const;  // in elements
  void fetch() const;               // makes storage_ what the device has

  GuardedBytes storage_;
  int64_t storage_bytes_ = 0;
  View view_;
  mutable std::unique_ptr<DeviceBytes> on_device_;
  mutable bool device_is_newer_ = false;  // a view of on_device_ is out
  mutable uint64_t fetched_at_ = 0;       // launches that storage_ has seen
};

// Equal shape, dtype and bits of every element.
bool same_bits(const HostArray& a, const HostArray& b);
// |got - expected| / |expected| in the 2-norm, infinite where exactly one of two is NaN or infinite
// or infinities differ; 0 for empty arrays.
double relative_l2(const HostArray& got, const HostArray& expected);
// max |got - expected| / max(|expected|, floor) over all elements, as above for NaN and infinity.
double max_relative_error(const HostArray& got, const HostArray& expected, double floor);

// A view on a meta device; views with different `place` do not overlap. Touching it is a fault.
View meta_view(const Shape& shape, DType dtype, int place = 1);

// A stream that runs work at the call; the GPU's where the tests run on one.
StreamRef test_stream();

// Runs `body` with 1, 2 and 4 threads of parallel loops and restores the count.
void for_thread_counts(const std::function<void(int num_threads)>& body);
// `make` returns the same bytes for 1, 2 and 4 threads; on a CUDA device, in kNumSchedules
// schedules.
bool same_for_all_thread_counts(const std::function<std::vector<HostArray>()>& make);

// Calls `body`, which must throw InvalidArgument, and returns its message; "" where nothing came.
std::string message_of_invalid(const std::function<void()>& body);

}  // namespace zinc::test
