#include "kernels/cpu/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/softmax_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// Columns for which a row's factors are computed at a time.
constexpr int64_t kFactorColumns = 256;

// Columns of a block whose keys lie side by side: those up to `end`, each at key column + shift.
struct Piece {
  int64_t end, shift;
};
// The piece of the columns from `begin` on, which ends at `end` at the latest.
Piece piece_at(const ScoreBlock& block, int64_t begin, int64_t end) {
  const auto& segments = block.segments;
  if (segments.empty()) return {end, 0};
  const auto after = std::upper_bound(
      segments.begin(), segments.end(), begin,
      [](int64_t c, const ScoreSegment& segment) { return c < segment.first_column; });
  return {after == segments.end() ? end : std::min(after->first_column, end), (after - 1)->shift};
}

// Turns products into scores where that takes more than a positive scale; returns the factor that
// is still to be applied. With a softcap, `slopes`, unless null, receives the factors for the
// gradients of these scores.
float finish_scores(const ScoreBlock& block, int64_t r, float* scores, const KeyRange& keys,
                    float* slopes) {
  const bool plain =
      block.slope == 0.0f && block.bias == nullptr && block.softcap == 0.0f && block.scale > 0.0f;
  if (plain) return block.scale;
  const Lanes d;
  const auto scale = hn::Set(d, block.scale);
  const auto cap = hn::Set(d, block.softcap);
  const auto slope = hn::Set(d, block.slope);
  for (int64_t begin = keys.begin; begin < keys.end;) {
    const Piece piece = piece_at(block, begin, keys.end);
    const float* bias =
        block.bias == nullptr ? nullptr : block.bias + r * block.bias_stride + piece.shift + begin;
    const auto at_zero = hn::Set(d, static_cast<float>(block.distance + r - piece.shift - begin));
    float* from = scores + begin;
    float* to_slopes = slopes == nullptr ? nullptr : slopes + (begin - keys.begin);
    for_each_vector(piece.end - begin, [&](int64_t c, auto load, auto store) HWY_ATTR {
      auto s = hn::Mul(load(from + c), scale);
      if (block.softcap != 0.0f) {
        const auto part = hn::Tanh(d, hn::Div(s, cap));
        s = hn::Mul(cap, part);
        if (to_slopes != nullptr) {
          store(hn::NegMulAdd(part, part, hn::Set(d, 1.0f)), to_slopes + c);
        }
      }
      if (block.slope != 0.0f) {
        const auto distance = hn::Sub(at_zero, hn::Iota(d, static_cast<float>(c)));
        s = hn::NegMulAdd(slope, hn::Abs(distance), s);
      }
      if (bias != nullptr) s = hn::Add(s, load(bias + c));
      store(s, from + c);
    });
    begin = piece.end;
  }
  return 1.0f;
}

// factors[c] = 0 or 1 / (1 - p) for keys [first, first + count) of row r.
void draw_dropout(const ScoreBlock& block, int64_t r, int64_t first, int64_t count,
                  float* factors) {
  const float kept = 1.0f / (1.0f - block.dropout);
  const uint64_t begin = block.dropout_element + static_cast<uint64_t>(r) * block.dropout_step +
                         static_cast<uint64_t>(first);
  PhiloxBlock words{};
  for (int64_t c = 0; c < count; ++c) {
    const uint64_t element = begin + static_cast<uint64_t>(c);
    if (c == 0 || element % 4 == 0) {
      words = philox4x32(element >> 2, block.dropout_key.counter_high, block.dropout_key.key);
    }
    const float draw = RandomKey::to_uniform(words.word[element % 4]);
    factors[c] = draw < block.dropout ? 0.0f : kept;
  }
}

template <class T>
void clear_outside(T* row, int64_t cols, const KeyRange& keys) {
  const int64_t begin = keys.empty() ? cols : keys.begin;
  std::fill(row, row + begin, T(0.0f));
  if (!keys.empty()) std::fill(row + keys.end, row + cols, T(0.0f));
}

