// core/float8.h's round_to_fp8, fp8_code and fp8_value on vectors.
#include "kernels/fp8_encode.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8_encode_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// The codes of a vector, as numbers from 0 to 255.
struct EncodeLanes {
  Fp8Grid grid;
  float scale, least, step, steps_of_one;
  uint32_t half, kept, lowest;
  int dropped;

  EncodeLanes(Fp8 format, int scale_exponent)
      : grid(grid_of(format)),
        scale(power_of_two(scale_exponent)),
        least(power_of_two(grid.min_exponent)),
        step(1.5f * power_of_two(23 + grid.min_exponent - grid.mantissa_bits)),
        steps_of_one(power_of_two(grid.mantissa_bits - grid.min_exponent)),
        lowest(static_cast<uint32_t>(grid.min_exponent - 1 + 127) << grid.mantissa_bits),
        dropped(23 - grid.mantissa_bits) {
    half = (1u << (dropped - 1)) - 1u;
    kept = ~((1u << dropped) - 1u);
  }

  HWY_INLINE LaneVec operator()(LaneVec value) const {
    const Lanes lanes;
    const hn::RebindToUnsigned<Lanes> words;
    const hn::RebindToSigned<Lanes> whole;
    const auto numbers = [&](auto word)
                             HWY_ATTR { return hn::ConvertTo(lanes, hn::BitCast(whole, word)); };
    const auto scaled = hn::Mul(value, hn::Set(lanes, scale));
    const auto size = hn::Abs(scaled);
    const auto bits = hn::BitCast(words, size);
    const auto odd = hn::And(hn::ShiftRightSame(bits, dropped), hn::Set(words, 1u));
    const auto sum = hn::Add(bits, hn::Add(hn::Set(words, half), odd));
    const auto normal = numbers(hn::Sub(hn::ShiftRightSame(sum, dropped), hn::Set(words, lowest)));
    const auto steps = hn::Set(lanes, step);
    const auto small = hn::Mul(hn::Sub(hn::Add(size, steps), steps), hn::Set(lanes, steps_of_one));
    const auto is_small = hn::Lt(size, hn::Set(lanes, least));
    const auto magnitude = hn::IfThenElse(is_small, small, normal);
    const auto known = hn::IfThenElse(hn::IsFinite(value), magnitude, hn::Set(lanes, 127.0f));
    const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(words, value)), hn::Set(words, 0x80u));
    return hn::Add(known, numbers(sign));
  }
};

constexpr int64_t kBlock = 64;  // rows and columns

// Rows and columns from `i` and `j` on; `tile`: the codes, a row after the other.
void encode_block(const Fp8Encode& args, const EncodeLanes& encode, int64_t i, int64_t j,
                  uint8_t* tile) {
  const int64_t rows = args.x.dim(0), cols = args.x.dim(1);
  const int64_t here = std::min(kBlock, rows - i), wide = std::min(kBlock, cols - j);
  const bf16* x = args.x.data_as<bf16>() + i * args.x.stride(0) + j;
  for (int64_t r = 0; r < here; ++r) {
    for_each_vector(wide, [&](int64_t at, auto load, auto store) HWY_ATTR {
      store(encode(load(x + r * args.x.stride(0) + at)), tile + r * kBlock + at);
    });
  }
  if (args.codes) {
    uint8_t* codes = args.codes.data_as<uint8_t>() + i * cols + j;
    for (int64_t r = 0; r < here; ++r) std::copy_n(tile + r * kBlock, wide, codes + r * cols);
  }
  if (args.transposed) {
    uint8_t* codes = args.transposed.data_as<uint8_t>() + j * rows + i;
    for (int64_t c = 0; c < wide; ++c) {
      for (int64_t r = 0; r < here; ++r) codes[c * rows + r] = tile[r * kBlock + c];
    }
  }
}

void encode_vectors(const Fp8Encode& args, int scale_exponent) {
  const EncodeLanes encode(args.format, scale_exponent);
  if (!args.transposed) {
    const bf16* x = args.x.data_as<bf16>();
    uint8_t* codes = args.codes.data_as<uint8_t>();
    for_each_element_vector(
        args.x.shape(),
        [=](const auto& at, auto load, auto store)
            HWY_ATTR { store(encode(load(x + at[0])), codes + at[1]); },
        args.x, args.codes);
    return;
  }
  const int64_t across = (args.x.dim(1) + kBlock - 1) / kBlock;
  const int64_t blocks = across * ((args.x.dim(0) + kBlock - 1) / kBlock);
  parallel_for(blocks, std::max<int64_t>(1, kElementGrain / (kBlock * kBlock)),
               [&](int64_t begin, int64_t end) {
                 uint8_t tile[kBlock * kBlock];
                 for (int64_t b = begin; b < end; ++b) {
                   encode_block(args, encode, b / across * kBlock, b % across * kBlock, tile);
                 }
               });
}

void decode_vectors(const Fp8Decode& args) {
  const Fp8Grid grid = grid_of(args.format);
  const int dropped = 23 - grid.mantissa_bits;
  const auto lowest = static_cast<uint32_t>(grid.min_exponent - 1 + 127) << grid.mantissa_bits;
  const float step = power_of_two(grid.min_exponent - grid.mantissa_bits);
  const float unscale = args.scale.data_as<float>()[1];
  const float first_normal = static_cast<float>(1 << grid.mantissa_bits);
  const float largest = args.format == Fp8::e4m3 ? 126.0f : 123.0f;
  const uint8_t* codes = args.codes.data_as<uint8_t>();
  bf16* y = args.y.data_as<bf16>();
  const Lanes lanes;
  const hn::RebindToUnsigned<Lanes> words;
  const hn::RebindToSigned<Lanes> whole;
  for_each_element_vector(
      args.codes.shape(),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        const auto code = load(codes + at[0]);
        const auto is_negative = hn::Ge(code, hn::Set(lanes, 128.0f));
        const auto magnitude =
            hn::Sub(code, hn::IfThenElseZero(is_negative, hn::Set(lanes, 128.0f)));
        const auto bits = hn::BitCast(words, hn::ConvertTo(whole, magnitude));
        const auto normal =
            hn::BitCast(lanes, hn::ShiftLeftSame(hn::Add(bits, hn::Set(words, lowest)), dropped));
        const auto small = hn::Mul(magnitude, hn::Set(lanes, step));
        const auto is_small = hn::Lt(magnitude, hn::Set(lanes, first_normal));
        const auto size = hn::Mul(hn::IfThenElse(is_small, small, normal), hn::Set(lanes, unscale));
        const auto known =
            hn::IfThenElse(hn::Le(magnitude, hn::Set(lanes, largest)), size, hn::NaN(lanes));
        store(hn::IfThenElse(is_negative, hn::Neg(known), known), y + at[1]);
      },
      args.codes, args.y);
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(encode_vectors);
HWY_EXPORT(decode_vectors);

void fp8_encode_lanes(const Fp8Encode& args, int scale_exponent) {
  HWY_DYNAMIC_DISPATCH(encode_vectors)(args, scale_exponent);
}
void fp8_decode(const Fp8Decode& args) { HWY_DYNAMIC_DISPATCH(decode_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
