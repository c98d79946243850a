// optim/muon_options.h: the constants of optim/muon.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace zinc::optim {

// What a step of a matrix of [rows, columns] is multiplied by.
enum class MuonScale : uint8_t {
  original,   // sqrt(max(1, rows / columns)): Jordan
  match_rms,  // 0.2 sqrt(max(rows, columns)): an element moves as far as with AdamW; Liu et al.
};
// torch's: "original", "match_rms_adamw".
inline std::string_view name_of(MuonScale scale) {
  return scale == MuonScale::original ? "original" : "match_rms_adamw";
}

struct MuonOptions {
  bool nesterov = true;
  int steps = 5;  // of the iteration; at least 1
  MuonScale scale = MuonScale::original;
  double a = 3.4445, b = -4.7750, c = 2.0315;  // of the iteration
  double eps = 1e-7;  // the least norm of a direction that is divided by it; above 0
  // bf16 | f32: the dtype of directions, products and steps beside f32 weights. f64 beside f64.
  DType products = DType::bf16;
  // Patterns (core/glob.h) of names of parameters that have the optimizer's update().
  std::vector<std::string> exclude{};
};

}  // namespace zinc::optim
