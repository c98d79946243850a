// train/weight_histograms.h: how the weights of a model are spread.
#pragma once

#include <vector>

#include "train/metrics/histogram.h"
#include "zero/engine.h"

namespace zinc::train {

// The histogram of each trained parameter, in the model's order, over the values that the optimizer
// updates, on all ranks. The same on every rank; counts are the same in every world. Collective;
// between steps.
std::vector<Histogram> weight_histograms(zero::Engine& engine);

}  // namespace zinc::train
