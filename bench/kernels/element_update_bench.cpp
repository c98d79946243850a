#include <optional>

#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/decode.h"
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

// AdamW with moments in blocks of 8 bits. They start as bytes below 64, every four of which are a
// scale that is a float below 1. In f64 there are no blocks: the oracle decodes the moments to
// arrays of its own.
void add_blocks(Registry& registry, DType dtype) {
  constexpr auto kRule = kernels::UpdateRule::adamw;
  const int64_t n = registry.flat() / kFormatChunk * kFormatChunk;
  const int64_t bytes = encoded_bytes(BlockFormat::signed8, n);
  const ArraySpec moment{.shape = {bytes}, .low = 0, .high = 64, .fixed = DType::u8};
  const ArraySpec decoded{.shape = {n}, .fixed = DType::f32};
  const int64_t kept = 4 * n + 2 * bytes;
  add_case(registry,
           {.op = "adamw in blocks",
            .pass = "forward",
            .shape = str("n=", n),
            .dtype = dtype,
            .ceiling = Ceiling::stream(1, 0, 3),
            .arrays = {{.shape = {n}, .low = -1, .high = 1},
                       {.shape = {n}, .low = -1, .high = 1, .compared = true, .fixed = DType::f32},
                       moment,
                       moment,
                       decoded,
                       decoded},
            .launch =
                [](const std::vector<View>& v, StreamRef stream) {
                  kernels::ElementUpdate args{.rule = kRule,
                                              .weights = v[1],
                                              .gradient = v[0],
                                              .states = {v[2], v[3]},
                                              .constants = {.weight_decay = 0.1}};
                  for (size_t i = 0; v[1].dtype() == DType::f64 && i < 2; ++i) {
                    const BlockFormat format = kernels::state_formats(kRule)[i];
                    kernels::decode({.x = v[2 + i], .format = format, .y = v[4 + i]}, stream);
                    args.states[i] = v[4 + i];
                  }
                  kernels::element_update(args, stream);
                },
            .cost = {.bytes_read = n * size_of(dtype) + kept,
                     .bytes_written = kept,
                     .flops = kernels::update_flops(kRule, {.weight_decay = 0.1}) * n}});
}

}  // namespace

void add_element_update_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
#define ZINC_ROW(name, ...) add_rule(registry, kernels::UpdateRule::name, dtype);
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
    add_blocks(registry, dtype);
  }
}

}  // namespace zinc::bench
