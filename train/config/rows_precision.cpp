// Rows of dtypes, of the loss scale and of gradients' precision.
#include "optim/loss_scale_config.h"
#include "train/config/row.h"

namespace zinc::train {
namespace {

using optim::LossScaleConfig;
using zero::EngineConfig;
using zero::GradientConfig;
using zero::PrecisionConfig;

bool is_fp16(const Config& config) { return config.engine.precision.dtype == DType::f16; }
bool is_bf16(const Config& config) { return config.engine.precision.dtype == DType::bf16; }

template <class T>
Setting in_loss_scale(T LossScaleConfig::*member) {
  return at(&Config::engine, &EngineConfig::precision, &PrecisionConfig::loss_scale, member);
}

template <class T>
Setting in_gradients(T GradientConfig::*member) {
  return at(&Config::engine, &EngineConfig::gradient, member);
}

// fp16.enabled, bf16.enabled and --dtype say the same together.
Setting is_dtype(bool (*condition)(const Config&)) {
  return {.type = KeyType::boolean,
          .get = [condition](const Config& config, int64_t) -> files::json::Value {
            return condition(config);
          }};
}

Setting loss_scale() {
  return {.type = KeyType::quoted_number,
          .get = [](const Config& config, int64_t) -> files::json::Value {
            const LossScaleConfig& scale = config.engine.precision.loss_scale;
            return scale.dynamic ? 0.0 : scale.static_scale;
          },
          .set =
              [](Config& config, const files::json::Value& value) {
                LossScaleConfig& scale = config.engine.precision.loss_scale;
                const double fixed = number_of(value).value();
                scale.dynamic = fixed == 0.0;
                if (!scale.dynamic) scale.static_scale = fixed;
              }};
}

// With fp16 the check for overflow is on, whatever the file says.
Setting overflow_check() {
  Setting setting = at(&Config::engine, &EngineConfig::precision, &PrecisionConfig::check_overflow);
  setting.set = [](Config& config, const files::json::Value& value) {
    config.engine.precision.check_overflow = value.as_bool() || is_fp16(config);
  };
  return setting;
}

}  // namespace

Rows precision_rows() {
  using S = LossScaleConfig;
  const Rows scale{
      works("loss_scale", loss_scale(), at_least(0),
            "of the mean loss of a micro-batch; 0: dynamic")
          .by_default(0.0),
      works("initial_scale_power", in_loss_scale(&S::initial_scale_power), between(-126, 126),
            "dynamic: the first scale is 2 to this power"),
      works("loss_scale_window", in_loss_scale(&S::window), at_least(1), "steps",
            "dynamic: the scale doubles after as many without an overflow"),
      works("hysteresis", in_loss_scale(&S::hysteresis), between(1, 1'000'000), "overflows",
            "dynamic: the scale halves after as many"),
      works("consecutive_hysteresis", in_loss_scale(&S::consecutive_hysteresis),
            "dynamic: a step without an overflow starts their count again"),
      works("min_loss_scale", in_loss_scale(&S::min_scale), positive(),
            "dynamic: an overflow at this scale ends the run"),
  };
  return {
      read_loosely(block("fp16", "16-bit floats with a loss scale",
                         {works("enabled", is_dtype(is_fp16),
                                "f16 weights, activations and gradients, f32 master weights"),
                          only("", is_fp16, scale),
                          no_effect("auto_cast", KeyType::boolean, "inputs are token ids"),
                          refused("fp16_master_weights_and_grads", "master weights are f32"),
                          no_effect("opt_level", KeyType::text, "a leftover of Apex")})),
      read_loosely(block("bf16", "16-bit floats with the range of f32",
                         {works("enabled", is_dtype(is_bf16),
                                "bf16 weights, activations and gradients, f32 master weights"),
                          only("", is_bf16,
                               works("check_grad_overflow", overflow_check(),
                                     "a step whose gradient is not finite is skipped")
                                   .by_default(true)),
                          no_effect("immediate_grad_update", KeyType::boolean,
                                    "gradients are always reduced as they come"),
                          only("", is_bf16,
                               works("bf16_master_weights_and_grads",
                                     at(&Config::engine, &EngineConfig::optimizer,
                                        &optim::OptimizerConfig::narrow_weights),
                                     "no f32 master weights: an update rounds the bf16 weights by "
                                     "chance; for sums of gradients data_types.grad_accum_dtype")),
                          refused("bf16_optimizer_states", "set zinc.moments to \"bf16\"")})),
      deprecated("bfloat16", "bf16"),
      refused("amp", "Apex does not exist here; use fp16 or bf16"),
      refused("torch_autocast", "use fp16 or bf16"),
  };
}

Rows gradient_rows() {
  Row managed =
      refused("managed_gradient_accumulation", "only true: the engine counts micro-steps itself");
  managed.accepted = true;
  return {
      works("gradient_clipping", in_gradients(&GradientConfig::clipping), at_least(0),
            "largest global L2 norm of the gradient; 0: off"),
      block("data_types", "of what the engine keeps",
            {works("grad_accum_dtype", in_gradients(&GradientConfig::accumulation_dtype),
                   "of gradients that accumulate; see zero/group/gradient_policy.h")
                 .by_default_as("fp32 with several micro-batches"),
             refused("param_dtype", "use fp16 or bf16"),
             no_effect("buffer_dtype", KeyType::text, "models have no floating-point buffers")}),
      works("communication_data_type", in_gradients(&GradientConfig::communication_dtype),
            "of gradients on the wire")
          .by_default_as("the model's"),
      no_effect("seq_parallel_communication_data_type", KeyType::text,
                "exchanges of zinc.mesh.sequence are in the dtype of the activations"),
      works("prescale_gradients", in_gradients(&GradientConfig::prescale),
            "divides by the ranks before the sum; \"reduce_algorithm\": \"native\" only"),
      works("gradient_predivide_factor", in_gradients(&GradientConfig::predivide_factor),
            positive(),
            "divides before the sum and multiplies after it; \"reduce_algorithm\": \"native\" "
            "only"),
      managed,
      refused("gradient_allreduce_op", "the loss decides: see zinc.loss_reduction"),
      refused("sparse_gradients", "embedding gradients are dense"),
  };
}

}  // namespace zinc::train
