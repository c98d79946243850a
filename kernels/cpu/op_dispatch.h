// kernels/cpu/op_dispatch.h: from an op's enumerator to a template argument.
#pragma once

#include "kernels/binary.h"
#include "kernels/unary.h"

namespace zinc::kernels::cpu {

// Calls body.template operator()<op>().
template <class Body>
void dispatch_unary(UnaryOp op, Body&& body) {
  switch (op) {
    case UnaryOp::neg:
      return body.template operator()<UnaryOp::neg>();
    case UnaryOp::abs:
      return body.template operator()<UnaryOp::abs>();
    case UnaryOp::square:
      return body.template operator()<UnaryOp::square>();
    case UnaryOp::sqrt:
      return body.template operator()<UnaryOp::sqrt>();
    case UnaryOp::rsqrt:
      return body.template operator()<UnaryOp::rsqrt>();
    case UnaryOp::reciprocal:
      return body.template operator()<UnaryOp::reciprocal>();
    case UnaryOp::exp:
      return body.template operator()<UnaryOp::exp>();
    case UnaryOp::log:
      return body.template operator()<UnaryOp::log>();
    case UnaryOp::tanh:
      return body.template operator()<UnaryOp::tanh>();
    case UnaryOp::sigmoid:
      return body.template operator()<UnaryOp::sigmoid>();
    case UnaryOp::relu:
      return body.template operator()<UnaryOp::relu>();
    case UnaryOp::silu:
      return body.template operator()<UnaryOp::silu>();
  }
}

// Calls body.template operator()<op>().
template <class Body>
void dispatch_binary(BinaryOp op, Body&& body) {
  switch (op) {
    case BinaryOp::add:
      return body.template operator()<BinaryOp::add>();
    case BinaryOp::sub:
      return body.template operator()<BinaryOp::sub>();
    case BinaryOp::mul:
      return body.template operator()<BinaryOp::mul>();
    case BinaryOp::div:
      return body.template operator()<BinaryOp::div>();
    case BinaryOp::max:
      return body.template operator()<BinaryOp::max>();
    case BinaryOp::min:
      return body.template operator()<BinaryOp::min>();
  }
}

}  // namespace zinc::kernels::cpu
