#include "zero/engine_config.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

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

// See Note [Recorded passes].
template <class Check>
void check_graph(const EngineConfig& config, const Check& check) {
  const std::string graph = "\"cuda_graph\": true ";
  check(config.zero.stage >= 2 || config.reduce_schedule() == ReduceSchedule::boundary,
        graph + "needs \"reduce_schedule\": \"boundary\" on stages 0 and 1");
  check(!config.spans_worlds() && config.pass_order == PassOrder::horizontal,
        str(graph, "does not work with \"determinism\": \"", name_of(config.determinism),
            "\" or \"schedule\": \"vertical\""));
  check(config.zero.offload_optimizer.device == OffloadDevice::none,
        graph + "does not work with offload_optimizer");
  check(config.zero.offload_param.device == OffloadDevice::none,
        graph + "does not work with offload_param");
  check(config.recompute.inputs_on() == OffloadDevice::none,
        graph +
            "does not work with cpu_checkpointing or activation_offload: inputs would leave for "
            "the host");
  check(!config.recompute.contiguous_memory_optimization,
        graph +
            "does not work with contiguous_memory_optimization: the memory of passes is kept "
            "already");
  check(!config.wall_clock_breakdown,
        graph + "does not work with wall_clock_breakdown: a launch has no phases");
}

// Refuses settings that do not work in a pipeline.
template <class Check>
void check_pipeline_of(const EngineConfig& config, const Check& check) {
  const std::string pipe = str("zinc.mesh.pipe ", config.pipeline.ranks, " ");
  check(config.zero.stage <= 2,
        pipe +
            "goes with ZeRO stages 0 to 2: on stage 3 every micro-batch would gather what a rank "
            "of the pipeline has; take stage 1 or 2");
  const parallel::PipelineConfig& pipeline = config.pipeline;
  const std::string interleave = str("zinc.pipeline_interleave ", pipeline.interleave, " ");
  check(pipeline.interleave == 1 ||
            pipeline.schedule == parallel::PipelineSchedule::one_forward_one_backward,
        interleave + str("goes with zinc.pipeline_schedule \"1f1b\" alone, not with \"",
                         name_of(pipeline.schedule), '"'));
  check(
      pipeline.interleave == 1 || config.batch.accumulation % pipeline.ranks == 0,
      interleave + str("needs gradient_accumulation_steps that are a multiple of the ",
                       pipeline.ranks, " ranks of the pipeline, not ", config.batch.accumulation));
  const bool splits = pipeline.schedule == parallel::PipelineSchedule::zero_bubble;
  check(!splits || !config.recompute.is_on(),
        "zinc.pipeline_schedule \"zb-h1\" keeps what recomputation gives up, for the gradients of "
        "weights: leave one out");
  check((pipeline.interleave == 1 && !splits) || config.gradient_offload != GradientOffload::nvme,
        "\"gradient_offload\": \"nvme\" does not go with zinc.pipeline_interleave and "
        "zinc.pipeline_schedule \"zb-h1\" yet");
  check(config.pass_order == PassOrder::horizontal,
        pipe + "has an order of its own: leave \"schedule\": \"vertical\" out");
  check(!config.cuda_graph,
        "\"cuda_graph\": true does not go with zinc.mesh.pipe yet; leave one out");
  check(config.recompute.inputs_on() == OffloadDevice::none &&
            !config.recompute.contiguous_memory_optimization,
        pipe +
            "does not go with cpu_checkpointing, activation_offload or "
            "contiguous_memory_optimization yet: saved inputs stay where they are");
}

