#include "kernels/copy.h"

#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void convert_lanes(const Copy& args);

namespace {

template <class Body>
void dispatch_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::i64:
      return body.template operator()<int64_t>();
    case DType::i32:
      return body.template operator()<int32_t>();
    case DType::u8:
      return body.template operator()<uint8_t>();
    default:
      return dispatch_float(dtype, body);
  }
}

template <class T>
constexpr bool kIs16Bit = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

template <class To, class From>
To converted(From x) {
  if constexpr (kIs16Bit<From>) {
    return converted<To>(static_cast<float>(x));
  } else if constexpr (kIs16Bit<To>) {
    return To(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

void copy_plainly(const Copy& args) {
  const int64_t size = size_of(args.x.dtype());
  const auto* x = static_cast<const std::byte*>(args.x.data());
  auto* y = static_cast<std::byte*>(args.y.data());
  const bool past = past_caches(args.y);
  const RowWalk<2> walk(args.x.shape(), {args.x.strides(), args.y.strides()});
  parallel_for(walk.total(), past_caches_grain(kElementGrain, past),
               [&](int64_t begin, int64_t end) {
                 walk.run(begin, end, [&](const auto& at, int64_t n) {
                   copy_bytes(y + at[1] * size, x + at[0] * size, n * size, past);
                 });
                 if (past) flush_past_caches();
               });
}

}  // namespace

void copy(const Copy& args) {
  const auto is_short = [](DType dtype) { return is_float(dtype) && dtype != DType::f64; };
  if (args.x.dtype() == args.y.dtype()) return copy_plainly(args);
  if (is_short(args.x.dtype()) && is_short(args.y.dtype())) return convert_lanes(args);
  dispatch_any(args.x.dtype(), [&]<class From>() {
    dispatch_any(args.y.dtype(), [&]<class To>() {
      if constexpr (is_float(kDTypeOf<To>) || !is_float(kDTypeOf<From>)) {
        const From* x = args.x.data_as<From>();
        To* y = args.y.data_as<To>();
        parallel_elements(
            args.x.shape(),
            [&](const auto& at, int64_t n) {
              for (int64_t i = 0; i < n; ++i) y[at[1] + i] = converted<To>(x[at[0] + i]);
            },
            args.x, args.y);
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
