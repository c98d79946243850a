#include "kernels/gather_rows.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_gather_rows_benches(Registry& registry) {
  const int64_t count = 32768, rows = 65536, cols = 768;
  for (const DType dtype : kBenchDTypes) {
    const Operand ids{
        .shape = {count}, .dtype = DType::i32, .low = 0.0, .high = static_cast<double>(rows)};
    const Operand table{.shape = {rows, cols}, .dtype = dtype, .seed = 2};
    const Operand list{.shape = {count, cols}, .dtype = dtype, .seed = 3};
    const std::string shape = concat("ids=", count, ",rows=", rows, ",cols=", cols);
    add_case(
        registry,
        {.op = "gather_rows",
         .dtype = dtype,
         .shape = shape,
         .ceiling = Ceiling::stream(1, 1),
         .tolerance = 0.0,
         .inputs = {ids, table},
         .outputs = {list}},
        [](const Views& v) { return GatherRows{.x = v[1], .ids = v[0], .y = v[2]}; }, gather_rows);
    add_case(
        registry,
        {.op = "gather_rows",
         .pass = "backward",
         .dtype = dtype,
         .shape = shape,
         .ceiling = Ceiling::stream(1, 0, 1),
         .tolerance = rounding_tolerance(dtype, 8),
         .inputs = {ids, list},
         .updates = {table},
         .workspace = [=](DType) { return scatter_add_rows_workspace_bytes(count); }},
        [](const Views& v) {
          return ScatterAddRows{.x = v[1], .ids = v[0], .y = v[2], .workspace = v[3]};
        },
        scatter_add_rows);
  }
}

}  // namespace zinc::bench
