// zero/values/own_values.h: the part of a model's values that a rank writes to files.
//
// A rank's part of a parameter is what lies in the rank's shard of the parameter's segment. This
// holds on all stages, even where every rank keeps whole weights. So every rank writes an equal
// share of the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"
#include "zero/tiers/swapped_reader.h"
#include "zero/update/update_gate.h"

namespace zinc::zero {

// A piece of one kind of values of a parameter.
struct OwnPiece {
  const std::string& name;  // of the parameter
  std::string_view kind;
  // If ranks share the parameter: the slice that `part` and `begin` count in. Null: the parameter
  // is whole.
  const TensorSlice* slice = nullptr;
  // `part`: this rank's part of the flat parameter, or slice. `begin`: where in the flat parameter
  // the piece begins. The pieces of a parameter come one kind after the other, each kind in
  // ascending order. All but the last of a kind have kPieceNumel elements.
  Range part;
  int64_t begin = 0;
  ConstView values;  // [n] f32 (f64 models: f64) in host memory, valid during the call
  // For a held piece: while a copy of the lease exists, `values` stay valid, and the update that
  // would change them waits. Held values in swap space, or kept in fewer bits, have no `values`;
  // `read` gives them instead, on any thread, one piece at a time.
  Lease lease{};
  std::function<void(View out)> read{};
};
using TakeOwn = std::function<void(const OwnPiece& piece)>;

// How pieces are held. `swapped`: null if nothing is in swap space.
struct OwnHold {
  UpdateGate& gate;
  SwappedReader* swapped = nullptr;
};

// The bytes that a rank hands out of weights and `num_states` states, all in f32 (f64 models: f64),
// padding included. The same on every rank.
struct OwnBytes {
  int64_t trained = 0;
  int64_t frozen = 0;
};
OwnBytes own_bytes(const std::vector<ShardGroup>& groups, int world, int num_states);

// The implementation of Engine::read_own().
// - `kinds`: the names of the planes. States are handed out of trained parameters only.
// - `hold`: trained values are held instead of copied; all of them must lie in host memory or swap
//   space. Null: nothing is held.
// - `hands_out`: whether this rank hands out a parameter that other ranks may have too.
//
// Pieces pass through one staging buffer of at most 4 MiB (f64 models: 8 MiB).
void read_own_values(const std::vector<ShardGroup>& groups, WeightStore& weights,
                     const comm::Communicator& communicator, Context& context,
                     std::span<const std::string_view> kinds, const OwnHold* hold,
                     const std::function<bool(const autograd::Parameter&)>& hands_out,
                     const TakeOwn& take);

}  // namespace zinc::zero
