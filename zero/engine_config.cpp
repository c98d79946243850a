#include "zero/engine_config.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/error.h"

namespace zinc::zero {

std::string_view name_of(Determinism value) {
  static constexpr std::array<std::string_view, 3> kNames{"run", "world", "mesh"};
  return kNames[static_cast<size_t>(value)];
}

std::string_view name_of(ReduceSchedule value) {
  return value == ReduceSchedule::boundary ? "boundary" : "micro_step";
}

std::string_view name_of(ReduceAlgorithm value) {
  return value == ReduceAlgorithm::ordered ? "ordered" : "native";
}

std::string_view name_of(LossReduction value) {
  return value == LossReduction::tokens ? "tokens" : "micro_batch";
}

std::string_view name_of(OffloadDevice value) {
  static constexpr std::array<std::string_view, 3> kNames{"none", "cpu", "nvme"};
  return kNames[static_cast<size_t>(value)];
}

std::string_view name_of(OffloadStep value) {
  if (value == OffloadStep::automatic) return "auto";
  return value == OffloadStep::host ? "host" : "device";
}

std::string_view name_of(GradientOffload value) {
  switch (value) {
    case GradientOffload::device:
      return "device";
    case GradientOffload::host:
      return "host";
    case GradientOffload::nvme:
      return "nvme";
  }
  return "?";
}

std::string_view name_of(PassOrder value) {
  return value == PassOrder::horizontal ? "horizontal" : "vertical";
}

namespace {

constexpr int64_t kLargestCount = 1'000'000'000'000'000;  // elements: sizes in bytes fit int64

}  // namespace

// Note [Loss scale]
// DeepSpeed's loss scale multiplies the mean loss of a micro-batch. zinc's backward pass starts
// from the sum over its targets, which is larger by their number. So with fp16 it starts with scale
// / 2^k, where 2^k is the smallest power of two that is not below the positions of the largest
// micro-batch. k follows from the configuration alone: it is the same for every micro-batch and on
// every rank and stage, and the update's divisor (gradient_divisor() in
// zero/group/gradient_policy.h) takes it back exactly. With LossReduction::micro_batch
// each loss is divided by its targets already.
double EngineConfig::loss_divisor() const {
  if (precision.dtype != DType::f16) return 1.0;
  if (gradient.loss_reduction == LossReduction::micro_batch) return 1.0;
  const auto positions = static_cast<uint64_t>(batch.micro_batch * batch.sequence);
  return std::ldexp(1.0, static_cast<int>(std::bit_width(positions - 1)));
}

std::vector<std::string> value_problems(const EngineConfig& config) {
  std::vector<std::string> problems;
  const auto check = [&problems](bool good, std::string message) {
    if (!good) problems.push_back(std::move(message));
  };
  const GradientConfig& gradient = config.gradient;
  const ZeroConfig& zero = config.zero;
  check(config.batch.micro_batch > 0,
        str("the micro-batch must be positive, not ", config.batch.micro_batch));
  check(config.batch.accumulation > 0,
        str("gradient accumulation must be positive, not ", config.batch.accumulation));
  check(config.batch.sequence >= 0,
        str("the sequence must not be negative: ", config.batch.sequence));
  check(is_float(config.precision.dtype),
        str("the model's dtype must be a float, not ", config.precision.dtype));
  check(config.precision.max_consecutive_skips > 0, "max_consecutive_skips must be positive");
  check(gradient.clipping >= 0.0,
        str("gradient_clipping must not be negative: ", gradient.clipping));
  check(gradient.predivide_factor > 0.0, "gradient_predivide_factor must be positive");
  check(zero.stage >= 0 && zero.stage <= 3, str("the ZeRO stage must be 0 to 3, not ", zero.stage));
  check(zero.reduce_bucket_size > 0 && zero.allgather_bucket_size > 0,
        "bucket sizes must be positive");
  check(zero.param_persistence_threshold >= 0 && zero.prefetch_bucket_size >= 0 &&
            zero.max_live_parameters >= 0 && zero.max_reuse_distance >= 0,
        "stage 3 sizes must not be negative");
  check(zero.resident_memory >= 0, "resident_memory must not be negative");
  check(
      zero.sub_group_size >= 0 && zero.sub_group_size <= kLargestCount,
      str("sub_group_size must lie between 0 and ", kLargestCount, ", not ", zero.sub_group_size));
  check(config.label_smoothing >= 0.0 && config.label_smoothing <= 1.0,
        str("label_smoothing must lie in [0, 1], not ", config.label_smoothing));
  check(config.recompute.every_blocks >= 0, "recompute_every_blocks must not be negative");
  check(config.recompute.num_checkpoints >= 0, "number_checkpoints must not be negative");
  check(config.recompute.most_blocks.value_or(0) >= 0, "recompute_blocks must not be negative");
  check(config.recompute.offload.buffer_count > 0,
        "activation_offload's buffer_count must be positive");
  check(config.aio.block_size > 0 && config.aio.block_size <= kLargestAioBlock,
        str("aio.block_size must lie between 1 and ", kLargestAioBlock, ", not ",
            config.aio.block_size));
  const double ratio = zero.offload_optimizer.ratio;
  check(ratio >= 0.0 && ratio <= 1.0,
        str("offload_optimizer.ratio must be between 0 and 1, not ", ratio));
  const OffloadConfig& param = zero.offload_param;
  check(param.buffer_count > 0 && param.buffer_size > 0 && param.max_in_cpu >= 0,
        "offload_param's buffers must be positive, and max_in_cpu not negative");
  return problems;
}

}  // namespace zinc::zero
