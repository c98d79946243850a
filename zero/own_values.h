// zero/own_values.h: the part of a model's values that a rank writes to files.
//
// A rank's part of a parameter is what lies in its shard of the parameter's segment, also on stages
// that keep weights whole: so files are written by all ranks alike, each its own bytes.
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

// A piece of what a rank hands out of one kind of a parameter.
struct OwnPiece {
  const std::string& name;  // of the parameter
  std::string_view kind;
  // Where ranks share the parameter: the slice of it that `part` and `begin` count in. Null: it is
  // whole.
  const TensorSlice* slice = nullptr;
  // Of the flat parameter (slice): this rank's part of it, and where in it the piece begins. Pieces
  // of one kind follow each other in ascending order; all but the last have kPieceNumel elements.
  Range part;
  int64_t begin = 0;
  ConstView values;  // [n] f32 (f64 for f64 models) in host memory, valid during the call
  // Of a piece that is held: while somebody has this, values stay valid and the update that would
  // change them waits. Values in swap space are absent, and given by `read` instead: on any thread,
  // of one piece at a time.
  Lease lease{};
  std::function<void(View out)> read{};
};
using TakeOwn = std::function<void(const OwnPiece& piece)>;

// What pieces are held by. `swapped`: null where nothing is in swap space.
struct OwnHold {
  UpdateGate& gate;
  SwappedReader* swapped = nullptr;
};

// What a rank hands out of weights and `num_states` states, with padding.
struct OwnBytes {
  int64_t trained = 0;
  int64_t frozen = 0;
};
OwnBytes own_bytes(const std::vector<ShardGroup>& groups, int world, int num_states);

// See Engine::read_own. `kinds`: by plane; states are handed out of trained parameters. Pieces go
// through one staging buffer of 4 MiB (f64 models: 8) at most. `hold`: trained values are held,
// which lie in host memory or swap space, all of them; null: nothing is. `hands_out`: whether a
// parameter that other ranks may have, too, is this rank's to hand out.
void read_own_values(const std::vector<ShardGroup>& groups, WeightStore& weights,
                     const comm::Communicator& communicator, Context& context,
                     std::span<const std::string_view> kinds, const OwnHold* hold,
                     const std::function<bool(const autograd::Parameter&)>& hands_out,
                     const TakeOwn& take);

}  // namespace zinc::zero
