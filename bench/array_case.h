// bench/array_case.h: the usual bench entry: some arrays, one launch, the same launch in f64 to
// compare.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/registry.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/view.h"

namespace zinc::bench {

struct ArraySpec {
  Shape shape;
  double low = 0.0;  // contents: uniform in [low, high), also of arrays that are overwritten
  double high = 0.0;
  bool compared = false;  // an output; compared with the f64 path
  // Absent: the case's dtype, f64 in the oracle. A float here becomes f64 in the oracle too;
  // integers and u8 stay.
  std::optional<DType> fixed;
};

struct ArrayCase {
  std::string op;
  std::string pass;
  std::string shape;
  DType dtype = DType::f32;
  Ceiling ceiling;
  std::vector<ArraySpec> arrays;
  // The views in the order of `arrays`, all of the case's dtype or all f64.
  std::function<void(const std::vector<View>& views, StreamRef stream)> launch;
  kernels::Cost cost;
};

// The allowed difference between the f64 path and one rounding to the dtype after sums in f32: half
// a unit of a 16-bit format (2^-9 for bf16, kept at 2^-8), or 2^-24 times the root of a thousand
// terms.
double case_tolerance(DType dtype);

void add_case(Registry& registry, const ArrayCase& array_case);

}  // namespace zinc::bench
