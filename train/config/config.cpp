#include "train/config/config.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "optim/factory.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "train/config/fields.h"
#include "train/config/scheduler_keys.h"
#include "train/json/parser.h"

namespace zinc::train {
namespace {

// Products of the first two and any number of ranks stay within int64.
constexpr int64_t kLargestBatch = 1'000'000;
constexpr int64_t kLargestTotal = 1'000'000'000'000;
constexpr int64_t kMostBuffers = 65'536;

class Reader {
 public:
  Reader(const json::Value& root, int64_t world_size, const Overrides& flags,
         const RankDefaults& defaults)
      : world_(world_size), flags_(flags), top_(&root, "", findings_) {
    config_.seed = defaults.seed;
    config_.num_threads = defaults.num_threads;
    config_.device_memory_limit = defaults.device_memory_limit;
    config_.comm_deadline = defaults.comm_deadline;
  }

  Config read() {
    read_batches();
    read_precision();
    read_optimizer();
    read_schedule();
    read_zero();
    read_gradients();
    read_aio();
    read_activations();
    read_monitors();
    read_own();
    top_.finish();
    findings_.throw_problems();
    check_that_it_can_be_built();
    findings_.throw_problems();
    config_.notices = findings_.take_notices();
    return std::move(config_);
  }

 private:
  void read_batches();
  void read_precision();
  void read_loss_scale(Fields& fp16);
  void read_optimizer();
  void read_schedule();
  void read_zero();
  enum class Offloaded : uint8_t { optimizer, parameters, inputs };
  void read_offload(const json::Value* block, std::string path, Offloaded what,
                    zero::OffloadConfig& offload);
  void read_aio();
  void read_gradients();
  void read_activations();
  void read_monitors();
  void read_own();
  MonitorConfig read_monitor(std::string_view key);
  void check_that_it_can_be_built();
  std::optional<DType> dtype(Fields& fields, std::string_view key);

