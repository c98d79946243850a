// kernels/binary_functions.h: the functions of kernels/binary.h and their derivatives at one
// element, for every device; F is float or double.
#pragma once

#include "core/host_device.h"
#include "kernels/binary.h"

namespace zinc::kernels {

template <class F>
ZINC_HOST_DEVICE inline F value_of(BinaryOp op, F a, F b) {
  switch (op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::sub:
      return a - b;
    case BinaryOp::mul:
      return a * b;
    case BinaryOp::div:
      return a / b;
    case BinaryOp::max:
      return a >= b || a != a ? a : b;
    case BinaryOp::min:
      break;
  }
  return a <= b || a != a ? a : b;
}

template <class F>
ZINC_HOST_DEVICE inline F gradient_of_a(BinaryOp op, F a, F b, F dy) {
  switch (op) {
    case BinaryOp::mul:
      return dy * b;
    case BinaryOp::div:
      return dy / b;
    case BinaryOp::max:
      return b > a ? F(0) : dy;
    case BinaryOp::min:
      return b < a ? F(0) : dy;
    default:
      return dy;
  }
}

// What one element adds to the gradient of b.
template <class F>
ZINC_HOST_DEVICE inline F gradient_of_b(BinaryOp op, F a, F b, F dy) {
  switch (op) {
    case BinaryOp::sub:
      return -dy;
    case BinaryOp::mul:
      return dy * a;
    case BinaryOp::div:
      return -(dy * (a / b)) / b;
    case BinaryOp::max:
      return b > a ? dy : F(0);
    case BinaryOp::min:
      return b < a ? dy : F(0);
    default:
      return dy;
  }
}

}  // namespace zinc::kernels
