#include "zero/run/forward_passes.h"

#include <span>

#include "autograd/mode.h"
#include "parallel/pipeline_passes.h"
#include "parallel/vertical_passes.h"

namespace zinc::zero {
namespace {

// Dropout is off while it lives.
class EvaluationScope {
 public:
  explicit EvaluationScope(nn::Model& model) : model_(model), training_(model.is_training()) {
    model_.train(false);
  }
  ~EvaluationScope() { model_.train(training_); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  nn::Model& model_;
  bool training_;
};

}  // namespace

std::string_view name_of(Activity activity) {
  switch (activity) {
    case Activity::construction:
      return "construction";
    case Activity::forward:
      return "forward";
    case Activity::backward:
      return "backward";
    case Activity::recorded_passes:
      return "recorded passes";
    case Activity::evaluation:
      return "evaluation";
    case Activity::prediction:
      return "prediction";
    case Activity::generation:
      return "generation";
    case Activity::step:
      return "step";
    case Activity::reading_weights:
      return "reading of weights";
    case Activity::writing_weights:
      return "writing of weights";
    case Activity::importing_state:
      return "import of a state";
    case Activity::reducing_gradients:
      return "reduction of the gradients";
  }
  return "?";
}

void ForwardPasses::evaluate(Activity activity, Runner::Follows follows,
                             const std::function<void()>& compute) {
  const EvaluationScope evaluation(parts_.model);
  const autograd::NoGrad no_grad;
  enter(activity);
  parts_.runner.begin_evaluation(follows);
  try {
    const Runner::Pass pass(parts_.runner);
    named(compute);
    pass.end();
  } catch (...) {
    parts_.weights.end_passes();
    throw;
  }
  parts_.weights.end_passes();
}

Tensor ForwardPasses::loss_of(const nn::Batch& batch) {
  Tensor sum;
  evaluate(Activity::evaluation, Runner::Follows::program, [&] {
    sum = parts_.cut != nullptr ? loss_of_pipeline(batch) : parts_.model.loss(batch);
  });
  return sum;
}

Tensor ForwardPasses::loss_of_pipeline(const nn::Batch& batch) {
  parallel::PipelineCut& cut = *parts_.cut;
  const parallel::SideBySide alone{.batch = &batch};
  parallel::PipelinePasses passes(cut, *parts_.world.pipe(), 0, std::span(&alone, 1));
  for (int part = 0; part < cut.num_parts(); ++part) {
    using parallel::PipelineWork;
    if (!cut.part(part).is_first) passes.exchange({PipelineWork::receive_input, 0, part});
    passes.forward({PipelineWork::forward, 0, part});
    if (!cut.part(part).is_last) passes.exchange({PipelineWork::send_output, 0, part});
  }
  return passes.loss(0).sum;
}

std::string ForwardPasses::place() const {
  const std::string_view used = parts_.runner.last_used();
  return str(" (", name_of(activity_), entered_ > 0 ? str(" of micro-batch ", entered_) : "",
             used.empty() ? "" : str(", after ", used, " was used"), ")");
}

std::string ForwardPasses::moment() const {
  const std::string_view used = parts_.runner.last_used();
  const std::string at = used.empty() ? std::string() : str(", at ", used);
  switch (activity_) {
    case Activity::forward:
    case Activity::backward:
      return str(name_of(activity_), " of micro-batch ", entered_, at);
    case Activity::evaluation:
    case Activity::prediction:
      return str(name_of(activity_), at);
    default:
      return std::string(name_of(activity_));
  }
}

}  // namespace zinc::zero