template <class T>
void softmax_rows(const ScoreBlock& block, float* max, float* sum, float* correction) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < block.rows; ++r) {
    const KeyRange keys = block.keys[r];
    float* scores = block.scores + r * block.stride;
    T* to = static_cast<T*>(block.probabilities) + r * block.probabilities_stride;
    correction[r] = 1.0f;
    if (keys.empty()) {
      clear_outside(to, block.cols, keys);
      continue;
    }
    const int64_t n = keys.end - keys.begin;
    const float scale = finish_scores(block, r, scores, keys, nullptr);
    const float before = max[r];
    max[r] = std::max(before, max_of(scores + keys.begin, n) * scale);
    const float shift = max[r] == kNone ? 0.0f : max[r];
    if (before != max[r]) correction[r] = std::exp(before - shift);
    // Dropout keeps the exponentials in f32 until they are multiplied.
    const auto emit = [&](int64_t c, LaneVec e, auto store)
                          HWY_ATTR { store(e, to + keys.begin + c); };
    const auto emit_scores = [&](int64_t c, LaneVec e, auto store)
                                 HWY_ATTR { store(e, scores + keys.begin + c); };
    float here;
    if (block.dropout == 0.0f) {
      here = exp_sum(scores + keys.begin, n, scale, shift, emit);
    } else {
      here = exp_sum(scores + keys.begin, n, scale, shift, emit_scores);
      float factors[kFactorColumns];
      for (int64_t c = keys.begin, count = 0; c < keys.end; c += count) {
        const Piece piece = piece_at(block, c, keys.end);
        count = std::min(kFactorColumns, piece.end - c);
        draw_dropout(block, r, c + piece.shift, count, factors);
        for_each_vector(count, [&](int64_t i, auto load, auto store) HWY_ATTR {
          store(hn::Mul(load(scores + c + i), load(factors + i)), to + c + i);
        });
      }
    }
    sum[r] = sum[r] * correction[r] + here;
    clear_outside(to, block.cols, keys);
  }
}

template <class T>
void backward_rows(const ScoreBlock& block, const ScoreGradients& gradients) {
  const Lanes d;
  for (int64_t r = 0; r < block.rows; ++r) {
    KeyRange keys = block.keys[r];
    T* probabilities = static_cast<T*>(block.probabilities) + r * block.probabilities_stride;
    T* dscores = static_cast<T*>(gradients.dscores) + r * gradients.dscores_stride;
    const float lse = gradients.lse[r];
    if (std::isinf(lse) && lse < 0.0f) keys = {0, 0};  // no key, or all at -infinity
    const bool capped = block.softcap != 0.0f;
    if (!keys.empty()) {
      float* scores = block.scores + r * block.stride;
      const auto shift = hn::Set(d, lse);
      const auto delta = hn::Set(d, gradients.delta[r]);
      const auto factor = hn::Set(d, block.scale);
      const float* dprobabilities = gradients.dprobabilities + r * block.stride;
      float* dbias =
          gradients.dbias == nullptr ? nullptr : gradients.dbias + r * gradients.dbias_stride;
      float drawn[kFactorColumns], slopes[kFactorColumns];
      for (int64_t c = keys.begin, count = 0; c < keys.end; c += count) {
        const Piece piece = piece_at(block, c, keys.end);
        count = std::min(kFactorColumns, piece.end - c);
        float* to_bias = dbias == nullptr ? nullptr : dbias + piece.shift + c;
        const auto scale =
            hn::Set(d, finish_scores(block, r, scores, {.begin = c, .end = c + count}, slopes));
        if (block.dropout != 0.0f) draw_dropout(block, r, c + piece.shift, count, drawn);
        for_each_vector(count, [&](int64_t i, auto load, auto store) HWY_ATTR {
          const auto p = exp_bounded_lanes(hn::MulSub(load(scores + c + i), scale, shift));
          auto dropped = p;
          auto dp = load(dprobabilities + c + i);
          if (block.dropout != 0.0f) {
            const auto keep = load(drawn + i);
            dropped = hn::Mul(p, keep);
            dp = hn::Mul(dp, keep);
          }
          const auto ds = hn::Mul(p, hn::Sub(dp, delta));
          store(dropped, probabilities + c + i);
          const auto dproduct = capped ? hn::Mul(ds, load(slopes + i)) : ds;
          store(hn::Mul(dproduct, factor), dscores + c + i);
          if (to_bias != nullptr) store(hn::Add(load(to_bias + i), ds), to_bias + i);
        });
      }
    }
    clear_outside(probabilities, block.cols, keys);
    clear_outside(dscores, block.cols, keys);
  }
}

void softmax(const ScoreBlock& block, float* max, float* sum, float* correction) {
  switch (block.dtype) {
    case DType::bf16:
      return softmax_rows<bf16>(block, max, sum, correction);
    case DType::f16:
      return softmax_rows<f16>(block, max, sum, correction);
    default:
      return softmax_rows<float>(block, max, sum, correction);
  }
}

