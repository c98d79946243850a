#include <algorithm>
#include <cmath>

#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/fp8_encode.h"

namespace zinc::bench {
namespace {

// The kernel takes bf16 alone: one element after the other.
void encode_f64(const View& x, const View& codes, const View& transposed) {
  const double* from = x.data_as<double>();
  double largest = 0.0;
  for (int64_t i = 0; i < x.numel(); ++i) largest = std::max(largest, std::abs(from[i]));
  const int exponent = fp8_scale_exponent(Fp8::e4m3, static_cast<float>(largest));
  for (int64_t i = 0; i < x.dim(0); ++i) {
    for (int64_t j = 0; j < x.dim(1); ++j) {
      const auto value = static_cast<float>(from[i * x.dim(1) + j]);
      const float on_grid = round_to_fp8(Fp8::e4m3, exponent, value) * power_of_two(exponent);
      const uint8_t code = fp8_code(Fp8::e4m3, on_grid);
      codes.data_as<uint8_t>()[i * x.dim(1) + j] = code;
      transposed.data_as<uint8_t>()[j * x.dim(0) + i] = code;
    }
  }
}

}  // namespace

void add_fp8_encode_benches(Registry& registry) {
  constexpr int64_t kCols = 4096;
  const int64_t cols = std::min(registry.flat(), kCols), rows = registry.flat() / cols;
  const int64_t n = rows * cols;
  add_case(registry, {.op = "fp8_encode",
                      .pass = "forward",
                      .shape = str(rows, "x", cols),
                      .dtype = DType::bf16,
                      .ceiling = Ceiling::stream(2, 1),
                      .arrays = {{.shape = {rows, cols}, .low = -1, .high = 1},
                                 {.shape = {rows, cols}, .compared = true, .fixed = DType::u8},
                                 {.shape = {cols, rows}, .compared = true, .fixed = DType::u8},
                                 {.shape = {2}, .fixed = DType::f32}},
                      .launch =
                          [](const std::vector<View>& v, StreamRef stream) {
                            if (v[0].dtype() == DType::f64) {
                              stream.submit("fp8_encode", [v] { encode_f64(v[0], v[1], v[2]); });
                              return;
                            }
                            kernels::fp8_encode(
                                {.x = v[0], .codes = v[1], .transposed = v[2], .scale = v[3]},
                                stream);
                          },
                      .cost = {.bytes_read = 4 * n, .bytes_written = 2 * n, .flops = 4 * n}});
}

}  // namespace zinc::bench
