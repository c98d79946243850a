// Signs of f32: sixteen, eight or, with shorter vectors, one at a time.
#include "kernels/signs.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/signs_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/parallel.h"
#include "kernels/cpu/square_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

using Floats = hn::CappedTag<float, 16>;
constexpr int64_t kWidth = HWY_MIN(HWY_LANES(float), 16);
// Vectors whose signs fill whole bytes.
constexpr bool kWhole = kWidth >= 8;
constexpr int64_t kChunksPerTurn = 16;

struct Encoded {
  const float* x;
  float scale;
  uint8_t* bits;
  float* residual;  // may be null
};

void encode_one_by_one(const Encoded& c, int64_t begin, int64_t count) {
  for (int64_t i = begin; i < kSignChunk; i += 8) {
    uint8_t byte = 0;
    for (int64_t j = 0; j < 8; ++j) {
      const bool is_there = i + j < count;
      const bool is_positive = is_there && c.x[i + j] >= 0.0f;
      byte = static_cast<uint8_t>(byte | (is_positive ? 1u : 0u) << j);
      if (c.residual == nullptr) continue;
      c.residual[i + j] = is_there ? c.x[i + j] - (is_positive ? c.scale : -c.scale) : 0.0f;
    }
    c.bits[i / 8] = byte;
  }
}

void encode_chunk(const Encoded& c, int64_t count) {
  int64_t i = 0;
  if constexpr (kWhole) {
    const Floats d;
    const auto scale = hn::Set(d, c.scale);
    for (; i + kWidth <= count; i += kWidth) {
      const auto x = hn::LoadU(d, c.x + i);
      const auto is_positive = hn::Ge(x, hn::Zero(d));
      hn::StoreMaskBits(d, is_positive, c.bits + i / 8);
      if (c.residual == nullptr) continue;
      hn::StoreU(hn::Sub(x, hn::IfThenElse(is_positive, scale, hn::Neg(scale))), d, c.residual + i);
    }
  }
  encode_one_by_one(c, i, count);
}

struct Decoded {
  const uint8_t* bits;  // null: all values are 0
  float scale;          // times the factor
  float keep;
  const float* addend;  // may be null
  float* y;
};

void decode_one_by_one(const Decoded& c, int64_t begin, int64_t count) {
  for (int64_t i = begin; i < kSignChunk; ++i) {
    if (i >= count) {
      c.y[i] = 0.0f;
      continue;
    }
    float value = 0.0f;
    if (c.bits != nullptr) value = (c.bits[i / 8] >> (i % 8) & 1) != 0 ? c.scale : -c.scale;
    if (c.keep != 0.0f) value = std::fma(c.keep, c.y[i], value);
    c.y[i] = c.addend != nullptr ? value + c.addend[i] : value;
  }
}

void decode_chunk(const Decoded& c, int64_t count) {
  int64_t i = 0;
  if constexpr (kWhole) {
    const Floats d;
    const auto scale = hn::Set(d, c.scale);
    const auto keep = hn::Set(d, c.keep);
    for (; i + kWidth <= count; i += kWidth) {
      auto value = hn::Zero(d);
      if (c.bits != nullptr) {
        value = hn::IfThenElse(hn::LoadMaskBits(d, c.bits + i / 8), scale, hn::Neg(scale));
      }
      if (c.keep != 0.0f) value = hn::MulAdd(keep, hn::LoadU(d, c.y + i), value);
      if (c.addend != nullptr) value = hn::Add(value, hn::LoadU(d, c.addend + i));
      hn::StoreU(value, d, c.y + i);
    }
  }
  decode_one_by_one(c, i, count);
}

// Makes t of a chunk of x in sum.y, and returns its scale.
float sum_and_scale(const float* x, const Decoded& sum, int64_t count) {
  std::copy_n(x, kSignChunk, sum.y);
  decode_chunk(sum, count);
  const double squares = chunk_square_sum(sum.y, kSignChunk);
  return count > 0 ? static_cast<float>(std::sqrt(squares / static_cast<double>(count))) : 0.0f;
}

void send_signs_vectors(const SendSigns& args) {
  const float* x = args.x.data_as<float>();
  const uint8_t* last_bits = args.last_bits ? args.last_bits.data_as<uint8_t>() : nullptr;
  const float* last_scales = args.last_bits ? args.last_scales.data_as<float>() : nullptr;
  const int32_t* counts = args.counts.data_as<int32_t>();
  float* residual = args.residual.data_as<float>();
  float* scales = args.scales.data_as<float>();
  uint8_t* bits = args.bits.data_as<uint8_t>();
  const auto share = static_cast<float>(args.share), factor = static_cast<float>(args.last_factor);
  parallel_for(args.counts.numel(), kChunksPerTurn, [&](int64_t begin, int64_t end) {
    HWY_ALIGN std::array<float, kSignChunk> t;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t at = k * kSignChunk;
      scales[k] = sum_and_scale(x + at,
                                {.bits = last_bits != nullptr ? last_bits + at / 8 : nullptr,
                                 .scale = last_bits != nullptr ? last_scales[k] * factor : 0.0f,
                                 .keep = share,
                                 .addend = residual + at,
                                 .y = t.data()},
                                counts[k]);
      encode_chunk(
          {.x = t.data(), .scale = scales[k], .bits = bits + at / 8, .residual = residual + at},
          counts[k]);
    }
  });
}

void encode_signs_vectors(const EncodeSigns& args) {
  const float* x = args.x.data_as<float>();
  const float* scales = args.scales.data_as<float>();
  const int32_t* counts = args.counts.data_as<int32_t>();
  uint8_t* bits = args.bits.data_as<uint8_t>();
  float* residual = args.residual ? args.residual.data_as<float>() : nullptr;
  parallel_for(args.scales.numel(), kChunksPerTurn, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t at = k * kSignChunk;
      encode_chunk({.x = x + at,
                    .scale = scales[k],
                    .bits = bits + at / 8,
                    .residual = residual != nullptr ? residual + at : nullptr},
                   counts[k]);
    }
  });
}

void decode_signs_vectors(const DecodeSigns& args) {
  const uint8_t* bits = args.bits ? args.bits.data_as<uint8_t>() : nullptr;
  const float* scales = args.bits ? args.scales.data_as<float>() : nullptr;
  const int32_t* counts = args.counts.data_as<int32_t>();
  const float* addend = args.addend ? args.addend.data_as<float>() : nullptr;
  float* y = args.y.data_as<float>();
  const auto factor = static_cast<float>(args.factor), keep = static_cast<float>(args.keep);
  parallel_for(args.counts.numel(), kChunksPerTurn, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t at = k * kSignChunk;
      decode_chunk({.bits = bits != nullptr ? bits + at / 8 : nullptr,
                    .scale = bits != nullptr ? scales[k] * factor : 0.0f,
                    .keep = keep,
                    .addend = addend != nullptr ? addend + at : nullptr,
                    .y = y + at},
                   counts[k]);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(encode_signs_vectors);
HWY_EXPORT(send_signs_vectors);
HWY_EXPORT(decode_signs_vectors);

void encode_signs_lanes(const EncodeSigns& args) {
  HWY_DYNAMIC_DISPATCH(encode_signs_vectors)(args);
}
void send_signs_lanes(const SendSigns& args) { HWY_DYNAMIC_DISPATCH(send_signs_vectors)(args); }
void decode_signs_lanes(const DecodeSigns& args) {
  HWY_DYNAMIC_DISPATCH(decode_signs_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
