#include "kernels/reduce.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_reduce_benches(Registry& registry) {
  const int64_t rows = 65536, cols = 768;
  struct Case {
    ReduceOp op;
    ReduceOver over;
    const char* name;
  };
  for (const Case& c : {Case{ReduceOp::sum, ReduceOver::last, "sum,last"},
                        Case{ReduceOp::sum, ReduceOver::leading, "sum,leading"},
                        Case{ReduceOp::sum, ReduceOver::all, "sum,all"},
                        Case{ReduceOp::max, ReduceOver::last, "max,last"}}) {
    for (const DType dtype : kBenchDTypes) {
      const int64_t results = c.over == ReduceOver::last      ? rows
                              : c.over == ReduceOver::leading ? cols
                                                              : 1;
      add_case(
          registry,
          {.op = "reduce",
           .dtype = dtype,
           .shape = concat("rows=", rows, ",cols=", cols, ",", c.name),
           .ceiling = Ceiling::stream(1, 0),
           .tolerance = rounding_tolerance(dtype, 64),
           .inputs = {{.shape = {rows, cols}, .dtype = dtype, .low = 0.0}},
           .outputs = {{.shape = {results}, .dtype = dtype}}},
          [=](const Views& v) { return Reduce{.op = c.op, .over = c.over, .x = v[0], .y = v[1]}; },
          reduce);
    }
  }
}

}  // namespace zinc::bench
