#include "kernels/layernorm.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_layernorm_benches(Registry& registry) {
  for (const DType dtype : kBenchDTypes) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{32768, 768}, {8192, 4096}}) {
      const Operand matrix{.shape = {rows, cols}, .dtype = dtype};
      const Operand row{.shape = {cols}, .dtype = dtype, .low = 0.5, .high = 1.5, .seed = 2};
      const Operand statistic{.shape = {rows}, .dtype = DType::f32};
      const std::string shape = concat("rows=", rows, ",cols=", cols);
      add_case(
          registry,
          {.op = "layernorm",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(1, 1),
           .tolerance = rounding_tolerance(dtype, 32),
           .inputs = {matrix, row, row},
           .outputs = {matrix, statistic, statistic}},
          [](const Views& v) {
            return LayerNormForward{
                .x = v[0], .gamma = v[1], .beta = v[2], .y = v[3], .mean = v[4], .rstd = v[5]};
          },
          layernorm_forward);
      // x is uniform in [-1, 1): any statistics of that size do for the backward pass.
      const Operand rstd{.shape = {rows}, .dtype = DType::f32, .low = 1.0, .high = 2.0, .seed = 3};
      Operand gradient = matrix;
      gradient.seed = 4;
      add_case(
          registry,
          {.op = "layernorm",
           .pass = "backward",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(2, 1),
           .tolerance = rounding_tolerance(dtype, 64),
           .inputs = {gradient, matrix, row, statistic, rstd},
           .outputs = {matrix, row, row},
           .workspace = [rows = rows, cols = cols](
                            DType d) { return norm_backward_workspace_bytes(rows, cols, d); }},
          [](const Views& v) {
            return LayerNormBackward{.dy = v[0],
                                     .x = v[1],
                                     .gamma = v[2],
                                     .mean = v[3],
                                     .rstd = v[4],
                                     .dx = v[5],
                                     .dgamma = v[6],
                                     .dbeta = v[7],
                                     .workspace = v[8]};
          },
          layernorm_backward);
    }
  }
}

}  // namespace zinc::bench
