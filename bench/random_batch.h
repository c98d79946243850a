// bench/random_batch.h: a micro-batch of random tokens.
#pragma once

#include <cstdint>

#include "nn/batch.h"

namespace zinc::bench {

// Number `index` of a fixed stream; every position has a target.
nn::Batch random_batch(int64_t index, int64_t batch, int64_t seq, int64_t vocabulary);

}  // namespace zinc::bench
