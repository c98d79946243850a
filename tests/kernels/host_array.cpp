#include "tests/kernels/host_array.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/executor.h"
#include "core/parallel.h"
#include "core/philox.h"

namespace zinc::test {
namespace {

void store(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(data)[i] = value;
      return;
    case DType::f32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::bf16:
      static_cast<bf16*>(data)[i] = bf16(static_cast<float>(value));
      return;
    case DType::f16:
      static_cast<f16*>(data)[i] = f16(static_cast<float>(value));
      return;
    case DType::i64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    case DType::i32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      return;
    case DType::u8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
      return;
  }
}

double load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(data)[i];
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(data)[i]);
    case DType::bf16:
      return static_cast<double>(static_cast<float>(static_cast<const bf16*>(data)[i]));
    case DType::f16:
      return static_cast<double>(static_cast<float>(static_cast<const f16*>(data)[i]));
    case DType::i64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DType::i32:
      return static_cast<double>(static_cast<const int32_t*>(data)[i]);
    case DType::u8:
      return static_cast<double>(static_cast<const uint8_t*>(data)[i]);
  }
  return 0.0;
}

// Distance of two values, infinite where they cannot be compared.
double distance(double got, double expected) {
  if (std::isfinite(got) && std::isfinite(expected)) return std::abs(got - expected);
  const bool same = got == expected || (std::isnan(got) && std::isnan(expected));
  return same ? 0.0 : std::numeric_limits<double>::infinity();
}

}  // namespace

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0.0;
  }
}

namespace {

GuardedBytes allocate(int64_t bytes) {
  // No more aligned than the heap gives it.
  return GuardedBytes(static_cast<size_t>(std::max<int64_t>(bytes, 1)), 16);
}

}  // namespace

HostArray::HostArray(const Shape& shape, DType dtype) : HostArray(strided(shape, dtype, 0)) {}

HostArray HostArray::strided(const Shape& shape, DType dtype, int64_t padding) {
  HostArray result;
  Strides strides{};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = step;
    step *= shape[i] + (i == shape.rank() - 1 ? padding : 0);
  }
  result.storage_bytes_ = step * size_of(dtype);
  const auto size = static_cast<size_t>(std::max<int64_t>(result.storage_bytes_, 1));
  result.storage_ = allocate(result.storage_bytes_);
  std::memset(result.storage_.get(), 0x7f, size);
  if (is_float(dtype)) std::memset(result.storage_.get(), 0xff, size);
  result.view_ = View(result.storage_.get(), dtype, shape, strides, kCpu, Tier::device);
  return result;
}

HostArray HostArray::of(const std::vector<double>& values, const Shape& shape, DType dtype) {
  require(static_cast<int64_t>(values.size()) == shape.numel(), "HostArray::of: ", values.size(),
          " values for ", shape);
  HostArray result(shape, dtype);
  for (int64_t i = 0; i < shape.numel(); ++i) result.set(i, values[static_cast<size_t>(i)]);
  return result;
}

HostArray HostArray::full(const Shape& shape, DType dtype, double value) {
  HostArray result(shape, dtype);
  result.set_all(value);
  return result;
}

HostArray HostArray::random(const Shape& shape, DType dtype, uint64_t seed, double low,
                            double high) {
  HostArray result(shape, dtype);
  const RandomKey key = make_random_key(seed, Purpose::test, 0, 0, 0);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const auto element = 2 * static_cast<uint64_t>(i);
    const uint64_t word = (uint64_t{key.bits(element)} << 32) | key.bits(element + 1);
    const double value = low + (high - low) * (static_cast<double>(word >> 11) * 0x1p-53);
    result.set(i, is_float(dtype) ? value : std::floor(value));
  }
  return result;
}

HostArray::HostArray(const HostArray& other) { *this = other; }

HostArray& HostArray::operator=(const HostArray& other) {
  if (this == &other) return *this;
  other.fetch();
  on_device_.reset();
  device_is_newer_ = false;
  storage_bytes_ = other.storage_bytes_;
  const auto size = static_cast<size_t>(std::max<int64_t>(storage_bytes_, 1));
  storage_ = allocate(storage_bytes_);
  if (!(other.storage_ == nullptr)) std::memcpy(storage_.get(), other.storage_.get(), size);
  view_ =
      View(storage_.get(), other.dtype(), other.shape(), other.view_.strides(), kCpu, Tier::device);
  return *this;
}

HostArray HostArray::as(DType dtype) const {
  const int64_t padding =
      view_.rank() < 2 || numel() == 0 ? 0 : view_.stride(view_.rank() - 2) - view_.dim(-1);
  HostArray result = strided(shape(), dtype, padding);
  for (int64_t i = 0; i < numel(); ++i) result.set(i, at(i));
  return result;
}

HostArray HostArray::with_padding(int64_t padding) const {
  fetch();
  HostArray result = strided(shape(), dtype(), padding);
  for (int64_t i = 0; i < numel(); ++i) {
    std::memcpy(result.storage_.get() + result.offset(i) * size_of(dtype()),
                storage_.get() + offset(i) * size_of(dtype()),
                static_cast<size_t>(size_of(dtype())));
  }
  return result;
}

