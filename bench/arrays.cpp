#include "bench/arrays.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "core/context.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/transfer.h"

namespace zinc::bench {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kGrain = 1 << 16;

template <class Body>
void dispatch_any(DType dtype, Body&& body) {
  if (dtype == DType::i32 || dtype == DType::i64) {
    dispatch_index(dtype, body);
  } else if (dtype == DType::u8) {
    body.template operator()<uint8_t>();
  } else {
    dispatch_float(dtype, body);
  }
}

template <class T>
T narrow(double value) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}
template <class T>
double widen(T value) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return double{static_cast<float>(value)};
  } else {
    return static_cast<double>(value);
  }
}

// Calls body(offset of the row in the view, index of its first element) for every row.
template <class Body>
void for_each_row(const ConstView& view, Body&& body) {
  const int64_t cols = view.cols();
  if (view.numel() == 0) return;
  parallel_for(view.rows(), std::max<int64_t>(1, kGrain / cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r, offset = 0;
      for (int i = view.rank() - 2; i >= 0; --i) {
        offset += rest % view.dim(i) * view.stride(i);
        rest /= view.dim(i);
      }
      body(offset, r * cols);
    }
  });
}

struct Squares {
  double off = 0.0, size = 0.0;
};

Squares compare_rows(const ConstView& got, const ConstView& expected) {
  require(got.shape() == expected.shape(), "bench: results of shape ", got.shape(), " and ",
          expected.shape(), " cannot be compared");
  Squares total;
  dispatch_any(got.dtype(), [&]<class A>() {
    const A* a = got.data_as<A>();
    dispatch_any(expected.dtype(), [&]<class B>() {
      const B* b = expected.data_as<B>();
      const int64_t cols = got.cols();
      for (int64_t r = 0; got.numel() > 0 && r < got.rows(); ++r) {
        int64_t rest = r, at_a = 0, at_b = 0;
        for (int i = got.rank() - 2; i >= 0; --i) {
          at_a += rest % got.dim(i) * got.stride(i);
          at_b += rest % got.dim(i) * expected.stride(i);
          rest /= got.dim(i);
        }
        for (int64_t c = 0; c < cols; ++c) {
          const double x = widen(a[at_a + c]), y = widen(b[at_b + c]);
          if (x == y || (std::isnan(x) && std::isnan(y))) {
            total.size += std::isfinite(y) ? y * y : 0.0;
            continue;
          }
          const double off = x - y;
          total.off += std::isfinite(off) ? off * off : std::numeric_limits<double>::infinity();
          total.size += y * y;
        }
      }
    });
  });
  return total;
}

}  // namespace

OnHost::OnHost(const ConstView& view) : view_(view) {
  if (view.device().is_cpu() || view.numel() == 0) return;
  Context& here = Context::current();
  Context* gpu = here.device().is_cuda() ? &here : here.slot<BenchedGpu>().context;
  bug_check(gpu != nullptr, "bench: no context is known for an array on ", view.device());
  int64_t elements = 1;
  for (int i = 0; i < view.rank(); ++i) elements += (view.dim(i) - 1) * view.stride(i);
  bytes_.resize(static_cast<size_t>(elements * size_of(view.dtype())));
  const ConstView all(view.data(), DType::u8, Shape{static_cast<int64_t>(bytes_.size())},
                      view.device(), view.tier());
  download(all, bytes_.data(), gpu->compute());
  view_ = ConstView(bytes_.data(), view.dtype(), view.shape(), view.strides(), kCpu, Tier::device);
}

Array Array::placed() const {
  const Context* context = Context::current_or_null();
  if (context == nullptr || context->device().is_cpu()) return *this;
  Array there(view_.shape(), view_.dtype());
  upload(view_.data(), there.view_, Context::current().compute());
  return there;
}

Array::Array(const Shape& shape, DType dtype) {
  Context* context = Context::current_or_null();
  if (context == nullptr || context->device().is_cpu()) {
    *this = Array(shape, dtype, HostMemory{});
    return;
  }
  auto block =
      std::make_shared<Block>(context->allocate(shape.numel() * size_of(dtype), Label::workspace));
  view_ = View(block->data(), dtype, shape, context->device());
  storage_ = std::move(block);
}

Array::Array(const Shape& shape, DType dtype, HostMemory) {
  const int64_t size = shape.numel() * size_of(dtype);
  const int64_t unit = size < kHugePage ? kPage : kHugePage;
  const int64_t bytes = (size / unit + 1) * unit;
  void* data = std::aligned_alloc(static_cast<size_t>(unit), static_cast<size_t>(bytes));
  if (data == nullptr) throw std::bad_alloc();
  // zinc's allocator asks for huge pages in the same way.
  if (unit == kHugePage) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  storage_ = std::shared_ptr<void>(data, [](void* p) { std::free(p); });
  auto* page = static_cast<char*>(data);
  parallel_for(bytes, kPage * 64, [&](int64_t begin, int64_t end) {
    std::memset(page + begin, 0, static_cast<size_t>(end - begin));
  });
  view_ = View(data, dtype, shape);
}

Array Array::uniform(const Shape& shape, DType dtype, double low, double high, uint64_t seed) {
  Array made(shape, dtype, HostMemory{});
  const RandomKey key = make_random_key(seed, Purpose::test, 0, 0, 0);
  dispatch_any(dtype, [&]<class T>() {
    T* to = made.view().template data_as<T>();
    const bool whole = !is_float(dtype);
    parallel_for(shape.numel(), kGrain, [&](int64_t begin, int64_t end) {
      PhiloxBlock block{};
      for (int64_t i = begin; i < end; ++i) {
        if (i == begin || i % 4 == 0) {
          block = philox4x32(static_cast<uint64_t>(i) >> 2, key.counter_high, key.key);
        }
        const float draw = RandomKey::to_uniform(block.word[i % 4]);
        const double value = low + (high - low) * double{draw};
        to[i] = narrow<T>(whole ? std::floor(value) : value);
      }
    });
  });
  return made.placed();
}

Array Array::full(const Shape& shape, DType dtype, double value) {
  Array made(shape, dtype, HostMemory{});
  dispatch_any(dtype, [&]<class T>() {
    T* to = made.view().template data_as<T>();
    parallel_for(shape.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = narrow<T>(value);
    });
  });
  return made.placed();
}

Array Array::made_by(const ConstView& any_view, DType dtype) {
  const OnHost host(any_view);
  const ConstView& view = host.view();
  Array made(view.shape(), dtype, HostMemory{});
  dispatch_any(view.dtype(), [&]<class From>() {
    const From* from = view.data_as<From>();
    dispatch_any(dtype, [&]<class To>() {
      To* to = made.view().template data_as<To>();
      for_each_row(view, [&](int64_t offset, int64_t first) {
        for (int64_t c = 0; c < view.cols(); ++c) {
          to[first + c] = narrow<To>(widen(from[offset + c]));
        }
      });
    });
  });
  return made.placed();
}

Array Array::copy_of(const ConstView& view) { return made_by(view, view.dtype()); }
Array Array::converted(const ConstView& view, DType dtype) { return made_by(view, dtype); }

double relative_l2(std::initializer_list<std::pair<ConstView, ConstView>> got_and_expected) {
  Squares total;
  for (const auto& [got, expected] : got_and_expected) {
    const Squares one = compare_rows(OnHost(got).view(), OnHost(expected).view());
    total.off += one.off;
    total.size += one.size;
  }
  if (total.off == 0.0) return 0.0;
  return std::sqrt(total.off / total.size);
}

}  // namespace zinc::bench
