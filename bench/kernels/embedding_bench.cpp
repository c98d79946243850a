#include "kernels/embedding.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_embedding_benches(Registry& registry) {
  const int64_t tokens = 32768, length = 1024, cols = 768;
  for (const int64_t vocabulary : {int64_t{50257}, int64_t{256}}) {
    for (const DType dtype : kBenchDTypes) {
      const Operand ids{.shape = {tokens},
                        .dtype = DType::i32,
                        .low = 0.0,
                        .high = static_cast<double>(vocabulary)};
      const Operand table{.shape = {vocabulary, cols}, .dtype = dtype, .seed = 2};
      const Operand rows{.shape = {tokens, cols}, .dtype = dtype, .seed = 3};
      const std::string shape = concat("tokens=", tokens, ",rows=", vocabulary, ",cols=", cols);
      add_case(
          registry,
          {.op = "embedding",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(1, 1),
           .tolerance = rounding_tolerance(dtype, 1),
           .inputs = {ids, table, {.shape = {length, cols}, .dtype = dtype, .seed = 4}},
           .outputs = {rows}},
          [=](const Views& v) {
            return EmbeddingForward{.ids = v[0],
                                    .table = v[1],
                                    .position_table = v[2],
                                    .sequence_length = length,
                                    .y = v[3]};
          },
          embedding_forward);
      add_case(
          registry,
          {.op = "embedding",
           .pass = "backward",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(1, 1),
           .tolerance = rounding_tolerance(dtype, 32),
           .inputs = {ids, rows},
           .outputs = {table},
           .workspace = [=](DType) { return embedding_backward_workspace_bytes(tokens); }},
          [](const Views& v) {
            return EmbeddingBackward{.ids = v[0], .dy = v[1], .dtable = v[2], .workspace = v[3]};
          },
          embedding_backward);
    }
  }
}

}  // namespace zinc::bench
