// core/convert.h: float values from one dtype to another, in host memory, on any thread.
#pragma once

#include "core/view.h"

namespace zinc {

// out[i] = in[i]. Both contiguous host memory with the same number of elements; equal dtypes, or
// two float dtypes (rounded to nearest even; f64 to 16 bits by way of f32).
void convert_elements(ConstView in, View out);

}  // namespace zinc
