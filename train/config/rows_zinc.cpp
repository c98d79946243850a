// Rows of zinc's own settings.
#include "train/config/row.h"

namespace zinc::train {
namespace {

using zero::EngineConfig;
using zero::GradientConfig;
using zero::OffloadConfig;
using zero::OffloadDevice;
using zero::RecomputeConfig;

template <class T>
Setting in_engine(T EngineConfig::*member) {
  return at(&Config::engine, member);
}

template <class T>
Setting in_saved_inputs(T OffloadConfig::*member) {
  return at(&Config::engine, &EngineConfig::recompute, &RecomputeConfig::offload, member);
}
bool saved_inputs_leave(const Config& config) {
  return config.engine.recompute.offload.device != OffloadDevice::none;
}

Setting device_memory_limit() {
  Setting setting = at(&Config::device_memory_limit);
  setting.type = KeyType::bytes;
  setting.set = [](Config& config, const files::json::Value& value) {
    config.device_memory_limit = bytes_of(value);
  };
  return setting;
}

Setting resident_memory() {
  Setting setting = at(&Config::engine, &EngineConfig::zero, &zero::ZeroConfig::resident_memory);
  setting.type = KeyType::bytes;
  setting.set = [](Config& config, const files::json::Value& value) {
    config.engine.zero.resident_memory = bytes_of(value).value_or(0);
  };
  return setting;
}

Rows order_rows() {
  using zero::Determinism;
  using zero::LossReduction;
  using zero::PassOrder;
  using zero::ReduceAlgorithm;
  using zero::ReduceSchedule;
  return {
      works("seed", at(&Config::seed), "of weights, data order and dropout")
          .with_flag("--seed", &Overrides::seed),
      works("determinism",
            one_of({Determinism::run, Determinism::world, Determinism::mesh}, &Config::engine,
                   &EngineConfig::determinism),
            "run: same bits for one world size; world: for every power-of-two world with the "
            "same micro-batches per step; mesh: also for 1, 2 and 4 tensor ranks"),
      works("reduce_schedule",
            one_of({ReduceSchedule::boundary, ReduceSchedule::micro_step}, &Config::engine,
                   &EngineConfig::gradient, &GradientConfig::reduce_schedule),
            "when gradients travel: once a step (stages 0 and 1 only), or after every "
            "micro-batch")
          .by_default_as("stages 0 and 1: \"boundary\", else \"micro_step\"")
          .shown_as([](const Config& config, int64_t) -> files::json::Value {
            return name_of(config.engine.reduce_schedule());
          }),
      works("schedule",
            one_of({PassOrder::horizontal, PassOrder::vertical}, &Config::engine,
                   &EngineConfig::pass_order),
            "vertical: all micro-batches through a layer before the next; reduces after every "
            "micro-batch"),
      works("reduce_algorithm",
            one_of({ReduceAlgorithm::ordered, ReduceAlgorithm::native}, &Config::engine,
                   &EngineConfig::gradient, &GradientConfig::reduce_algorithm),
            "native: the backend's own sums"),
      works("loss_reduction",
            one_of({LossReduction::tokens, LossReduction::micro_batch}, &Config::engine,
                   &EngineConfig::gradient, &GradientConfig::loss_reduction),
            "micro_batch: DeepSpeed's mean of means"),
      works("label_smoothing_factor", in_engine(&EngineConfig::label_smoothing), between(0, 1),
            "share of each label that is spread over all classes, in training alone")
          .with_flag("--label-smoothing-factor", &Overrides::label_smoothing),
  };
}

Rows muon_block() {
  using optim::MuonOptions;
  using optim::OptimizerConfig;
  const auto is_muon = [](const Config& config) {
    return config.engine.optimizer.kind == optim::OptimizerKind::muon;
  };
  return block(
      "muon", "optimizer.type \"Muon\"",
      {only("", is_muon,
            {works("products",
                   one_of({DType::bf16, DType::f32}, &Config::engine, &EngineConfig::optimizer,
                          &OptimizerConfig::muon, &MuonOptions::products),
                   "dtype of the products of its iteration, and of what travels for it"),
             works("exclude",
                   at(&Config::engine, &EngineConfig::optimizer, &OptimizerConfig::muon,
                      &MuonOptions::exclude),
                   "patterns of names (*: any run of characters, ?: one) of matrices that AdamW "
                   "updates instead")})});
}

Rows placement_rows() {
  using zero::GradientOffload;
  using zero::OffloadStep;
  return {
      works("fp8", in_engine(&EngineConfig::fp8),
            "products of linear layers take 8 bits, with a scale for each tensor; needs bf16 "
            "(docs/training.md)"),
      works(
          "wgmma",
          one_of({kernels::WgmmaUse::by_table, kernels::WgmmaUse::never, kernels::WgmmaUse::always},
                 &Config::engine, &EngineConfig::wgmma),
          "zinc's own kernels for compute capability 9.0: where a measured table says that they "
          "are faster, nowhere, or wherever they can (docs/gpu.md)"),
      works("narrow_logits", in_engine(&EngineConfig::narrow_logits),
            "in training the head's logits are rounded to the model's dtype, instead of f32 "
            "(docs/training.md)"),
      works("moments",
            one_of({optim::Moments::f32, optim::Moments::bf16}, &Config::engine,
                   &EngineConfig::optimizer, &optim::OptimizerConfig::moments),
            "in which an update rule keeps its states; bf16: half of their memory, by stochastic "
            "rounding (docs/training.md)")
          .when_auto("f32; zinc plan --fit may take bf16",
                     [](const Config&, const Overrides&) { return files::json::Value("f32"); }),
      muon_block(),
      works("offload_step",
            one_of({OffloadStep::automatic, OffloadStep::host, OffloadStep::device},
                   &Config::engine, &EngineConfig::offload_step),
            "with offload_optimizer to the cpu, which of them updates; auto: what the hardware "
            "file makes faster (docs/offload.md)"),
      works("gradient_offload",
            one_of({GradientOffload::device, GradientOffload::host, GradientOffload::nvme},
                   &Config::engine, &EngineConfig::gradient_offload),
            "with offload_optimizer, where reduced gradients are summed over micro-batches and "
            "wait for the update; nvme: of states there (docs/offload.md)"),
      works("recompute_every_blocks",
            at(&Config::engine, &EngineConfig::recompute, &RecomputeConfig::every_blocks),
            at_least(0), "blocks", "per saved input; 0: keeps activations"),
      works("recompute_blocks",
            at(&Config::engine, &EngineConfig::recompute, &RecomputeConfig::most_blocks),
            at_least(0), "blocks",
            "the first so many are recomputed, where blocks are; null: all of them"),
      works("selective_recompute",
            at(&Config::engine, &EngineConfig::recompute, &RecomputeConfig::selective),
            "backward computes results of norms and activations again, where blocks are not "
            "recomputed (docs/training.md)"),
      works("resident_memory", resident_memory(),
            "of gathered weights that stay through all micro-batches of a step, beside "
            "stage3_max_live_parameters; stage 3")
          .fills_memory("as much as the device's memory allows"),
      block("activation_offload", "saved inputs of recomputed blocks; see number_checkpoints",
            {works("device",
                   one_of({OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme},
                          &Config::engine, &EngineConfig::recompute, &RecomputeConfig::offload,
                          &OffloadConfig::device),
                   "cpu: the same as cpu_checkpointing"),
             only("", saved_inputs_leave,
                  {works("nvme_path", in_saved_inputs(&OffloadConfig::nvme_path),
                         "a directory; nvme needs it"),
                   works("buffer_count", in_saved_inputs(&OffloadConfig::buffer_count),
                         between(1, kMostBuffers), "inputs",
                         "nvme: in host memory at once; written behind, read ahead of use")})}),
  };
}

Rows rank_rows() {
  using parallel::PipelineSchedule;
  constexpr int64_t kMostRanksTogether = 1024;
  return {
      block("mesh", "how ranks divide the work (docs/parallelism.md)",
            {works("tensor", at(&Config::mesh, &comm::Mesh::tensor), between(1, kMostRanksTogether),
                   "ranks", "that hold a slice each of every layer; neighbours; divides the world"),
             works("sequence", at(&Config::mesh, &comm::Mesh::sequence),
                   between(1, kMostRanksTogether), "ranks",
                   "that have a part each of every sequence's tokens; divides world / tensor"),
             works("pipe", at(&Config::mesh, &comm::Mesh::pipe), between(1, kMostRanksTogether),
                   "ranks", "that have some of the layers each; divides world / tensor")}),
      works("tensor_sequence_parallel",
            at(&Config::engine, &EngineConfig::tensor_sequence_parallel),
            "the ranks of zinc.mesh.tensor share the tokens between sliced layers: norms, residual "
            "sums and dropout are of a part of them each (Megatron-LM's sequence parallelism)"),
      works(
          "sequence_exchange",
          one_of(
              {nn::SequenceExchange::heads, nn::SequenceExchange::keys, nn::SequenceExchange::ring},
              &Config::engine, &EngineConfig::sequence_exchange),
          "what the ranks of zinc.mesh.sequence exchange around attention: all tokens of a part of "
          "the heads, or keys and values of all tokens, at once or (ring) of one rank after the "
          "other; heads need to divide for the first alone"),
      works("pipeline_schedule",
            one_of({PipelineSchedule::one_forward_one_backward, PipelineSchedule::gpipe,
                    PipelineSchedule::zero_bubble},
                   &Config::engine, &EngineConfig::pipeline, &parallel::PipelineConfig::schedule),
            "in which order the ranks of zinc.mesh.pipe work on the micro-batches of a step: "
            "backward as soon as it can be, or behind all forward passes, or gradients of weights "
            "apart, where a rank would wait"),
      works(
          "pipeline_interleave",
          at(&Config::engine, &EngineConfig::pipeline, &parallel::PipelineConfig::interleave),
          between(1, kMostRanksTogether), "parts",
          "of the model that each rank of zinc.mesh.pipe has, in turn with the others; Megatron's "
          "virtual pipeline size"),
      works("pipeline_pattern",
            at(&Config::engine, &EngineConfig::pipeline, &parallel::PipelineConfig::pattern),
            "instead of pipeline.partition: each rank of zinc.mesh.pipe gets as many stages with a "
            "parameter of such a name, as in \"*.attn.*\""),
      works("max_consecutive_skips",
            at(&Config::engine, &EngineConfig::precision,
               &zero::PrecisionConfig::max_consecutive_skips),
            at_least(1), "steps", "skipped in a row, for an overflow, that end the run"),
      works("num_threads", at(&Config::num_threads), between(0, 4096), "threads",
            "per rank; 0: OMP_NUM_THREADS, else cores / local ranks, at most the quota"),
      works("device_memory_limit", device_memory_limit(), "of the device tier")
          .by_default_as("none"),
      works("cuda_graph", in_engine(&EngineConfig::cuda_graph),
            "true: forward and backward of a micro-batch as one CUDA graph, the step as two "
            "(docs/gpu.md), on a GPU; stage 3 with NCCL or one rank"),
      works("overlap_update", in_engine(&EngineConfig::overlap_update),
            "updates by the host beside backward or the next forward pass (docs/offload.md)")
          .by_default_as("true for states on NVMe, and on a GPU for those in host memory"),
      works("verify_swap", in_engine(&EngineConfig::verify_swap),
            "false: what a disk gives back is not checked by CRC"),
      works("comm_deadline_seconds", at(&Config::comm_deadline), between(0.001, 1e9), "seconds",
            "a collective may wait for its peers"),
      works("trace", at(&Config::trace),
            "a file: every gather, reduction, stall and kernel (docs/trace.md); empty: none"),
  };
}

template <class T>
Setting in_checkpoint(T CheckpointConfig::*member) {
  return at(&Config::checkpoint, member);
}

Rows checkpoint_rows() {
  return block("checkpoint", "what a run can go on from (docs/checkpoints.md)",
               {works("every", in_checkpoint(&CheckpointConfig::every), at_least(0), "steps",
                      "between checkpoints; 0: not by steps")
                    .with_flag("--save-every", &Overrides::save_every),
                works("minutes", in_checkpoint(&CheckpointConfig::minutes), between(0, 1e6),
                      "minutes", "between checkpoints; 0: not by time")
                    .with_flag("--save-minutes", &Overrides::save_minutes),
                works("keep", in_checkpoint(&CheckpointConfig::keep), at_least(0), "checkpoints",
                      "the newest that stay; 0: all")
                    .with_flag("--save-total-limit", &Overrides::save_total_limit),
                works("asynchronous", in_checkpoint(&CheckpointConfig::asynchronous),
                      "false: training waits while a checkpoint is written; so it does where "
                      "a part of the states is in host memory"),
                works("required", in_checkpoint(&CheckpointConfig::required),
                      "true: a checkpoint that cannot be saved ends the run, which else goes on "
                      "with the one before")});
}

}  // namespace

Rows zinc_rows() {
  return block("zinc", "zinc's own settings",
               {order_rows(), placement_rows(), rank_rows(), checkpoint_rows()});
}

}  // namespace zinc::train
