// element_update with states in 8 bits: Note [Bits of states in blocks]. A thread takes whole
// chunks. Of a block of 256 elements it decodes the states, applies the rule's row to vectors, and
// keeps the new states in the first-level cache until it knows their scales. They are encoded
// beside the row of the next block: the row waits for divisions and roots, the encoder for tables.
//
// Note [Quotients]
// A code follows from value / scale, rounded once. Where 2^-80 <= |scale| <= 1 the quotient is a
// product with the scale's reciprocal, and one correction by its remainder. It lies on the same
// side of all midpoints as the rounded quotient: this was computed for all 2^23 mantissas of a
// scale, all midpoints of both maps, and the nine values about each of them. Powers of two change
// nothing: the remainder of a quotient above 2^-23 has no denormal part then, and a quotient by a
// scale up to 1 is 0 for the value 0 alone. Other scales are divided by.
#include "kernels/element_update.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_update.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

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

constexpr int64_t kCacheLine = 64;

struct BlockScalars {
  const std::array<float, kMaxUpdateScalars>& values;
  HWY_INLINE LaneNumber operator[](int i) const {
    return LaneNumber(constant(values[static_cast<size_t>(i)]));
  }
  HWY_INLINE bool has(int i) const { return values[static_cast<size_t>(i)] != 0.0f; }
};

// A state of one block.
struct BlockState {
  uint8_t* codes = nullptr;
  uint8_t* scale = nullptr;
};

BlockState block_of(const View& state, BlockFormat format, int64_t block) {
  uint8_t* chunk = state.data_as<uint8_t>() + block / kBlocksPerChunk * chunk_bytes(format);
  const int64_t at = block % kBlocksPerChunk;
  return {.codes = chunk + at * kStateBlock,
          .scale = chunk + kInt8AbsmaxAt + at * int64_t{sizeof(float)}};
}

HWY_INLINE LaneVec decode_lanes(const uint8_t* codes, const float* values, LaneVec scale) {
  const Whole whole;
  const auto bytes = hn::LoadU(hn::Rebind<uint8_t, Lanes>(), codes);
  return hn::Mul(hn::GatherIndex(Lanes(), values, hn::PromoteTo(whole, bytes)), scale);
}

HWY_INLINE hn::Vec<Words> key_lanes(LaneVec value) {
  const Words words;
  return hn::Xor(hn::RotateRight<31>(hn::BitCast(words, value)), hn::Set(words, 1u));
}

struct ByDivision {
  explicit HWY_INLINE ByDivision(float scale) : scale_(constant(scale)) {}
  HWY_INLINE LaneVec operator()(LaneVec value) const { return hn::Div(value, scale_); }

 private:
  LaneVec scale_;
};

// Note [Quotients].
struct ByReciprocal {
  static bool serves(float scale) {
    const float magnitude = scale < 0.0f ? -scale : scale;
    return magnitude >= 0x1p-80f && magnitude <= 1.0f;
  }
  explicit HWY_INLINE ByReciprocal(float scale)
      : opposite_(constant(-scale)), reciprocal_(constant(1.0f / scale)) {}
  HWY_INLINE LaneVec operator()(LaneVec value) const {
    const auto near = hn::Mul(value, reciprocal_);
    const auto remainder = fma_lanes(near, opposite_, value);
    return fma_lanes(remainder, reciprocal_, near);
  }

 private:
  LaneVec opposite_, reciprocal_;
};

// The bytes of the quotients' codes, in the low bytes of the words.
template <BlockFormat kFormat>
HWY_INLINE hn::Vec<Words> code_lanes(LaneVec quotient) {
  constexpr bool kSigned = kFormat == BlockFormat::signed8;
  const Words words;
  const Whole whole;
  const auto zero = hn::Zero(Lanes());
  const auto magnitude = kSigned ? hn::Abs(quotient) : quotient;
  const auto bits = hn::BitCast(whole, hn::Max(magnitude, constant(0x1p-23f)));
  const auto upper =
      hn::Sub(hn::ShiftRight<16>(bits), hn::Set(whole, static_cast<int32_t>(kLowestUpperHalf)));
  const auto word = hn::GatherIndex(whole, magnitude_codes(kFormat).words.data(), upper);
  const auto code = hn::ShiftRight<16>(hn::Add(bits, word));
  if constexpr (kSigned) {
    const auto is_negative = hn::RebindMask(whole, hn::Lt(quotient, zero));
    const auto negative =
        hn::And(hn::Neg(hn::Min(code, hn::Set(whole, 127))), hn::Set(whole, 0xff));
    return hn::BitCast(words, hn::IfThenElse(is_negative, negative, code));
  } else {
    const auto is_above = hn::RebindMask(whole, hn::Gt(quotient, zero));
    return hn::BitCast(words, hn::IfThenElseZero(is_above, code));
  }
}

