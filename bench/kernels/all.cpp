#include "bench/kernels/all.h"

namespace zinc::bench {

// One declaration and one call per op, in alphabetical order.
// clang-format off
// clang-format on

Registry kernel_benches() {
  Registry registry;
  return registry;
}

}  // namespace zinc::bench
