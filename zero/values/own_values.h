// zero/values/own_values.h: the part of a model's values that a rank writes to files.
//
// A rank's part of a parameter is what lies in the rank's shard of the parameter's segment. This
// holds on all stages, even where every rank keeps whole weights. So every rank writes an equal
// share of the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/shape.h"
#include "core/tensor_slice.h"
#include "core/view.h"
#include "tensor/tensor.h"
#include "zero/layout/shard_group.h"
#include "zero/update/update_gate.h"

namespace zinc::zero {

// The values that read_own() hands out.
enum class Own : uint8_t { weights, weights_and_states };

// Values of whole parameters, by name.
using EditedParameters = std::map<std::string, Tensor, std::less<>>;

// A piece of one kind of values of a parameter.
struct OwnPiece {
  const std::string& name;  // name of the parameter
  std::string_view kind;
  // If ranks share the parameter: the slice that `part` and `begin` count in. Null: the parameter
  // is whole.
  const TensorSlice* slice = nullptr;
  // If the values have a shape of their own, as the vectors of whole parameters have. Null: that of
  // the parameter.
  const Shape* shape = nullptr;
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

// The bytes that a rank hands out of weights and states, all in f32 (f64 models: f64), padding
// included. The same on every rank.
struct OwnBytes {
  int64_t trained = 0;
  int64_t frozen = 0;
  // States of whole parameters, and errors of signs, at most; they are never held.
  int64_t vectors = 0;
};

}  // namespace zinc::zero