void backward(const ScoreBlock& block, const ScoreGradients& gradients) {
  switch (block.dtype) {
    case DType::bf16:
      return backward_rows<bf16>(block, gradients);
    case DType::f16:
      return backward_rows<f16>(block, gradients);
    default:
      return backward_rows<float>(block, gradients);
  }
}

void scale_all(float* x, int64_t rows, int64_t cols, const float* factor) {
  for (int64_t r = 0; r < rows; ++r) {
    if (factor[r] == 1.0f) continue;
    const auto f = hn::Set(Lanes(), factor[r]);
    float* row = x + r * cols;
    for_each_vector(cols, [&](int64_t c, auto load, auto store)
                              HWY_ATTR { store(hn::Mul(load(row + c), f), row + c); });
  }
}

void add(const float* x, int64_t count, float* to) {
  for_each_vector(count, [&](int64_t c, auto load, auto store)
                             HWY_ATTR { store(hn::Add(load(to + c), load(x + c)), to + c); });
}

template <class T>
void divide_as(const float* x, int64_t rows, int64_t cols, const float* divisor, T* to,
               int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    T* target = to + r * to_stride;
    const bool none = divisor[r] == 0.0f;
    const auto f = hn::Set(Lanes(), 1.0f / divisor[r]);
    const float* row = x + r * cols;
    for_each_vector(cols, [&](int64_t c, auto load, auto store) HWY_ATTR {
      store(none ? hn::Zero(Lanes()) : hn::Mul(load(row + c), f), target + c);
    });
  }
}

void divide(const float* x, int64_t rows, int64_t cols, const float* divisor, void* to, DType dtype,
            int64_t to_stride) {
  switch (dtype) {
    case DType::bf16:
      return divide_as(x, rows, cols, divisor, static_cast<bf16*>(to), to_stride);
    case DType::f16:
      return divide_as(x, rows, cols, divisor, static_cast<f16*>(to), to_stride);
    default:
      return divide_as(x, rows, cols, divisor, static_cast<float*>(to), to_stride);
  }
}

template <class T>
void dot_as(const T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t rows, int64_t cols,
            float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    auto sum = hn::Zero(Lanes());
    for_each_vector(cols, [&](int64_t c, auto load, auto) HWY_ATTR {
      sum = hn::MulAdd(load(x + r * x_stride + c), load(y + r * y_stride + c), sum);
    });
    to[r] = hn::GetLane(hn::SumOfLanes(Lanes(), sum));
  }
}

void dot(const void* x, int64_t x_stride, const void* y, int64_t y_stride, DType dtype,
         int64_t rows, int64_t cols, float* to) {
  switch (dtype) {
    case DType::bf16:
      return dot_as(static_cast<const bf16*>(x), x_stride, static_cast<const bf16*>(y), y_stride,
                    rows, cols, to);
    case DType::f16:
      return dot_as(static_cast<const f16*>(x), x_stride, static_cast<const f16*>(y), y_stride,
                    rows, cols, to);
    default:
      return dot_as(static_cast<const float*>(x), x_stride, static_cast<const float*>(y), y_stride,
                    rows, cols, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(softmax);
HWY_EXPORT(backward);
HWY_EXPORT(scale_all);
HWY_EXPORT(add);
HWY_EXPORT(divide);
HWY_EXPORT(dot);

void softmax_block(const ScoreBlock& block, float* max, float* sum, float* correction) {
  HWY_DYNAMIC_DISPATCH(softmax)(block, max, sum, correction);
}
void softmax_block_backward(const ScoreBlock& block, const ScoreGradients& gradients) {
  HWY_DYNAMIC_DISPATCH(backward)(block, gradients);
}
void scale_rows(float* x, int64_t rows, int64_t cols, const float* factor) {
  HWY_DYNAMIC_DISPATCH(scale_all)(x, rows, cols, factor);
}
void add_elements(const float* x, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(add)(x, count, to);
}
void divide_rows(const float* x, int64_t rows, int64_t cols, const float* divisor, void* to,
                 DType dtype, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(divide)(x, rows, cols, divisor, to, dtype, to_stride);
}
void dot_rows(const void* x, int64_t x_stride, const void* y, int64_t y_stride, DType dtype,
              int64_t rows, int64_t cols, float* to) {
  HWY_DYNAMIC_DISPATCH(dot)(x, x_stride, y, y_stride, dtype, rows, cols, to);
}

}  // namespace zinc::kernels::cpu
#endif  // HWY_ONCE
