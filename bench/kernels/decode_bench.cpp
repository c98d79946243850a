#include "kernels/decode.h"

#include "bench/array_case.h"
#include "bench/kernels/all.h"

namespace zinc::bench {

void add_decode_benches(Registry& registry) {
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::int8}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const int64_t n = registry.flat(), bytes = encoded_bytes(format, n);
      add_case(registry,
               {.op = "decode",
                .pass = "forward",
                .shape = str(name_of(format), " n=", n),
                .dtype = dtype,
                .ceiling = Ceiling::stream(1, 1),
                // Scales lie among the codes: below 64 every four bytes are a float below 1.
                .arrays = {{.shape = {bytes}, .low = 0, .high = 64, .fixed = DType::u8},
                           {.shape = {n}, .low = 0, .high = 0, .compared = true}},
                .launch =
                    [format](const std::vector<View>& v, StreamRef stream) {
                      kernels::decode({.x = v[0], .format = format, .y = v[1]}, stream);
                    },
                .cost = {.bytes_read = bytes, .bytes_written = n * size_of(dtype), .flops = n}});
    }
  }
}

}  // namespace zinc::bench
