// The f32, bf16 and f16 paths of rotary. Parallel over tokens; all heads of a token share its row
// of the table.
#include "kernels/rotary.h"

#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/rotary_tokens.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/parallel.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// One token's row of the table, with the sign of the direction in `sign`.
struct Angles {
  const float* cos;
  const float* sin;
  int64_t pairs;
  float sign;
};

template <class T>
void turn_half_split(T* head, const Angles& angles) {
  T* u = head;
  T* v = head + angles.pairs;
  const auto sign = hn::Set(Lanes(), angles.sign);
  for_each_vector(angles.pairs, [&](int64_t j, auto load, auto store) HWY_ATTR {
    const auto a = load(static_cast<const T*>(u) + j);
    const auto b = load(static_cast<const T*>(v) + j);
    const auto cos = load(angles.cos + j);
    const auto sin = hn::Mul(sign, load(angles.sin + j));
    store(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), u + j);
    store(hn::MulAdd(b, cos, hn::Mul(a, sin)), v + j);
  });
}

constexpr int64_t kMaxPairs = 512;  // pairs of the interleaved path; wider heads go in parts

// The same rotation of neighbours: even lanes take a cos - b sin, odd ones b cos + a sin. `cos` and
// `sin` hold each value twice, `sin` with a minus at even places.
template <class T>
void turn_interleaved(T* head, int64_t dims, const float* cos, const float* sin) {
#if ZINC_PORTABLE_LANES
  for (int64_t i = 0; i < dims; i += 2) {
    const auto a = static_cast<float>(head[i]);
    const auto b = static_cast<float>(head[i + 1]);
    head[i] = T(a * cos[i] + b * sin[i]);
    head[i + 1] = T(b * cos[i + 1] + a * sin[i + 1]);
  }
#else
  for_each_vector(dims, [=](int64_t i, auto load, auto store) HWY_ATTR {
    const auto x = load(static_cast<const T*>(head) + i);
    const auto swapped = hn::Reverse2(Lanes(), x);
    store(hn::MulAdd(swapped, load(sin + i), hn::Mul(x, load(cos + i))), head + i);
  });
#endif
}

template <class T>
void turn_heads_interleaved(T* token, int64_t heads, int64_t stride, const Angles& angles) {
  float cos[2 * kMaxPairs], sin[2 * kMaxPairs];
  for (int64_t first = 0; first < angles.pairs; first += kMaxPairs) {
    const int64_t pairs = std::min(kMaxPairs, angles.pairs - first);
    for (int64_t j = 0; j < pairs; ++j) {
      const float s = angles.sign * angles.sin[first + j];
      cos[2 * j] = cos[2 * j + 1] = angles.cos[first + j];
      sin[2 * j] = -s;
      sin[2 * j + 1] = s;
    }
    for (int64_t h = 0; h < heads; ++h) {
      turn_interleaved(token + h * stride + 2 * first, 2 * pairs, cos, sin);
    }
  }
}

template <class T>
void turn_token(const View& x, int64_t i, const Angles& angles, RotaryLayout layout) {
  T* token = x.data_as<T>() + i / x.dim(1) * x.stride(0) + i % x.dim(1) * x.stride(1);
  if (layout == RotaryLayout::interleaved) {
    return turn_heads_interleaved(token, x.dim(2), x.stride(2), angles);
  }
  for (int64_t h = 0; h < x.dim(2); ++h) turn_half_split(token + h * x.stride(2), angles);
}

template <class T>
void turn(const Rotary& args) {
  const int64_t pairs = args.cos.cols();
  parallel_for(args.q.dim(0) * args.q.dim(1), rotary_grain(args), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rotary_position(args, i) * pairs;
      const Angles angles{.cos = args.cos.data_as<float>() + row,
                          .sin = args.sin.data_as<float>() + row,
                          .pairs = pairs,
                          .sign = args.inverse ? -1.0f : 1.0f};
      turn_token<T>(args.q, i, angles, args.layout);
      if (args.k) turn_token<T>(args.k, i, angles, args.layout);
    }
  });
}

void rotary_vectors(const Rotary& args) {
  dispatch_short_float(args.q.dtype(), [&]<class T>() { turn<T>(args); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(rotary_vectors);

void rotary_lanes(const Rotary& args) { HWY_DYNAMIC_DISPATCH(rotary_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
