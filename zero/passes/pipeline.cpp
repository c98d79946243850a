#include "parallel/pipeline.h"

#include "zero/passes/passes.h"

namespace zinc::zero {

Pass pipeline() {
  return {.name = "pipeline",
          .gives = {"pipeline"},
          .rewrite = [](Program& program, const PassInputs& inputs) {
            const PipelinePlace& place = inputs.policy.pipeline;
            program.pipeline =
                parallel::pipeline_orders(place.shape())[static_cast<size_t>(place.rank)];
          }};
}

}  // namespace zinc::zero
