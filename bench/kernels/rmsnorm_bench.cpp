#include "kernels/rmsnorm.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"
#include "kernels/layernorm.h"

namespace zinc::bench {

using namespace kernels;

void add_rmsnorm_benches(Registry& registry) {
  const int64_t rows = 8192;
  const int64_t cols = 4096;
  for (const DType dtype : kBenchDTypes) {
    const Operand matrix{.shape = {rows, cols}, .dtype = dtype};
    const Operand row{.shape = {cols}, .dtype = dtype, .low = 0.5, .high = 1.5, .seed = 2};
    const std::string shape = concat("rows=", rows, ",cols=", cols);
    add_case(
        registry,
        {.op = "rmsnorm",
         .dtype = dtype,
         .shape = shape,
         .ceiling = Ceiling::stream(1, 1),
         .tolerance = rounding_tolerance(dtype, 32),
         .inputs = {matrix, row},
         .outputs = {matrix, {.shape = {rows}, .dtype = DType::f32}}},
        [](const Views& v) {
          return RmsNormForward{.x = v[0], .gamma = v[1], .y = v[2], .rstd = v[3]};
        },
        rmsnorm_forward);
    Operand gradient = matrix;
    gradient.seed = 4;
    add_case(
        registry,
        {.op = "rmsnorm",
         .pass = "backward",
         .dtype = dtype,
         .shape = shape,
         .ceiling = Ceiling::stream(2, 1),
         .tolerance = rounding_tolerance(dtype, 64),
         .inputs = {gradient,
                    matrix,
                    row,
                    {.shape = {rows}, .dtype = DType::f32, .low = 1.0, .high = 2.0, .seed = 3}},
         .outputs = {matrix, row},
         .workspace = [=](DType d) { return norm_backward_workspace_bytes(rows, cols, d); }},
        [](const Views& v) {
          return RmsNormBackward{.dy = v[0],
                                 .x = v[1],
                                 .gamma = v[2],
                                 .rstd = v[3],
                                 .dx = v[4],
                                 .dgamma = v[5],
                                 .workspace = v[6]};
        },
        rmsnorm_backward);
  }
}

}  // namespace zinc::bench
