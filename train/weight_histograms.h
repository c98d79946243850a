// train/weight_histograms.h: how the weights of a model are spread.
#pragma once

#include <vector>

#include "train/metrics/histogram.h"
#include "zero/engine.h"

namespace zinc::train {

// Of each trained parameter, in the model's order: the values that the optimizer works on, of all
// ranks. The same on every rank; counts are the same in every world. Collective; between steps.
std::vector<Histogram> weight_histograms(zero::Engine& engine);

}  // namespace zinc::train
