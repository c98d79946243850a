#include <algorithm>
#include <cmath>

#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/fp8_round.h"

namespace zinc::bench {
namespace {

// The kernel takes bf16 alone: one element after the other.
void round_f64(const View& x, const View& y) {
  const double* from = x.data_as<double>();
  double largest = 0.0;
  for (int64_t i = 0; i < x.numel(); ++i) largest = std::max(largest, std::abs(from[i]));
  const int exponent = fp8_scale_exponent(Fp8::e4m3, static_cast<float>(largest));
  for (int64_t i = 0; i < x.numel(); ++i) {
    y.data_as<double>()[i] = round_to_fp8(Fp8::e4m3, exponent, static_cast<float>(from[i]));
  }
}

}  // namespace

void add_fp8_round_benches(Registry& registry) {
  const int64_t n = registry.flat();
  add_case(registry, {.op = "fp8_round",
                      .pass = "forward",
                      .shape = str("n=", n),
                      .dtype = DType::bf16,
                      .ceiling = Ceiling::stream(2, 1),
                      .arrays = {{.shape = {n}, .low = -1, .high = 1},
                                 {.shape = {n}, .compared = true},
                                 {.shape = {1}, .fixed = DType::f32}},
                      .launch =
                          [](const std::vector<View>& v, StreamRef stream) {
                            if (v[0].dtype() == DType::f64) {
                              stream.submit("fp8_round", [v] { round_f64(v[0], v[1]); });
                              return;
                            }
                            kernels::fp8_round({.x = v[0], .y = v[1], .largest = v[2]}, stream);
                          },
                      .cost = {.bytes_read = 4 * n, .bytes_written = 2 * n, .flops = 4 * n}});
}

}  // namespace zinc::bench