View HostArray::view() const {
  if (!view_) return view_;
  void* data = view_.data();
  if (device().is_cuda()) {
    TestGpu& gpu = *TestGpu::current();
    if (on_device_ == nullptr) {
      on_device_ = std::make_unique<DeviceBytes>(storage_.bytes());
    }
    if (!device_is_newer_) {
      gpu.copy(on_device_->get(), storage_.get(), storage_bytes_);
      gpu.synchronize();  // a test may launch on another stream
      fetched_at_ = gpu.num_launches();
    }
    device_is_newer_ = true;
    data = on_device_->get();
  } else {
    on_host();
  }
  return View(data, view_.dtype(), view_.shape(), view_.strides(), device(), Tier::device);
}

View HostArray::on_host() const {
  fetch();
  device_is_newer_ = false;
  return view_;
}

void HostArray::fetch() const {
  if (!device_is_newer_) return;
  TestGpu& gpu = *TestGpu::current();
  if (fetched_at_ == gpu.num_launches()) return;
  gpu.copy(storage_.get(), on_device_->get(), storage_bytes_);
  gpu.synchronize();
  fetched_at_ = gpu.num_launches();
}

int64_t HostArray::offset(int64_t i) const {
  int64_t result = 0;
  for (int d = view_.rank() - 1; d >= 0; --d) {
    result += (i % view_.dim(d)) * view_.stride(d);
    i /= view_.dim(d);
  }
  return result;
}

double HostArray::at(int64_t i) const {
  fetch();
  return load(storage_.get(), dtype(), offset(i));
}
void HostArray::set(int64_t i, double value) {
  fetch();
  store(storage_.get(), dtype(), offset(i), value);
  if (!device_is_newer_) return;
  // A view that is out sees it too.
  const int64_t at = offset(i) * size_of(dtype());
  TestGpu::current()->copy(on_device_->get() + at, storage_.get() + at, size_of(dtype()));
}
void HostArray::set_all(double value) {
  for (int64_t i = 0; i < numel(); ++i) set(i, value);
}

std::vector<double> HostArray::values() const {
  std::vector<double> result(static_cast<size_t>(numel()));
  for (int64_t i = 0; i < numel(); ++i) result[static_cast<size_t>(i)] = at(i);
  return result;
}

std::vector<std::byte> HostArray::bytes() const {
  fetch();
  return {storage_.get(), storage_.get() + storage_bytes_};
}

bool same_bits(const HostArray& a, const HostArray& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return a.with_padding(0).bytes() == b.with_padding(0).bytes();
}

double relative_l2(const HostArray& got, const HostArray& expected) {
  if (got.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  double error = 0.0;
  double norm = 0.0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double d = distance(got.at(i), expected.at(i));
    error += d * d;
    if (std::isfinite(expected.at(i))) norm += expected.at(i) * expected.at(i);
  }
  if (error == 0.0) return 0.0;
  return std::sqrt(error / norm);
}

double max_relative_error(const HostArray& got, const HostArray& expected, double floor) {
  if (got.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  double worst = 0.0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double d = distance(got.at(i), expected.at(i));
    if (d == 0.0) continue;
    worst = std::max(worst, d / std::max(std::abs(expected.at(i)), floor));
  }
  return worst;
}

View meta_view(const Shape& shape, DType dtype, int place) {
  void* nowhere = reinterpret_cast<void*>(static_cast<uintptr_t>(place) << 40);
  return View(nowhere, dtype, shape, Device{.kind = device().kind, .index = 0, .meta = true});
}

StreamRef test_stream() {
  if (TestGpu::current() != nullptr) return TestGpu::current()->stream();
  static const std::unique_ptr<Stream> stream = make_inline_stream("test", 0, nullptr);
  return *stream;
}

void for_thread_counts(const std::function<void(int)>& body) {
  const int before = num_parallel_threads();
  for (const int threads : {1, 2, 4}) {
    set_num_parallel_threads(threads);
    body(threads);
  }
  set_num_parallel_threads(before);
}

bool same_for_all_schedules(const std::function<std::vector<HostArray>()>& make) {
  std::vector<HostArray> first;
  bool same = true;
  for (int seed = 0; same && seed < kNumSchedules; ++seed) {
    set_schedule_seed(static_cast<uint64_t>(seed));
    std::vector<HostArray> now = make();
    if (seed == 0) first = now;
    for (size_t i = 0; same && i < now.size(); ++i) same = same_bits(now[i], first[i]);
  }
  set_schedule_seed(0);
  return same;
}

bool same_for_all_thread_counts(const std::function<std::vector<HostArray>()>& make) {
  if (runs_on_cuda()) return same_for_all_schedules(make);
  std::vector<HostArray> first;
  bool same = true;
  for_thread_counts([&](int threads) {
    std::vector<HostArray> now = make();
    if (threads == 1) {
      first = std::move(now);
      return;
    }
    same = same && now.size() == first.size();
    for (size_t i = 0; same && i < now.size(); ++i) same = same_bits(now[i], first[i]);
  });
  return same;
}

std::string message_of_invalid(const std::function<void()>& body) {
  try {
    body();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

}  // namespace zinc::test
