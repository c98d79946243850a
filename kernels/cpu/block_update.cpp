// element_update with states in 8 bits: Note [Bits of states in blocks]. A thread takes whole
// chunks. Of a block of 256 elements it decodes the states, applies the rule's row to vectors, and
// keeps the new states in the first-level cache until it knows their scales.
#include "kernels/element_update.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_update.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/lane_number-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/short_float.h"
#include "kernels/cpu/update_scalars.h"
#include "kernels/state_codes.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

#undef ZINC_ELEMENT
#define ZINC_ELEMENT HWY_INLINE
#include "kernels/update_rows-inl.h"

using Whole = hn::Rebind<int32_t, Lanes>;
using Words = hn::Rebind<uint32_t, Lanes>;

struct BlockScalars {
  const std::array<float, kMaxUpdateScalars>& values;
  HWY_INLINE LaneNumber operator[](int i) const {
    return LaneNumber(constant(values[static_cast<size_t>(i)]));
  }
  HWY_INLINE bool has(int i) const { return values[static_cast<size_t>(i)] != 0.0f; }
};

// A state of one block.
struct BlockState {
  BlockFormat format = BlockFormat::signed8;
  uint8_t* codes = nullptr;
  uint8_t* scale = nullptr;
};

BlockState block_of(const View& state, BlockFormat format, int64_t block) {
  uint8_t* chunk = state.data_as<uint8_t>() + block / kBlocksPerChunk * chunk_bytes(format);
  const int64_t at = block % kBlocksPerChunk;
  return {.format = format,
          .codes = chunk + at * kStateBlock,
          .scale = chunk + kInt8AbsmaxAt + at * int64_t{sizeof(float)}};
}

HWY_INLINE LaneVec decode_lanes(const uint8_t* codes, const float* values, LaneVec scale) {
  const Whole whole;
  const auto bytes = hn::LoadU(hn::Rebind<uint8_t, Lanes>(), codes);
  return hn::Mul(hn::GatherIndex(Lanes(), values, hn::PromoteTo(whole, bytes)), scale);
}

HWY_INLINE hn::Vec<Words> key_lanes(LaneVec value) {
  const Words words;
  const auto bits = hn::BitCast(words, value);
  return hn::Xor(hn::Or(hn::ShiftLeft<1>(bits), hn::ShiftRight<31>(bits)), hn::Set(words, 1u));
}

// The bytes of the quotients' codes, in the low bytes of the words.
HWY_INLINE hn::Vec<Whole> code_lanes(LaneVec quotient, const MagnitudeCodes& codes,
                                     bool is_signed) {
  const Lanes lanes;
  const Whole whole;
  const auto magnitude = hn::Abs(quotient);
  const auto bits = hn::BitCast(whole, hn::Max(magnitude, constant(0x1p-23f)));
  const auto upper =
      hn::Sub(hn::ShiftRight<16>(bits), hn::Set(whole, static_cast<int32_t>(kLowestUpperHalf)));
  const auto word = hn::GatherIndex(whole, codes.words.data(), upper);
  const auto is_above = hn::Gt(hn::And(bits, hn::Set(whole, 0xffff)), hn::ShiftRight<8>(word));
  const auto first = hn::And(word, hn::Set(whole, 0xff));
  const auto some = hn::Add(first, hn::IfThenElseZero(is_above, hn::Set(whole, 1)));
  const auto is_zero = hn::RebindMask(whole, hn::Eq(magnitude, hn::Zero(lanes)));
  const auto code = hn::IfThenZeroElse(is_zero, some);
  const auto is_negative = hn::RebindMask(whole, hn::Lt(quotient, hn::Zero(lanes)));
  if (!is_signed) return hn::IfThenZeroElse(is_negative, code);
  const auto negative = hn::And(hn::Neg(hn::Min(code, hn::Set(whole, 127))), hn::Set(whole, 0xff));
  return hn::IfThenElse(is_negative, negative, code);
}

