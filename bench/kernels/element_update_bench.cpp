#include <algorithm>

#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/decode.h"
#include "kernels/element_update.h"

namespace zinc::bench {
namespace {

void add_rule(Registry& registry, kernels::UpdateRule rule, DType dtype) {
  const int states = kernels::num_states(rule);
  const bool directs = kernels::makes_direction(rule);
  const bool has_weights = kernels::reads_weights(rule);
  const int64_t n = registry.flat();
  // The gradient; a direction of the case's dtype; weights; states, which lie in [0, 1): sums of
  // squares are among them.
  std::vector<ArraySpec> arrays{{.shape = {n}, .low = -1, .high = 1}};
  if (directs) arrays.push_back({.shape = {n}, .low = -1, .high = 1, .compared = true});
  for (int i = has_weights ? -1 : 0; i < states; ++i) {
    arrays.push_back({.shape = {n},
                      .low = i < 0 ? -1.0 : 0.0,
                      .high = 1,
                      .compared = true,
                      .fixed = DType::f32});
  }
  const int64_t states_bytes = 4 * states * n;
  const int64_t weights_bytes = 4 * n;
  const int64_t result = directs ? size_of(dtype) * n : weights_bytes;
  add_case(
      registry,
      {.op = std::string(kernels::name_of(rule)),
       .pass = "forward",
       .shape = str("n=", n),
       .dtype = dtype,
       .ceiling = directs ? Ceiling::stream(has_weights ? 2 : 1, 1, states)
                          : Ceiling::stream(1, 0, states + 1),
       .arrays = std::move(arrays),
       .launch =
           [rule, states, directs, has_weights](const std::vector<View>& v, StreamRef stream) {
             kernels::ElementUpdate args{.rule = rule,
                                         .gradient = v[0],
                                         .constants = {.weight_decay = 0.1, .momentum = 0.9}};
             auto next = v.begin() + 1;
             if (directs) args.direction = *next++;
             if (has_weights) args.weights = *next++;
             std::copy_n(next, states, args.states.begin());
             kernels::element_update(args, stream);
           },
       .cost = {.bytes_read = n * size_of(dtype) + states_bytes + (has_weights ? weights_bytes : 0),
                .bytes_written = states_bytes + result,
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
