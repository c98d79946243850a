#include <optional>

#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/element_update.h"

namespace zinc::bench {
namespace {

void add_rule(Registry& registry, kernels::UpdateRule rule, DType dtype) {
  const int states = kernels::num_states(rule);
  const bool has_weights = !kernels::makes_direction(rule);
  const int64_t n = registry.flat();
  std::vector<ArraySpec> arrays{{.shape = {n}, .low = -1, .high = 1}};
  for (int i = 0; i <= states; ++i) {
    // Weights, or a direction of the case's dtype; then states, which lie in [0, 1): sums of
    // squares are among them.
    arrays.push_back({.shape = {n},
                      .low = i == 0 ? -1.0 : 0.0,
                      .high = 1,
                      .compared = true,
                      .fixed = i > 0 || has_weights ? std::optional(DType::f32) : std::nullopt});
  }
  const int64_t updated = 4 * (states + (has_weights ? 1 : 0)) * n;
  const int64_t directed = has_weights ? 0 : size_of(dtype) * n;
  add_case(
      registry,
      {.op = std::string(kernels::name_of(rule)),
       .pass = "forward",
       .shape = str("n=", n),
       .dtype = dtype,
       .ceiling = has_weights ? Ceiling::stream(1, 0, states + 1) : Ceiling::stream(1, 1, states),
       .arrays = std::move(arrays),
       .launch =
           [rule, states](const std::vector<View>& v, StreamRef stream) {
             kernels::ElementUpdate args{.rule = rule,
                                         .gradient = v[0],
                                         .constants = {.weight_decay = 0.1, .momentum = 0.9}};
             (kernels::makes_direction(rule) ? args.direction : args.weights) = v[1];
             for (size_t i = 0; i < static_cast<size_t>(states); ++i) {
               args.states[i] = v[2 + i];
             }
             kernels::element_update(args, stream);
           },
       .cost = {.bytes_read = n * size_of(dtype) + updated,
                .bytes_written = updated + directed,
                .flops = kernels::update_flops(rule, {.weight_decay = 0.1}) * n}});
}

}  // namespace

void add_element_update_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
#define ZINC_ROW(name, ...) add_rule(registry, kernels::UpdateRule::name, dtype);
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  }
}

}  // namespace zinc::bench