// See Note [Gradients on NVMe].
template <class Check>
void check_gradient_offload(const EngineConfig& config, const Check& check) {
  const std::string offload = "\"gradient_offload\": \"nvme\" ";
  const OffloadDevice optimizer = config.zero.offload_optimizer.device;
  check(
      optimizer == OffloadDevice::nvme,
      str(offload, "needs offload_optimizer with \"device\": \"nvme\", not \"", name_of(optimizer),
          "\": its nvme_path takes the gradients, and the update reads them with the states"));
  check(
      !config.spans_worlds() || config.batch.accumulation == config.batches_together(),
      str(offload, "does not work with \"determinism\": \"", name_of(config.determinism),
          "\" and gradient accumulation, which keep several partial sums of every gradient "
          "between micro-batches: add \"schedule\": \"vertical\", or leave gradient_offload out"));
}

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

void validate(const EngineConfig& config) {
  std::string problems;
  const auto check = [&problems](bool good, const std::string& message) {
    if (!good) problems += (problems.empty() ? "" : "\n") + message;
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
  check(zero.stage >= 0 && zero.stage <= 3, str("the ZeRO stage must be 0 to 3, not ", zero.stage));
  check(zero.stage <= 1 || config.reduce_schedule() == ReduceSchedule::micro_step,
        str("stage ", zero.stage,
            " reduces after every micro-batch: reduce_schedule must be micro_step"));
  check(gradient.reduce_algorithm == ReduceAlgorithm::native ||
            (!gradient.prescale && gradient.predivide_factor == 1.0),
        "prescale_gradients and gradient_predivide_factor are for \"reduce_algorithm\": "
        "\"native\" only: ordered sums are made in f32");
  check(gradient.predivide_factor > 0.0, "gradient_predivide_factor must be positive");
  check(zero.reduce_bucket_size > 0 && zero.allgather_bucket_size > 0,
        "bucket sizes must be positive");
  check(zero.param_persistence_threshold >= 0 && zero.prefetch_bucket_size >= 0 &&
            zero.max_live_parameters >= 0 && zero.max_reuse_distance >= 0,
        "stage 3 sizes must not be negative");
  check(zero.resident_memory >= 0, "resident_memory must not be negative");
  check(zero.resident_memory == 0 || !config.cuda_graph,
        "\"cuda_graph\": true records the gathers of each micro-batch, and zinc.resident_memory "
        "keeps groups gathered from one to the next: give one");
  check(config.label_smoothing >= 0.0 && config.label_smoothing <= 1.0,
        str("label_smoothing must lie in [0, 1], not ", config.label_smoothing));
  check(config.recompute.every_blocks >= 0, "recompute_every_blocks must not be negative");
  check(config.recompute.num_checkpoints >= 0, "number_checkpoints must not be negative");
  check(config.recompute.most_blocks.value_or(0) >= 0, "recompute_blocks must not be negative");
  check(config.recompute.num_checkpoints == 0 || config.recompute.every_blocks == 0,
        "number_checkpoints and recompute_every_blocks say the same in two ways: give one");
  const OffloadConfig& inputs = config.recompute.offload;
  check(inputs.device != OffloadDevice::nvme || !inputs.nvme_path.empty(),
        "activation_offload to nvme needs nvme_path, a directory on the disk");
  check(inputs.device != OffloadDevice::nvme || !config.recompute.cpu_checkpointing,
        "cpu_checkpointing keeps saved inputs in host memory, activation_offload on nvme: give "
        "one");
  check(!config.tensor_sequence_parallel || !config.recompute.partition_activations,
        "partition_activations keeps parts of inputs that are the same on all tensor ranks, and "
        "with tensor_sequence_parallel each has its own already: give one");
  check(inputs.buffer_count > 0, "activation_offload's buffer_count must be positive");
  check(!config.fp8 || config.precision.dtype == DType::bf16,
        "zinc.fp8 rounds to 8 bits from bf16: give \"bf16\": {\"enabled\": true}");
  check(!config.fp8 || !config.spans_worlds(),
        str("zinc.fp8 scales what a rank has, and \"determinism\": \"", name_of(config.determinism),
            "\" asks for the same bits when ranks have other parts: leave one of them out"));
  if (config.spans_worlds()) {
    const std::string what = str("\"determinism\": \"", name_of(config.determinism), "\" ");
    check(gradient.reduce_algorithm == ReduceAlgorithm::ordered,
          what + "needs \"reduce_algorithm\": \"ordered\"");
    check(!gradient.accumulation_dtype || *gradient.accumulation_dtype == DType::f32,
          what + "keeps sums in f32: leave out grad_accum_dtype");
    check(!gradient.reduce_schedule || *gradient.reduce_schedule == ReduceSchedule::micro_step,
          what + "reduces after every micro-batch: reduce_schedule must be micro_step");
    check(gradient.loss_reduction == LossReduction::tokens,
          what + "needs \"loss_reduction\": \"tokens\"");
    check(config.determinism != Determinism::mesh || !config.tensor_sequence_parallel,
          what +
              "does not go with tensor_sequence_parallel: parts of tokens follow the number of "
              "ranks");
  }
  check(config.pass_order == PassOrder::horizontal || !gradient.reduce_schedule ||
            *gradient.reduce_schedule == ReduceSchedule::micro_step,
        "\"schedule\": \"vertical\" reduces after every micro-batch: reduce_schedule must be "
        "micro_step");
  check(
      zero.sub_group_size >= 0 && zero.sub_group_size <= kLargestCount,
      str("sub_group_size must lie between 0 and ", kLargestCount, ", not ", zero.sub_group_size));
  check(config.aio.block_size > 0 && config.aio.block_size <= kLargestAioBlock,
        str("aio.block_size must lie between 1 and ", kLargestAioBlock, ", not ",
            config.aio.block_size));
  const OffloadConfig& optimizer = zero.offload_optimizer;
  check(optimizer.device == OffloadDevice::none || zero.stage >= 1,
        "offload_optimizer needs ZeRO stage 1, 2 or 3");
  check(optimizer.device != OffloadDevice::nvme || !optimizer.nvme_path.empty(),
        "offload_optimizer to nvme needs nvme_path, a directory on the disk");
  check(config.offload_step != OffloadStep::device || optimizer.device == OffloadDevice::cpu,
        str("\"offload_step\": \"device\" needs offload_optimizer with \"device\": \"cpu\", not "
            "\"",
            name_of(optimizer.device), "\"",
            optimizer.device == OffloadDevice::nvme
                ? ": the disk is slower than the CPU's update of what it brings, and two more "
                  "copies would not help; leave offload_step out"
                : ""));
  check(config.optimizer.moments == optim::Moments::f32 || config.precision.dtype != DType::f64,
        "zinc.moments \"bf16\" is for master weights of f32, and the model's dtype is f64: leave "
        "it out");
  check(optimizer.ratio >= 0.0 && optimizer.ratio <= 1.0,
        str("offload_optimizer.ratio must be between 0 and 1, not ", optimizer.ratio));
  check(
      optimizer.device != OffloadDevice::nvme || optimizer.ratio == 1.0,
      "offload_optimizer.ratio below 1 needs \"device\": \"cpu\": with \"nvme\" all states are in "
      "swap space");
  const OffloadConfig& param = zero.offload_param;
  check(param.device == OffloadDevice::none || zero.stage == 3, "offload_param needs ZeRO stage 3");
  check(param.device != OffloadDevice::nvme || !param.nvme_path.empty(),
        "offload_param to nvme needs nvme_path, a directory on the disk");
  check(param.buffer_count > 0 && param.buffer_size > 0 && param.max_in_cpu >= 0,
        "offload_param's buffers must be positive, and max_in_cpu not negative");
  if (config.gradient_offload == GradientOffload::nvme) check_gradient_offload(config, check);
  if (config.cuda_graph) check_graph(config, check);
  check(config.pipeline.interleave == 1 || config.pipeline.ranks > 1,
        str("zinc.pipeline_interleave ", config.pipeline.interleave,
            " is for ranks of a pipeline, and there are none: set zinc.mesh.pipe, or leave it "
            "out"));
  if (config.pipeline.ranks > 1) check_pipeline_of(config, check);
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace zinc::zero
