// bench/kernels/array_case.h: bench entries of ops over arrays, checked against their own f64 path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/arrays.h"
#include "bench/registry.h"
#include "core/context.h"
#include "core/view.h"

namespace zinc::bench {

// One argument: uniform in [low, high) by `seed`; integers are those of that range.
struct Operand {
  Shape shape;
  DType dtype = DType::f32;
  double low = -1.0;
  double high = 1.0;
  uint64_t seed = 1;
  bool exact = false;  // keeps its dtype on the f64 path too (scalars of a fixed dtype)
};

using Views = std::vector<View>;

struct ArrayCase {
  std::string op;
  std::string pass = "forward";
  DType dtype = DType::f32;
  std::string shape;
  Ceiling ceiling;
  double tolerance = 0.0;        // relative L2 over updates and outputs
  std::vector<Operand> inputs;   // only read
  std::vector<Operand> updates;  // read and written
  std::vector<Operand> outputs;  // only written
  // Workspace in bytes by the dtype of the call; null: none.
  std::function<int64_t(DType)> workspace;
};

// All views in the order inputs, updates, outputs, workspace.
using Launch = std::function<void(const Views&, StreamRef)>;

void add_array_case(Registry& registry, const ArrayCase& entry, const kernels::Cost& cost,
                    const Launch& launch);

// Views of the case's shapes that must not be read: for cost functions.
Views shape_views(const ArrayCase& entry);

// `make_args` makes the op's argument struct of the views; `kernel` is the op.
template <class MakeArgs, class Kernel>
void add_case(Registry& registry, const ArrayCase& entry, MakeArgs make_args, Kernel kernel) {
  add_array_case(registry, entry, cost(make_args(shape_views(entry))),
                 [=](const Views& views, StreamRef stream) { kernel(make_args(views), stream); });
}

// One rounding to `dtype`, and `operations` roundings in f32.
double rounding_tolerance(DType dtype, double operations);

// The dtypes that training meets.
inline constexpr DType kBenchDTypes[] = {DType::bf16, DType::f32};

}  // namespace zinc::bench
