// bench/model_products.h: the matrix products of a model, by their sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "hub/model_config.h"

namespace zinc::bench {

// y [m, n] = x [m, k] W; a backward pass makes two more of the same size.
struct Product {
  int64_t n;
  int64_t k;
  int64_t count;  // per forward pass
};

// The products of all linear layers, and of the head if it is the embedding.
std::vector<Product> products_of(const hub::ModelConfig& config);

}  // namespace zinc::bench