// `keys`: of the values, whose largest is sought.
HWY_INLINE void encode_block(const float* values, hn::Vec<Words> keys, const BlockState& state) {
  const float scale = scale_of(hn::GetLane(hn::MaxOfLanes(Words(), keys)));
  std::memcpy(state.scale, &scale, sizeof(scale));
  if (!divides(scale)) {
    std::memset(state.codes, 0, kStateBlock);
    return;
  }
  const bool is_signed = state.format == BlockFormat::signed8;
  const MagnitudeCodes& codes = magnitude_codes(state.format);
  const hn::Rebind<uint8_t, Lanes> bytes;
  const LaneVec divisor = constant(scale);
  for (int64_t i = 0; i < kStateBlock; i += lane_count()) {
    const auto code = code_lanes(hn::Div(load_lanes(values + i), divisor), codes, is_signed);
    hn::StoreU(hn::DemoteTo(bytes, code), bytes, state.codes + i);
  }
}

template <UpdateRule kRule, size_t kNum>
void update_block(const StepScalars<float>& scalars, float* weights, const float* gradient,
                  const std::array<BlockState, kNum>& states) {
  const BlockScalars k{scalars.values};
  const LaneVec factor = constant(scalars.factor);
  HWY_ALIGN float values[kNum][kStateBlock];
  std::array<float, kNum> scales{};
  for (size_t j = 0; j < kNum; ++j) std::memcpy(&scales[j], states[j].scale, sizeof(float));
  hn::Vec<Words> keys[kNum];
  for (auto& key : keys) key = hn::Zero(Words());
  for (int64_t i = 0; i < kStateBlock; i += lane_count()) {
    LaneNumber w(load_lanes(weights + i));
    const LaneNumber zero(0.0);
    LaneNumber s[4] = {zero, zero, zero, zero};
    for (size_t j = 0; j < kNum; ++j) {
      s[j].lanes = decode_lanes(states[j].codes + i, byte_values(states[j].format).data(),
                                constant(scales[j]));
    }
    UpdateRow<kRule>::step(w, LaneNumber(hn::Mul(load_lanes(gradient + i), factor)), s, k);
    for (size_t j = 0; j < kNum; ++j) {
      store_lanes(s[j].lanes, values[j] + i);
      keys[j] = hn::Max(keys[j], key_lanes(s[j].lanes));
    }
    store_lanes(w.lanes, weights + i);
  }
  for (size_t j = 0; j < kNum; ++j) encode_block(values[j], keys[j], states[j]);
}

void block_update_vectors(const ElementUpdate& args) {
  const StepScalars<float> scalars = step_scalars<float>(args);
  const auto formats = state_formats(args.rule);
  const auto convert = [](const auto* from, auto* to) HWY_ATTR {
    for_each_vector(kStateBlock, [&](int64_t i, auto load, auto store)
                                     HWY_ATTR { store(load(from + i), to + i); });
  };
  const int64_t blocks = args.weights.numel() / kStateBlock;
  parallel_for(blocks, kElementGrain / kStateBlock, [&](int64_t begin, int64_t end) HWY_ATTR {
    HWY_ALIGN float room[kStateBlock];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * kStateBlock;
      const float* gradient = room;
      if (args.gradient.dtype() == DType::f32) {
        gradient = args.gradient.data_as<float>() + at;
      } else {
        dispatch_short_float(args.gradient.dtype(), [&]<class G>() HWY_ATTR {
          convert(args.gradient.data_as<G>() + at, static_cast<float*>(room));
        });
      }
      float* weights = args.weights.data_as<float>() + at;
      update_block<UpdateRule::adamw, 2>(scalars, weights, gradient,
                                         {block_of(args.states[0], formats[0], block),
                                          block_of(args.states[1], formats[1], block)});
      if (!args.model_weights) continue;
      dispatch_short_float(args.model_weights.dtype(), [&]<class Model>() HWY_ATTR {
        convert(static_cast<const float*>(weights), args.model_weights.data_as<Model>() + at);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(block_update_vectors);

void block_update(const ElementUpdate& args) {
  if (args.skip && *args.skip.data_as<int32_t>() != 0) return;
  HWY_DYNAMIC_DISPATCH(block_update_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
