#include "zero/group/gradient_policy.h"

namespace zinc::zero {

GradientPolicy GradientPolicy::choose(const EngineConfig& config) {
  const DType model = config.precision.dtype;
  GradientPolicy policy;
  policy.several = config.batch.accumulation > 1;
  policy.schedule = policy.several ? config.reduce_schedule() : ReduceSchedule::boundary;
  policy.written = model;
  policy.kept = policy.several && is_16bit_float(model) ? DType::f32 : model;
  if (config.gradient.accumulation_dtype) policy.kept = *config.gradient.accumulation_dtype;
  policy.wire = policy.schedule == ReduceSchedule::micro_step ? model : policy.kept;
  if (config.spans_worlds()) {
    policy.tree_over_micro_batches = true;
    policy.schedule = ReduceSchedule::micro_step;
    policy.wire = model;
    policy.kept = model == DType::f64 ? DType::f64 : DType::f32;
  }
  // The same sums travel as signs later.
  if (config.sends_signs()) policy.kept = DType::f32;
  if (config.gradient.communication_dtype) policy.wire = *config.gradient.communication_dtype;
  return policy;
}

DType GradientPolicy::added_in_host(int ranks) const {
  const bool is_whole_sum = ranks == 1;
  const bool is_rounded = kept != wire && kept != DType::f32;
  if (is_whole_sum || is_rounded || wire == DType::f64) return wire;
  return DType::f32;
}

double wire_divisor(const GradientConfig& gradient, int world) {
  if (gradient.reduce_algorithm != ReduceAlgorithm::native) return 1.0;
  return gradient.prescale ? static_cast<double>(world) : gradient.predivide_factor;
}

double gradient_divisor(const EngineConfig& config, int world) {
  return wire_divisor(config.gradient, world) * config.loss_divisor();
}

}  // namespace zinc::zero