constexpr size_t kMoments = kMomentFormats.size();

// The new states of a block, until they are encoded.
struct NewStates {
  HWY_ALIGN float values[kMoments][kStateBlock];
  BlockState places[kMoments];
  float scales[kMoments] = {};

  // Whether update_block() of the next block may encode them.
  bool have_reciprocals() const {
    return std::ranges::all_of(scales, [](float scale) { return ByReciprocal::serves(scale); });
  }
};

template <size_t kMoment, class Quotient>
HWY_INLINE void encode_lanes(const NewStates& states, const Quotient& quotient, int64_t i) {
  const auto code =
      code_lanes<kMomentFormats[kMoment]>(quotient(load_lanes(states.values[kMoment] + i)));
  const hn::Rebind<uint8_t, Lanes> bytes;
  hn::StoreU(hn::U8FromU32(code), bytes, states.places[kMoment].codes + i);
}

template <size_t kMoment, class Quotient>
HWY_INLINE void encode_by(const NewStates& states) {
  const Quotient quotient(states.scales[kMoment]);
  for (int64_t i = 0; i < kStateBlock; i += lane_count()) {
    encode_lanes<kMoment>(states, quotient, i);
  }
}

template <size_t kMoment>
void encode_block(const NewStates& states) {
  const float scale = states.scales[kMoment];
  if (!divides(scale)) {
    std::memset(states.places[kMoment].codes, 0, kStateBlock);
  } else if (ByReciprocal::serves(scale)) {
    encode_by<kMoment, ByReciprocal>(states);
  } else {
    encode_by<kMoment, ByDivision>(states);
  }
}

// A block's operands in f32; and what comes a chunk later, or is there if nothing comes.
struct BlockOperands {
  float* weights;
  const float* gradient;
  const std::byte* gradient_ahead;
  int64_t gradient_size;       // there, of an element
  int64_t elements_ahead = 0;  // to the weights of a chunk later
  int64_t bytes_ahead = 0;     // to the codes

  // Between two loads from memory a core has too much to do to see the next ones by itself.
  HWY_INLINE void fetch_ahead(int64_t i, const BlockState* places) const {
    hwy::Prefetch(weights + elements_ahead + i);
    hwy::Prefetch(gradient_ahead + i * gradient_size);
    if (i % kCacheLine != 0) return;
    for (size_t j = 0; j < kMoments; ++j) hwy::Prefetch(places[j].codes + bytes_ahead + i);
  }
};

