// autograd/linear_fp8.h: products of a linear layer from codes of 8 bits.
#pragma once

#include <memory>

#include "autograd/linear_products.h"

namespace zinc::autograd {

// The three products take codes of 8 bits: e4m3 for x and the weight, e5m2 for dz, with one scale
// for each matrix (Note [Products of 8 bits] in kernels/gemm.h). x is bf16.
//
// Note [Codes of a layer]
// In 8 bits, one pass over x and one over dz make the codes of both products that take them. x is
// saved as the codes for the weight's gradient, half of its size; it is saved unencoded where
// backward makes it again (Note [Remade results] in autograd/remade.h), or where its rows came one
// part after the other, each with its own scale. Codes of weights are made for each product: kept
// from one product to the next they would take half as much memory again as the weights, on every
// stage. The scale of a weight is kept.
std::shared_ptr<LinearProducts> fp8_products(WeightLayout layout);

}  // namespace zinc::autograd