  int64_t world_;
  const Overrides& flags_;
  Findings findings_;
  Fields top_;
  Config config_;
};

// train_batch_size = micro-batch x accumulation x world; any two give the third.
void Reader::read_batches() {
  for (const auto& [flag, option] :
       {std::pair(flags_.micro_batch, "--batch"), std::pair(flags_.accumulation, "--grad-accum")}) {
    if (flag && (*flag < 1 || *flag > kLargestBatch)) {
      findings_.problem(concat(option, " must be between 1 and ", kLargestBatch, ", not ", *flag));
      return;
    }
  }
  const auto total = top_.integer("train_batch_size", 1, kLargestTotal);
  const auto micro =
      settle(top_.integer("train_micro_batch_size_per_gpu", 1, kLargestBatch), flags_.micro_batch,
             "train_micro_batch_size_per_gpu", "--batch", findings_);
  const auto steps =
      settle(top_.integer("gradient_accumulation_steps", 1, kLargestBatch), flags_.accumulation,
             "gradient_accumulation_steps", "--grad-accum", findings_);
  if (!total && !micro) {
    findings_.problem(
        "the batch size is open: give train_micro_batch_size_per_gpu (or --batch) or "
        "train_batch_size");
    return;
  }
  zero::BatchConfig& batch = config_.engine.batch;
  if (micro) {
    batch.micro_batch = *micro;
    batch.accumulation = steps ? *steps : total ? *total / *micro / world_ : 1;
  } else {
    batch.accumulation = steps.value_or(1);
    batch.micro_batch = *total / world_ / batch.accumulation;
  }
  if (total && batch.global_batch(world_) != *total) {
    findings_.problem(concat("train_batch_size ", *total,
                             " is not train_micro_batch_size_per_gpu x "
                             "gradient_accumulation_steps x ranks = ",
                             batch.micro_batch, " x ", batch.accumulation, " x ", world_));
  }
}

std::optional<DType> Reader::dtype(Fields& fields, std::string_view key) {
  const json::Value* value = fields.find(key);
  if (value == nullptr) return std::nullopt;
  const auto parsed = value->is_string() ? parse_dtype(value->as_string()) : std::nullopt;
  if (!parsed || !is_float(*parsed) || *parsed == DType::f64) {
    findings_.problem(*value, concat(key, " must be \"fp32\", \"fp16\" or \"bf16\""));
    return std::nullopt;
  }
  return parsed;
}

void Reader::read_precision() {
  zero::PrecisionConfig& precision = config_.engine.precision;
  Fields fp16(top_.block("fp16"), "fp16", findings_);
  const json::Value* bf16_block = top_.block("bf16");
  if (const json::Value* old = top_.deprecated("bfloat16", "bf16"); old != nullptr) {
    if (bf16_block == nullptr) {
      bf16_block = old;
    } else {
      findings_.notice("bfloat16 is ignored, because bf16 is there");
    }
  }
  Fields bf16(bf16_block, "bf16", findings_);
  const auto use_fp16 = fp16.boolean("enabled");
  const auto use_bf16 = bf16.boolean("enabled");
  read_loss_scale(fp16);
  const bool check = bf16.boolean("check_grad_overflow").value_or(true);
  fp16.finish();
  bf16.finish();

  std::optional<DType> fixed;
  if (use_fp16.value_or(false) && use_bf16.value_or(false)) {
    findings_.problem("fp16 and bf16 are both enabled; choose one");
  } else if (use_fp16.value_or(false)) {
    fixed = DType::f16;
  } else if (use_bf16.value_or(false)) {
    fixed = DType::bf16;
  }
  if (fixed && flags_.dtype && *fixed != *flags_.dtype) {
    findings_.problem(concat("--dtype ", *flags_.dtype, " contradicts ",
                             *fixed == DType::f16 ? "fp16" : "bf16",
                             ".enabled of the file; change one of them, or set it to \"auto\""));
  }
  const auto refuses = [&](const std::optional<bool>& enabled, DType dtype, std::string_view key) {
    if (enabled && !*enabled && flags_.dtype == dtype) {
      findings_.problem(concat("--dtype ", dtype, " contradicts ", key,
                               ".enabled false of the file; set it to \"auto\""));
    }
  };
  refuses(use_fp16, DType::f16, "fp16");
  refuses(use_bf16, DType::bf16, "bf16");
  precision.dtype = fixed ? *fixed : flags_.dtype.value_or(DType::f32);
  precision.check_overflow =
      precision.dtype == DType::f16 || (precision.dtype == DType::bf16 && check);
  if (precision.dtype != DType::f16) precision.loss_scale = {};
}

void Reader::read_loss_scale(Fields& fp16) {
  optim::LossScaleConfig& scale = config_.engine.precision.loss_scale;
  const double fixed = fp16.number_or_text("loss_scale", 0.0).value_or(0.0);
  scale.dynamic = fixed == 0.0;
  if (!scale.dynamic) scale.static_scale = fixed;
  scale.initial_scale_power =
      static_cast<int>(fp16.integer("initial_scale_power", -126, 126).value_or(16));
  scale.window = fp16.integer("loss_scale_window", 1).value_or(1000);
  scale.hysteresis = static_cast<int>(fp16.integer("hysteresis", 1, 1'000'000).value_or(2));
  scale.consecutive_hysteresis = fp16.boolean("consecutive_hysteresis").value_or(false);
  const json::Value* minimum = fp16.find("min_loss_scale");
  scale.min_scale = fp16.number("min_loss_scale", 0.0).value_or(1.0);
  if (minimum != nullptr && scale.min_scale == 0.0) {
    findings_.problem(*minimum, "fp16.min_loss_scale must be positive");
    scale.min_scale = 1.0;
  }
}

void Reader::read_optimizer() {
  optim::OptimizerConfig& optimizer = config_.engine.optimizer;
  const json::Value* block = top_.block("optimizer");
  Fields fields(block, "optimizer", findings_);
  const json::Value* type = fields.find("type");
  const std::string name = lower_case(fields.text("type").value_or("AdamW"));
  Fields params(fields.block("params"), "optimizer.params", findings_);
  const bool decoupled = params.boolean("adam_w_mode").value_or(true);
  if (name == "adam" || name == "adamw" || name == "fusedadam" || name == "cpuadam") {
    const bool l2 = name == "adam" && !decoupled;
    optimizer.kind = l2 ? optim::OptimizerKind::adam : optim::OptimizerKind::adamw;
  } else if (name == "sgd") {
    optimizer.kind = optim::OptimizerKind::sgd;
  } else {
    findings_.problem(*type, concat("optimizer.type \"", name,
                                    "\" is not implemented; there are Adam, AdamW and SGD"));
  }
  optim::HyperParameters& hyper = optimizer.hyper;
  const bool sgd = optimizer.kind == optim::OptimizerKind::sgd;
  hyper.lr = settle(params.number("lr", 0.0), flags_.lr, "optimizer.params.lr", "--lr", findings_)
                 .value_or(1e-3);
  hyper.weight_decay = settle(params.number("weight_decay", 0.0), flags_.weight_decay,
                              "optimizer.params.weight_decay", "--weight-decay", findings_)
                           .value_or(0.0);
  hyper.eps = params.number("eps", 0.0).value_or(1e-8);
  if (const json::Value* betas = params.find("betas")) {
    const bool pair = betas->is_array() && betas->size() == 2 && betas->at(0).is_number() &&
                      betas->at(1).is_number();
    if (pair) {
      hyper.beta1 = betas->at(0).as_double();
      hyper.beta2 = betas->at(1).as_double();
    }
    if (!pair || hyper.beta1 < 0.0 || hyper.beta1 >= 1.0 || hyper.beta2 < 0.0 ||
        hyper.beta2 >= 1.0) {
      findings_.problem(*betas, "optimizer.params.betas must be two numbers in [0, 1)");
    }
  }
  hyper.momentum = params.number("momentum", 0.0).value_or(0.0);
  optimizer.dampening = params.number("dampening", 0.0, 1.0).value_or(0.0);
  optimizer.nesterov = params.boolean("nesterov").value_or(false);
  optimizer.bias_correction = params.boolean("bias_correction").value_or(true);
  if (sgd && optimizer.nesterov && (hyper.momentum == 0.0 || optimizer.dampening != 0.0)) {
    findings_.problem("optimizer.params.nesterov needs a momentum and no dampening");
  }
  params.finish();
  fields.finish();
}

void Reader::read_schedule() {
  config_.engine.schedule =
      read_scheduler(top_.block("scheduler"), flags_, config_.engine.optimizer.hyper.lr, findings_);
}

void Reader::read_zero() {
  zero::ZeroConfig& zero = config_.engine.zero;
  const json::Value* block = top_.block("zero_optimization");
  if (block != nullptr && block->is_bool()) {
    findings_.notice("zero_optimization as true or false is deprecated; use {\"stage\": 1}");
    zero.stage = block->as_bool() ? 1 : 0;
    return;
  }
  Fields fields(block, "zero_optimization", findings_);
  zero.stage = static_cast<int>(fields.integer("stage", 0, 3).value_or(0));
  // Hugging Face's rules for sizes that are "auto".
  const auto automatic = [&](std::string_view key, int64_t& value, double by_hidden, int power) {
    if (!fields.is_auto(key) || !flags_.hidden_size) return;
    const auto hidden = static_cast<double>(*flags_.hidden_size);
    value = static_cast<int64_t>(by_hidden * (power == 2 ? hidden * hidden : hidden));
  };
  const auto size = [&](std::string_view key, std::string_view old, int64_t& value, int64_t min) {
    if (!old.empty() && fields.deprecated(old, key) != nullptr) {
      value = fields.integer(old, min).value_or(value);
    }
    value = fields.integer(key, min).value_or(value);
  };
  automatic("reduce_bucket_size", zero.reduce_bucket_size, 1.0, 2);
  automatic("stage3_prefetch_bucket_size", zero.prefetch_bucket_size, 0.9, 2);
  automatic("stage3_param_persistence_threshold", zero.param_persistence_threshold, 10.0, 1);
  size("reduce_bucket_size", "", zero.reduce_bucket_size, 1);
  size("allgather_bucket_size", "", zero.allgather_bucket_size, 1);
  size("stage3_prefetch_bucket_size", "prefetch_bucket_size", zero.prefetch_bucket_size, 0);
  size("stage3_param_persistence_threshold", "param_persistence_threshold",
       zero.param_persistence_threshold, 0);
  size("stage3_max_live_parameters", "max_live_parameters", zero.max_live_parameters, 0);
  size("stage3_max_reuse_distance", "max_reuse_distance", zero.max_reuse_distance, 0);
  zero.overlap_comm = fields.boolean("overlap_comm");
  zero.ignore_unused_parameters = fields.boolean("ignore_unused_parameters").value_or(true);
  size("sub_group_size", "", zero.sub_group_size, 0);
  for (const auto& [old, key, what, offload] :
       {std::tuple{"cpu_offload", "offload_optimizer", Offloaded::optimizer,
                   &zero.offload_optimizer},
        std::tuple{"cpu_offload_param", "offload_param", Offloaded::parameters,
                   &zero.offload_param}}) {
    if (fields.deprecated(old, key) != nullptr && fields.boolean(old).value_or(false)) {
      offload->device = zero::OffloadDevice::cpu;
    }
    read_offload(fields.block(key), concat("zero_optimization.", key), what, *offload);
  }
  fields.finish();
}

void Reader::read_offload(const json::Value* block, std::string path, Offloaded what,
                          zero::OffloadConfig& offload) {
  Fields fields(block, std::move(path), findings_);
  const auto device = fields.choice("device", {"none", "cpu", "nvme"});
  if (device) offload.device = static_cast<zero::OffloadDevice>(*device);
  offload.nvme_path = fields.text("nvme_path").value_or("");
  if (what != Offloaded::optimizer) {
    offload.buffer_count =
        fields.integer("buffer_count", 1, kMostBuffers).value_or(offload.buffer_count);
  }
  if (what == Offloaded::parameters) {
    offload.buffer_size = fields.integer("buffer_size", 1).value_or(offload.buffer_size);
    offload.max_in_cpu = fields.integer("max_in_cpu", 0).value_or(offload.max_in_cpu);
  } else if (what == Offloaded::optimizer) {
    offload.pipeline_read = fields.boolean("pipeline_read").value_or(false);
    offload.pipeline_write = fields.boolean("pipeline_write").value_or(false);
    offload.ratio = fields.number("ratio", 0.0, 1.0).value_or(1.0);
  }
  fields.finish();
}

// DeepSpeed knows three names for the number of threads.
void Reader::read_aio() {
  zero::AioConfig& aio = config_.engine.aio;
  const json::Value* block = top_.block("aio");
  Fields fields(block, "aio", findings_);
  aio.block_size =
      fields.integer("block_size", 4096, zero::kLargestAioBlock).value_or(aio.block_size);
  aio.queue_depth = static_cast<int>(fields.integer("queue_depth", 1, 65536).value_or(8));
  // The last that is there holds.
  for (const char* key : {"num_threads", "thread_count", "intra_op_parallelism"}) {
    const auto threads = fields.integer(key, 1, 1024);
    if (threads) aio.threads = static_cast<int>(*threads);
  }
  aio.single_submit = fields.boolean("single_submit").value_or(false);
  aio.overlap_events = fields.boolean("overlap_events").value_or(true);
  if (aio.block_size % 4096 != 0) {
    findings_.problem(*block,
                      concat("aio.block_size must be a multiple of 4096, not ", aio.block_size));
  }
  fields.finish();
}

void Reader::read_gradients() {
  zero::GradientConfig& gradient = config_.engine.gradient;
  gradient.clipping = top_.number("gradient_clipping", 0.0).value_or(1.0);
  Fields types(top_.block("data_types"), "data_types", findings_);
  gradient.accumulation_dtype = dtype(types, "grad_accum_dtype");
  types.finish();
  gradient.communication_dtype = dtype(top_, "communication_data_type");
  gradient.prescale = top_.boolean("prescale_gradients").value_or(false);
  const json::Value* factor = top_.find("gradient_predivide_factor");
  gradient.predivide_factor = top_.number("gradient_predivide_factor", 0.0).value_or(1.0);
  if (factor != nullptr && gradient.predivide_factor == 0.0) {
    findings_.problem(*factor, "gradient_predivide_factor must be positive");
    gradient.predivide_factor = 1.0;
  }
  if (!top_.boolean("managed_gradient_accumulation").value_or(true)) {
    findings_.problem("managed_gradient_accumulation false: the engine counts micro-steps itself");
  }
  config_.engine.zero.allow_untested_optimizer =
      top_.boolean("zero_allow_untested_optimizer").value_or(false);
  config_.engine.zero.force_cpu_optimizer =
      top_.boolean("zero_force_ds_cpu_optimizer").value_or(true);
}

void Reader::read_activations() {
  Fields fields(top_.block("activation_checkpointing"), "activation_checkpointing", findings_);
  zero::RecomputeConfig& recompute = config_.engine.recompute;
  recompute.cpu_checkpointing = fields.boolean("cpu_checkpointing").value_or(false);
  recompute.contiguous_memory_optimization =
      fields.boolean("contiguous_memory_optimization").value_or(false);
  recompute.num_checkpoints = fields.integer("number_checkpoints", 1).value_or(0);
  fields.finish();
}

MonitorConfig Reader::read_monitor(std::string_view key) {
  Fields fields(top_.block(key), std::string(key), findings_);
  MonitorConfig monitor;
  monitor.enabled = fields.boolean("enabled").value_or(false);
  monitor.output_path = fields.text("output_path").value_or("");
  monitor.job_name = fields.text("job_name").value_or(monitor.job_name);
  fields.finish();
  return monitor;
}

void Reader::read_monitors() {
  config_.tensorboard = read_monitor("tensorboard");
  config_.csv_monitor = read_monitor("csv_monitor");
  config_.steps_per_print = top_.integer("steps_per_print", 0).value_or(0);
  config_.engine.wall_clock_breakdown = top_.boolean("wall_clock_breakdown").value_or(false);
  config_.dump_state = top_.boolean("dump_state").value_or(false);
}

void Reader::read_own() {
  Fields own(top_.block("zinc"), "zinc", findings_);
  config_.seed = settle(own.unsigned_integer("seed"), flags_.seed, "zinc.seed", "--seed", findings_)
                     .value_or(config_.seed);
  if (own.choice("determinism", {"run", "world"}).value_or(0) == 1) {
    config_.engine.determinism = zero::Determinism::world;
  }
  zero::GradientConfig& gradient = config_.engine.gradient;
  if (const auto index = own.choice("reduce_schedule", {"boundary", "micro_step"})) {
    gradient.reduce_schedule =
        *index == 0 ? zero::ReduceSchedule::boundary : zero::ReduceSchedule::micro_step;
  }
  if (own.choice("schedule", {"horizontal", "vertical"}).value_or(0) == 1) {
    config_.engine.pass_order = zero::PassOrder::vertical;
  }
  if (const auto index = own.choice("offload_step", {"auto", "host", "device"})) {
    config_.engine.offload_step = static_cast<zero::OffloadStep>(*index);
  }
  if (own.choice("gradient_offload", {"host", "nvme"}).value_or(0) == 1) {
    config_.engine.gradient_offload = zero::GradientOffload::nvme;
  }
  if (own.choice("reduce_algorithm", {"ordered", "native"}).value_or(0) == 1) {
    gradient.reduce_algorithm = zero::ReduceAlgorithm::native;
  }
  if (own.choice("loss_reduction", {"tokens", "micro_batch"}).value_or(0) == 1) {
    gradient.loss_reduction = zero::LossReduction::micro_batch;
  }
  zero::RecomputeConfig& recompute = config_.engine.recompute;
  recompute.every_blocks = own.integer("recompute_every_blocks", 0).value_or(0);
  const auto needs_recomputation = [&](bool asked, std::string_view key) {
    if (!asked || recompute.is_on()) return;
    config_.notices.push_back(
        concat(key,
               " has no effect without activation_checkpointing.number_checkpoints or "
               "zinc.recompute_every_blocks"));
  };
  read_offload(own.block("activation_offload"), "zinc.activation_offload", Offloaded::inputs,
               recompute.offload);
  const bool on_nvme = recompute.inputs_on() == zero::OffloadDevice::nvme;
  needs_recomputation(recompute.cpu_checkpointing, "activation_checkpointing.cpu_checkpointing");
  needs_recomputation(recompute.contiguous_memory_optimization && !on_nvme,
                      "activation_checkpointing.contiguous_memory_optimization");
  needs_recomputation(recompute.offload.device != zero::OffloadDevice::none,
                      "zinc.activation_offload");
  if (on_nvme && recompute.contiguous_memory_optimization) {
    config_.notices.push_back(
        "activation_checkpointing.contiguous_memory_optimization has nothing to do with "
        "zinc.activation_offload to nvme: its buffers and its space are made once and kept");
  }
  config_.engine.precision.max_consecutive_skips =
      own.integer("max_consecutive_skips", 1).value_or(100);
  config_.num_threads =
      static_cast<int>(own.integer("num_threads", 0, 4096).value_or(config_.num_threads));
  if (const auto limit = own.bytes("device_memory_limit")) config_.device_memory_limit = limit;
  config_.engine.cuda_graph = own.boolean("cuda_graph").value_or(false);
  config_.engine.overlap_update = own.boolean("overlap_update");
  config_.engine.verify_swap = own.boolean("verify_swap").value_or(true);
  if (!config_.engine.verify_swap) {
    config_.notices.push_back(
        "zinc.verify_swap is false: bytes that a disk gives back changed are not noticed");
  }
  if (const auto seconds = own.number("comm_deadline_seconds", 0.001, 1e9)) {
    config_.comm_deadline = std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000.0));
  }
  config_.trace = own.text("trace").value_or("");
  own.finish();
}

