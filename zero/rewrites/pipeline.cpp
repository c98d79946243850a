#include "parallel/pipeline.h"

#include "zero/rewrites/rewrites.h"

namespace zinc::zero {

Rewrite pipeline() {
  return {.name = "pipeline",
          .gives = {ProgramOps::pipeline},
          .apply = [](Program& program, const RewriteInputs& inputs) {
            const PipelinePlace& place = inputs.policy.pipeline;
            program.pipeline =
                parallel::pipeline_orders(place.shape())[static_cast<size_t>(place.rank)];
          }};
}

}  // namespace zinc::zero
