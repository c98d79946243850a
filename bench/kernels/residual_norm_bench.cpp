#include "kernels/residual_norm.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"
#include "kernels/layernorm.h"

namespace zinc::bench {

using namespace kernels;

void add_residual_norm_benches(Registry& registry) {
  const int64_t rows = 32768;
  const int64_t cols = 768;
  for (const DType dtype : kBenchDTypes) {
    const Operand matrix{.shape = {rows, cols}, .dtype = dtype};
    const Operand row{.shape = {cols}, .dtype = dtype, .low = 0.5, .high = 1.5, .seed = 2};
    const Operand statistic{.shape = {rows}, .dtype = DType::f32};
    Operand other = matrix;
    other.seed = 5;
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      const bool layer = kind == NormKind::layer;
      std::vector<Operand> outputs{matrix, matrix, statistic};
      if (layer) outputs.push_back(statistic);
      add_case(
          registry,
          {.op = "residual_norm",
           .dtype = dtype,
           .shape = concat("rows=", rows, ",cols=", cols, layer ? ",layer" : ",rms"),
           .ceiling = Ceiling::stream(2, 2),
           // y is the norm of the rounded sum, that of the f64 path is not: two roundings.
           .tolerance = 2 * rounding_tolerance(dtype, 32),
           .inputs = {matrix, other, row},
           .outputs = outputs},
          [=](const Views& v) {
            return ResidualNormForward{.kind = kind,
                                       .x = v[0],
                                       .residual = v[1],
                                       .gamma = v[2],
                                       .sum = v[3],
                                       .y = v[4],
                                       .mean = layer ? v[6] : View(),
                                       .rstd = v[5]};
          },
          residual_norm_forward);
    }
    // The backward pass: a norm's, with the gradient that comes past it.
    const Operand rstd{.shape = {rows}, .dtype = DType::f32, .low = 1.0, .high = 2.0, .seed = 3};
    add_case(
        registry,
        {.op = "residual_norm",
         .pass = "backward",
         .dtype = dtype,
         .shape = concat("rows=", rows, ",cols=", cols, ",layer"),
         .ceiling = Ceiling::stream(3, 1),
         .tolerance = rounding_tolerance(dtype, 64),
         .inputs = {matrix, other, row, statistic, rstd, matrix},
         .outputs = {matrix, row, row},
         .workspace = [=](DType d) { return norm_backward_workspace_bytes(rows, cols, d); }},
        [](const Views& v) {
          return LayerNormBackward{.dy = v[0],
                                   .x = v[1],
                                   .gamma = v[2],
                                   .mean = v[3],
                                   .rstd = v[4],
                                   .dresidual = v[5],
                                   .dx = v[6],
                                   .dgamma = v[7],
                                   .dbeta = v[8],
                                   .workspace = v[9]};
        },
        layernorm_backward);
  }
}

}  // namespace zinc::bench
