#include "kernels/rotary.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_rotary_benches(Registry& registry) {
  const int64_t batch = 8, length = 2048, heads = 32, kv_heads = 8, head = 64;
  for (const RotaryLayout layout : {RotaryLayout::half_split, RotaryLayout::interleaved}) {
    for (const DType dtype : kBenchDTypes) {
      const Operand table{.shape = {length, head / 2}, .dtype = DType::f32};
      add_case(
          registry,
          {.op = "rotary",
           .dtype = dtype,
           .shape = concat("B=", batch, ",T=", length, ",H=", heads, ",KV=", kv_heads, ",D=", head,
                           layout == RotaryLayout::half_split ? ",half_split" : ",interleaved"),
           .ceiling = Ceiling::stream(0, 0, 1),
           .tolerance = rounding_tolerance(dtype, 4),
           .inputs = {table, table},
           .updates = {{.shape = {batch, length, heads, head}, .dtype = dtype, .seed = 2},
                       {.shape = {batch, length, kv_heads, head}, .dtype = dtype, .seed = 3}}},
          [=](const Views& v) {
            return Rotary{.q = v[2], .k = v[3], .cos = v[0], .sin = v[1], .layout = layout};
          },
          rotary);
    }
  }
}

}  // namespace zinc::bench
