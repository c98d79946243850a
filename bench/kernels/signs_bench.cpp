#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/signs.h"

namespace zinc::bench {
namespace {

constexpr int64_t kChunk = kernels::kSignChunk;

// Whole chunks, without padding: a count above 1024 is as good.
ArraySpec counts_of(int64_t n) {
  return {.shape = {n / kChunk}, .low = 1024, .high = 2048, .fixed = DType::i32};
}
ArraySpec scales_of(int64_t n) {
  return {.shape = {n / kChunk}, .low = 0.5, .high = 1, .fixed = DType::f32};
}

}  // namespace

// Signs are of f32: there is no path in f64 to compare with; tests/kernels/signs_test.cpp does it.
void add_signs_benches(Registry& registry) {
  const int64_t n = registry.flat() / kChunk * kChunk;
  const ArraySpec values{.shape = {n}, .low = -1, .high = 1};
  const ArraySpec bits{.shape = {n / 8}, .low = 0, .high = 256, .fixed = DType::u8};
  add_case(registry,
           {.op = "signs",
            .pass = "encode",
            .shape = str("n=", n),
            .dtype = DType::f32,
            .ceiling = Ceiling::stream(0, 0, 1),
            .arrays = {values, scales_of(n), counts_of(n), bits},
            .launch =
                [](const std::vector<View>& v, StreamRef stream) {
                  if (v[0].dtype() != DType::f32) return;
                  kernels::encode_signs(
                      {.x = v[0], .scales = v[1], .counts = v[2], .bits = v[3], .residual = v[0]},
                      stream);
                },
            .cost = {.bytes_read = 4 * n, .bytes_written = 4 * n + n / 8, .flops = n}});
  add_case(registry,
           {.op = "signs",
            .pass = "decode",
            .shape = str("n=", n),
            .dtype = DType::f32,
            .ceiling = Ceiling::stream(1, 0, 1),
            .arrays = {values, scales_of(n), counts_of(n), bits, values},
            .launch =
                [](const std::vector<View>& v, StreamRef stream) {
                  if (v[0].dtype() != DType::f32) return;
                  kernels::decode_signs({.bits = v[3],
                                         .scales = v[1],
                                         .counts = v[2],
                                         .factor = 0.9,
                                         .keep = 0.1,
                                         .addend = v[4],
                                         .y = v[0]},
                                        stream);
                },
            .cost = {.bytes_read = 8 * n + n / 8, .bytes_written = 4 * n, .flops = 3 * n}});
}

}  // namespace zinc::bench
