#include "bench/kernels/all.h"

namespace zinc::bench {

// One declaration and one call per op, in alphabetical order.
void add_attention_benches(Registry& registry);
void add_cross_entropy_benches(Registry& registry);
void add_gemm_benches(Registry& registry);
void add_linear_cross_entropy_benches(Registry& registry);
void add_softmax_benches(Registry& registry);

Registry kernel_benches() {
  Registry registry;
  add_attention_benches(registry);
  add_cross_entropy_benches(registry);
  add_gemm_benches(registry);
  add_linear_cross_entropy_benches(registry);
  add_softmax_benches(registry);
  return registry;
}

}  // namespace zinc::bench
