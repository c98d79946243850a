// train/checkpoint/compare.h: in what two checkpoints differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.h"

namespace zinc::train {

// One kind of a parameter, where its values are not the same bits.
struct ValueDifference {
  std::string name;
  std::string kind;
  int64_t numel = 0;
  int64_t differing = 0;  // elements
  double greatest = 0.0;  // largest |a - b|; NaN where a or b is NaN
};

struct CheckpointDifference {
  std::vector<std::string> only_a, only_b;  // "<kind> of <parameter>", also where shapes differ
  std::vector<std::string> counters;        // "steps: 120 and 240"
  std::vector<ValueDifference> values;
  int64_t compared = 0;  // elements
  bool empty() const {
    return only_a.empty() && only_b.empty() && counters.empty() && values.empty();
  }
};

// Piece by piece: takes some megabytes whatever the checkpoints have. Throws as Checkpoint::read().
CheckpointDifference compare(const Checkpoint& a, const Checkpoint& b);

}  // namespace zinc::train