// What holds for values together is checked where they are used; ask there.
void Reader::check_that_it_can_be_built() {
  const zero::EngineConfig& engine = config_.engine;
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (const ConfigError& error) {
      findings_.problem(error.what());
    } catch (const InvalidArgument& error) {
      findings_.problem(error.what());
    }
  };
  attempt([&] { zero::validate(engine); });
  attempt([&] { optim::make_optimizer(engine.optimizer); });
  attempt([&] { optim::LossScaler{engine.precision.loss_scale}; });
  // Without --steps a total that is left open is no problem yet.
  attempt(
      [&] { optim::Schedule(engine.schedule, engine.optimizer, flags_.total_steps.value_or(1)); });
}

}  // namespace

Config parse_config(std::string text, std::string name, int64_t world_size, const Overrides& flags,
                    const RankDefaults& defaults) {
  json::Value root;
  try {
    root = json::parse(std::move(text), std::move(name), json::ParseOptions::config());
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
  if (!root.is_object()) throw ConfigError("a configuration must be a JSON object");
  return Reader(root, world_size, flags, defaults).read();
}

Config load_config(const std::string& path, int64_t world_size, const Overrides& flags,
                   const RankDefaults& defaults) {
  json::Value root;
  try {
    root = json::parse_file(path, json::ParseOptions::config());
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  } catch (const IoError& error) {
    if (error.error_number() != ENOENT) throw;
    throw ConfigError(concat("there is no configuration file '", path, "'"));
  }
  if (!root.is_object()) throw ConfigError(concat(path, ": a configuration must be an object"));
  return Reader(root, world_size, flags, defaults).read();
}

}  // namespace zinc::train
