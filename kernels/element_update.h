// kernels/element_update.h: one step of an element-wise update rule, in one pass. The rules and
// their formulas: Note [Bits of an update] in update_table.h.
//
// Note [States in 16 bits]
// States of bf16 are widened for the arithmetic. What is stored is the new state after stochastic
// rounding (round_by_chance() in kernels/stochastic_rounding.h), with the low half of the element's
// random word for the first state and the high half for the second. The weight is computed from the
// states before they are rounded.
//
// Note [Weights in 16 bits]
// Weights of bf16 are widened for the arithmetic too, and the new weight is rounded by chance, with
// the low half of the word that random_of_weights() gives the element.
//
// Note [Bits of states in blocks]
// States in 8 bits have the formats of state_formats(): Note [States in 8 bits] in
// core/block_format.h. They are decoded (the value of the code times the scale, rounded once), used
// as f32 states are, and encoded again, each block of 256 elements from its new values. The weight
// is computed from the states before they are encoded. So the bits of a block depend on its
// elements alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/block_format.h"
#include "core/philox.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"
#include "kernels/element_places.h"
#include "kernels/update_table.h"

namespace zinc::kernels {

struct ElementUpdate {
  UpdateRule rule = UpdateRule::adamw;
  // [n] f64 | f32 master weights, or bf16 without any, in place; only read for a direction
  View weights{};
  ConstView gradient;  // [n] f32 | bf16 | f16 (f64 with f64)
  // num_states(rule) of [n], in place: f64 with a gradient of f64, else f32; or bf16 all, for rules
  // with at most two; or all [encoded_bytes(n)] u8, aligned to 8, for rules with state_formats(), n
  // a multiple of kFormatChunk
  std::array<View, kMaxUpdateStates> states{};
  // [n] bf16 | f16 | f32, overwrites; may be absent. Beside weights of bf16 it is bf16, and equal.
  View model_weights{};
  // [n] f32 | bf16 | f16 (f64 with f64), overwrites: the result of a rule with makes_direction(),
  // for which `model_weights` are absent, and `weights` too unless it has reads_weights()
  View direction{};
  ConstView factor{};  // [1] f32 on the device: multiplies the gradient; absent: 1
  ConstView skip{};    // [1] i32 on the device, may be absent: non-zero leaves every bit as it is
  // [num_update_values(rule)] f32 (f64 with f64) on the device, may be absent: what update_values()
  // or norm_rate() gave; `constants`, `step` and random.counter_high are not read then
  ConstView values{};
  UpdateConstants constants{};
  int64_t step = 1;  // number of this update, from 1
  // For states and weights in bf16: element i has the word random.bits(places.place(first_element +
  // i)).
  RandomKey random{};
  int64_t first_element = 0;
  ElementPlaces places{};
};

// The formats of the states where they are kept in 8 bits; empty: the rule has none. For f32
// weights.
std::span<const BlockFormat> state_formats(UpdateRule rule);

// All views contiguous. Asynchronous on `stream`. Element i depends on element i alone, or on its
// block.
void element_update(const ElementUpdate& args, StreamRef stream);

// The scalars of a step for f32 weights, then the bits of random.counter_high, low half first;
// reads no view. So an update that is queued once can run with another learning rate and step each
// time.
int64_t num_update_values(UpdateRule rule);
void update_values(const ElementUpdate& args, std::span<float> values);
Cost cost(const ElementUpdate& args);

}  // namespace zinc::kernels
