#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/step_verdict.h"

namespace zinc::bench {

// Benches for a model of 512 parameters of one leaf each, on one rank.
void add_step_verdict_benches(Registry& registry) {
  constexpr int64_t kLeaves = 512;
  constexpr int64_t kHeaders = 2;
  const auto out_bytes = static_cast<int64_t>(sizeof(kernels::StepVerdict)) + 8 * kHeaders;
  add_case(
      registry,
      {.op = "step_verdict",
       .pass = "forward",
       .shape = str("n=", kLeaves),
       .dtype = DType::f32,
       .ceiling = {},
       .arrays = {{.shape = {kHeaders + kLeaves}, .low = 0, .high = 0, .fixed = DType::f64},
                  {.shape = {kLeaves}, .fixed = DType::i64},
                  {.shape = {1, 2}, .fixed = DType::i64},
                  {.shape = {kLeaves + 1, 2}, .fixed = DType::i64},
                  {.shape = {kLeaves}, .low = 0, .high = 0, .compared = true, .fixed = DType::f64},
                  {.shape = {static_cast<int64_t>(sizeof(kernels::LossScaleState))},
                   .fixed = DType::u8},
                  {.shape = {out_bytes}, .fixed = DType::u8}},
       .launch =
           [](const std::vector<View>& v, StreamRef stream) {
             kernels::decide_step({.gathered = v[0],
                                   .words = kHeaders + kLeaves,
                                   .num_headers = kHeaders,
                                   .num_batches = 1,
                                   .longest = kLeaves,
                                   .sources = v[1],
                                   .merges = v[2],
                                   .parameters = v[3],
                                   .clipping = 1.0,
                                   .leaves = v[4],
                                   .scale = v[5],
                                   .out = v[6]},
                                  stream);
           },
       .cost = {.bytes_read = 4 * 8 * kLeaves, .bytes_written = out_bytes, .flops = kLeaves}});
}

}  // namespace zinc::bench
