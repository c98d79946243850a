// kernels/cpu/short_float.h: dispatch over the float dtypes that vector code serves.
#pragma once

#include "core/dtype.h"
#include "core/error.h"

namespace zinc::kernels::cpu {

// Calls body.template operator()<T>() for f32, bf16 and f16.
template <class Body>
void dispatch_short_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bf16>();
    case DType::f16:
      return body.template operator()<f16>();
    default:
      bug_check(false, "vector code was given ", dtype);
  }
}

// The same for the dtype of a sum over values of T: T itself or f32.
template <class T, class Body>
void dispatch_sum_target(DType dtype, Body&& body) {
  if (dtype == kDTypeOf<T>) return body.template operator()<T>();
  bug_check(dtype == DType::f32, "a sum of ", kDTypeOf<T>, " into ", dtype);
  return body.template operator()<float>();
}

}  // namespace zinc::kernels::cpu