// Updates a block: `states` has the places of its states, and gets the new ones. `before`, with
// kEncodes: states of another block, which are encoded.
template <UpdateRule kRule, bool kEncodes>
void update_block(const StepScalars<float>& scalars, BlockOperands at, NewStates& states,
                  const NewStates& before) {
  const std::array<float, kMaxUpdateScalars> constants = scalars.values;  // no store changes them
  const BlockScalars k{constants};
  const LaneVec factor = constant(scalars.factor);
  LaneVec scales[kMoments];
  hn::Vec<Words> keys[kMoments];
  for (size_t j = 0; j < kMoments; ++j) {
    std::memcpy(&states.scales[j], states.places[j].scale, sizeof(float));
    scales[j] = constant(states.scales[j]);
    keys[j] = hn::Zero(Words());
  }
  const ByReciprocal quotients[kMoments] = {ByReciprocal(before.scales[0]),
                                            ByReciprocal(before.scales[1])};
  for (int64_t i = 0; i < kStateBlock; i += lane_count()) {
    at.fetch_ahead(i, states.places);
    LaneNumber w(load_lanes(at.weights + i));
    const LaneNumber zero(0.0);
    LaneNumber s[4] = {zero, zero, zero, zero};
    for (size_t j = 0; j < kMoments; ++j) {
      s[j].lanes = decode_lanes(states.places[j].codes + i, byte_values(kMomentFormats[j]).data(),
                                scales[j]);
    }
    UpdateRow<kRule>::step(w, LaneNumber(hn::Mul(load_lanes(at.gradient + i), factor)), s, k);
    for (size_t j = 0; j < kMoments; ++j) {
      store_lanes(s[j].lanes, states.values[j] + i);
      keys[j] = hn::Max(keys[j], key_lanes(s[j].lanes));
    }
    store_lanes(w.lanes, at.weights + i);
    if constexpr (kEncodes) {
      encode_lanes<0>(before, quotients[0], i);
      encode_lanes<1>(before, quotients[1], i);
    }
  }
  for (size_t j = 0; j < kMoments; ++j) {
    states.scales[j] = scale_of(hn::GetLane(hn::MaxOfLanes(Words(), keys[j])));
    std::memcpy(states.places[j].scale, &states.scales[j], sizeof(float));
  }
}

// Blocks that come one after the other.
class BlockWalk {
 public:
  explicit BlockWalk(const StepScalars<float>& scalars) : scalars_(scalars) {}
  HWY_INLINE void update(const BlockOperands& at, const std::array<BlockState, kMoments>& places) {
    NewStates& before = states_[next_];
    next_ = 1 - next_;
    NewStates& states = states_[next_];
    std::ranges::copy(places, states.places);
    constexpr UpdateRule kRule = UpdateRule::adamw;
    if (has_left_) {
      update_block<kRule, true>(scalars_, at, states, before);
    } else {
      update_block<kRule, false>(scalars_, at, states, before);
    }
    has_left_ = true;
    if (!states.have_reciprocals()) finish();
  }
  // Encodes what is left.
  void finish() {
    if (!std::exchange(has_left_, false)) return;
    encode_block<0>(states_[next_]);
    encode_block<1>(states_[next_]);
  }

 private:
  const StepScalars<float>& scalars_;
  NewStates states_[2];
  size_t next_ = 0;        // in states_, of the block that was updated last
  bool has_left_ = false;  // it is not encoded yet
};

void block_update_vectors(const ElementUpdate& args) {
  const StepScalars<float> scalars = step_scalars<float>(args);
  const auto convert = [](const auto* from, auto* to) HWY_ATTR {
    for_each_vector(kStateBlock, [&](int64_t i, auto load, auto store)
                                     HWY_ATTR { store(load(from + i), to + i); });
  };
  const int64_t blocks = args.weights.numel() / kStateBlock;
  const auto places = [&](int64_t block) {
    return std::array{block_of(args.states[0], kMomentFormats[0], block),
                      block_of(args.states[1], kMomentFormats[1], block)};
  };
  const auto* gradients = static_cast<const std::byte*>(args.gradient.data());
  const int64_t size = size_of(args.gradient.dtype());
  parallel_for(blocks, kElementGrain / kStateBlock, [&](int64_t begin, int64_t end) HWY_ATTR {
    HWY_ALIGN float room[kStateBlock];
    BlockWalk walk(scalars);
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
      const bool has_next = block + kBlocksPerChunk < blocks;
      const int64_t elements_ahead = has_next ? kFormatChunk : 0;
      walk.update({.weights = weights,
                   .gradient = gradient,
                   .gradient_ahead = gradients + (at + elements_ahead) * size,
                   .gradient_size = size,
                   .elements_ahead = elements_ahead,
                   .bytes_ahead = has_next ? kInt8ChunkBytes : 0},
                  places(block));
      if (!args.model_weights) continue;
      dispatch_short_float(args.model_weights.dtype(), [&]<class Model>() HWY_ATTR {
        convert(static_cast<const float*>(weights), args.model_weights.data_as<Model>() + at);
      });
    }
    walk.finish();
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
