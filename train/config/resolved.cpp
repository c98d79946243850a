// A configuration as a file that loads to the same values.
#include "core/error.h"
#include "train/config/config.h"
#include "train/json/writer.h"

namespace zinc::train {
namespace {

std::string_view deepspeed_name(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    default:
      return "fp32";
  }
}

void write_precision(json::Writer& json, const zero::PrecisionConfig& precision) {
  const optim::LossScaleConfig& scale = precision.loss_scale;
  json.key("fp16").begin_object();
  json.member("enabled", precision.dtype == DType::f16);
  if (precision.dtype == DType::f16) {
    json.member("loss_scale", scale.dynamic ? 0.0 : scale.static_scale);
    json.member("initial_scale_power", scale.initial_scale_power);
    json.member("loss_scale_window", scale.window);
    json.member("hysteresis", scale.hysteresis);
    json.member("consecutive_hysteresis", scale.consecutive_hysteresis);
    json.member("min_loss_scale", scale.min_scale);
  }
  json.end_object();
  json.key("bf16").begin_object();
  json.member("enabled", precision.dtype == DType::bf16);
  if (precision.dtype == DType::bf16) {
    json.member("check_grad_overflow", precision.check_overflow);
  }
  json.end_object();
}

void write_optimizer(json::Writer& json, const optim::OptimizerConfig& optimizer) {
  const optim::HyperParameters& hyper = optimizer.hyper;
  json.key("optimizer").begin_object();
  json.member("type", optim::name_of(optimizer.kind));
  json.key("params").begin_object();
  json.member("lr", hyper.lr);
  json.member("weight_decay", hyper.weight_decay);
  if (optimizer.kind == optim::OptimizerKind::sgd) {
    json.member("momentum", hyper.momentum);
    json.member("dampening", optimizer.dampening);
    json.member("nesterov", optimizer.nesterov);
  } else {
    json.key("betas").begin_array().value(hyper.beta1).value(hyper.beta2).end_array();
    json.member("eps", hyper.eps);
    json.member("bias_correction", optimizer.bias_correction);
    if (optimizer.kind == optim::OptimizerKind::adam) json.member("adam_w_mode", false);
  }
  json.end_object().end_object();
}

void write_warmup(json::Writer& json, const optim::ScheduleConfig& schedule,
                  std::string_view steps_key) {
  if (schedule.warmup_steps) json.member(steps_key, *schedule.warmup_steps);
}

void write_schedule(json::Writer& json, const optim::ScheduleConfig& schedule) {
  using Kind = optim::ScheduleKind;
  json.key("scheduler").begin_object();
  json.member("type", optim::name_of(schedule.kind));
  json.key("params").begin_object();
  const auto shape = [&] {
    json.member("warmup_type", schedule.warmup_shape == optim::WarmupShape::log ? "log" : "linear");
  };
  const auto total = [&](std::string_view key) {
    if (schedule.total_steps) json.member(key, *schedule.total_steps);
  };
  switch (schedule.kind) {
    case Kind::constant:
      write_warmup(json, schedule, "warmup_steps");
      break;
    case Kind::linear:
    case Kind::cosine:
      write_warmup(json, schedule, "warmup_steps");
      total("total_steps");
      json.member("min_lr", schedule.min_lr);
      break;
    case Kind::step_lr:
      json.member("step_size", schedule.step_size).member("gamma", schedule.gamma);
      break;
    case Kind::warmup_lr:
    case Kind::warmup_decay_lr:
      write_warmup(json, schedule, "warmup_num_steps");
      shape();
      json.member("warmup_min_lr", schedule.warmup_min_lr);
      if (schedule.warmup_max_lr) json.member("warmup_max_lr", *schedule.warmup_max_lr);
      if (schedule.kind == Kind::warmup_decay_lr) total("total_num_steps");
      break;
    case Kind::warmup_cosine_lr:
      write_warmup(json, schedule, "warmup_num_steps");
      shape();
      total("total_num_steps");
      json.member("warmup_min_ratio", schedule.warmup_min_ratio);
      json.member("cos_min_ratio", schedule.cosine_min_ratio);
      break;
    case Kind::one_cycle:
      json.member("cycle_min_lr", schedule.cycle_min_lr);
      json.member("cycle_max_lr", schedule.cycle_max_lr);
      json.member("decay_lr_rate", schedule.decay_lr_rate);
      json.member("cycle_first_step_size", schedule.cycle_first_step_size);
      if (schedule.cycle_second_step_size) {
        json.member("cycle_second_step_size", *schedule.cycle_second_step_size);
      }
      json.member("cycle_first_stair_count", schedule.cycle_first_stair_count);
      if (schedule.cycle_second_stair_count) {
        json.member("cycle_second_stair_count", *schedule.cycle_second_stair_count);
      }
      json.member("decay_step_size", schedule.decay_step_size);
      json.member("cycle_momentum", schedule.cycle_momentum);
      json.member("cycle_min_mom", schedule.cycle_min_mom);
      json.member("cycle_max_mom", schedule.cycle_max_mom);
      json.member("decay_mom_rate", schedule.decay_mom_rate);
      break;
    case Kind::lr_range_test:
      json.member("lr_range_test_min_lr", schedule.range_test_min_lr);
      json.member("lr_range_test_step_size", schedule.range_test_step_size);
      json.member("lr_range_test_step_rate", schedule.range_test_step_rate);
      json.member("lr_range_test_staircase", schedule.range_test_staircase);
      break;
  }
  json.end_object().end_object();
}

void write_offload(json::Writer& json, std::string_view key, const zero::OffloadConfig& offload) {
  if (offload.device == zero::OffloadDevice::none) return;
  json.key(key).begin_object();
  json.member("device", zero::name_of(offload.device));
  if (!offload.nvme_path.empty()) json.member("nvme_path", offload.nvme_path);
  if (key == "offload_optimizer") {
    json.member("pipeline_read", offload.pipeline_read);
    json.member("pipeline_write", offload.pipeline_write);
    json.member("ratio", offload.ratio);
  } else if (offload.device == zero::OffloadDevice::nvme) {
    json.member("buffer_count", offload.buffer_count);
    if (key == "offload_param") {
      json.member("buffer_size", offload.buffer_size);
      json.member("max_in_cpu", offload.max_in_cpu);
    }
  }
  json.end_object();
}

void write_zero(json::Writer& json, const zero::EngineConfig& engine) {
  const zero::ZeroConfig& zero = engine.zero;
  json.key("zero_optimization").begin_object();
  json.member("stage", zero.stage);
  json.member("reduce_bucket_size", zero.reduce_bucket_size);
  json.member("allgather_bucket_size", zero.allgather_bucket_size);
  json.member("overlap_comm", engine.overlap_comm());
  json.member("stage3_prefetch_bucket_size", zero.prefetch_bucket_size);
  json.member("stage3_param_persistence_threshold", zero.param_persistence_threshold);
  json.member("stage3_max_live_parameters", zero.max_live_parameters);
  json.member("stage3_max_reuse_distance", zero.max_reuse_distance);
  json.member("ignore_unused_parameters", zero.ignore_unused_parameters);
  json.member("sub_group_size", zero.sub_group_size);
  write_offload(json, "offload_optimizer", zero.offload_optimizer);
  write_offload(json, "offload_param", zero.offload_param);
  json.end_object();
}

void write_aio(json::Writer& json, const zero::AioConfig& aio) {
  json.key("aio").begin_object();
  json.member("block_size", aio.block_size);
  json.member("queue_depth", aio.queue_depth);
  json.member("intra_op_parallelism", aio.threads);
  json.member("single_submit", aio.single_submit);
  json.member("overlap_events", aio.overlap_events);
  json.end_object();
}

void write_gradients(json::Writer& json, const zero::EngineConfig& engine) {
  const zero::GradientConfig& gradient = engine.gradient;
  json.member("gradient_clipping", gradient.clipping);
  if (gradient.accumulation_dtype) {
    json.key("data_types").begin_object();
    json.member("grad_accum_dtype", deepspeed_name(*gradient.accumulation_dtype));
    json.end_object();
  }
  if (gradient.communication_dtype) {
    json.member("communication_data_type", deepspeed_name(*gradient.communication_dtype));
  }
  json.member("prescale_gradients", gradient.prescale);
  json.member("gradient_predivide_factor", gradient.predivide_factor);
  json.member("zero_allow_untested_optimizer", engine.zero.allow_untested_optimizer);
  json.member("zero_force_ds_cpu_optimizer", engine.zero.force_cpu_optimizer);
}

void write_monitor(json::Writer& json, std::string_view key, const MonitorConfig& monitor) {
  json.key(key).begin_object();
  json.member("enabled", monitor.enabled);
  json.member("output_path", monitor.output_path);
  json.member("job_name", monitor.job_name);
  json.end_object();
}

void write_activations(json::Writer& json, const zero::RecomputeConfig& recompute) {
  json.key("activation_checkpointing").begin_object();
  json.member("cpu_checkpointing", recompute.cpu_checkpointing);
  json.member("contiguous_memory_optimization", recompute.contiguous_memory_optimization);
  if (recompute.num_checkpoints > 0) json.member("number_checkpoints", recompute.num_checkpoints);
  json.end_object();
}

void write_own(json::Writer& json, const Config& config) {
  const zero::EngineConfig& engine = config.engine;
  json.key("zinc").begin_object();
  json.member("seed", config.seed);
  json.member("determinism", zero::name_of(engine.determinism));
  json.member("reduce_schedule", zero::name_of(engine.reduce_schedule()));
  json.member("schedule", zero::name_of(engine.pass_order));
  json.member("offload_step", zero::name_of(engine.offload_step));
  json.member("gradient_offload", zero::name_of(engine.gradient_offload));
  json.member("reduce_algorithm", zero::name_of(engine.gradient.reduce_algorithm));
  json.member("loss_reduction", zero::name_of(engine.gradient.loss_reduction));
  json.member("recompute_every_blocks", engine.recompute.every_blocks);
  write_offload(json, "activation_offload", engine.recompute.offload);
  json.member("max_consecutive_skips", engine.precision.max_consecutive_skips);
  json.member("num_threads", config.num_threads);
  if (config.device_memory_limit) json.member("device_memory_limit", *config.device_memory_limit);
  json.member("comm_deadline_seconds", static_cast<double>(config.comm_deadline.count()) / 1000.0);
  json.member("cuda_graph", engine.cuda_graph);
  if (engine.overlap_update) json.member("overlap_update", *engine.overlap_update);
  json.member("verify_swap", engine.verify_swap);
  if (!config.trace.empty()) json.member("trace", config.trace);
  json.end_object();
}

}  // namespace

std::string resolved_json(const Config& config, int64_t world_size) {
  const zero::BatchConfig& batch = config.engine.batch;
  json::Writer json(2);
  json.begin_object();
  json.member("train_batch_size", batch.global_batch(world_size));
  json.member("train_micro_batch_size_per_gpu", batch.micro_batch);
  json.member("gradient_accumulation_steps", batch.accumulation);
  write_optimizer(json, config.engine.optimizer);
  write_schedule(json, config.engine.schedule);
  write_precision(json, config.engine.precision);
  write_zero(json, config.engine);
  write_gradients(json, config.engine);
  write_activations(json, config.engine.recompute);
  json.member("steps_per_print", config.steps_per_print);
  json.member("wall_clock_breakdown", config.engine.wall_clock_breakdown);
  json.member("dump_state", config.dump_state);
  write_aio(json, config.engine.aio);
  write_monitor(json, "tensorboard", config.tensorboard);
  write_monitor(json, "csv_monitor", config.csv_monitor);
  write_own(json, config);
  json.end_object();
  return json.take() + "\n";
}

}  // namespace zinc::train
