// The class of every key that DeepSpeed 0.19 documents or reads, and of zinc's own.
#include "core/error.h"
#include "train/config/config.h"

namespace zinc::train {
namespace {

constexpr KeyClass kWorks = KeyClass::works;
constexpr KeyClass kNoEffect = KeyClass::no_effect;
constexpr KeyClass kWarning = KeyClass::warning;
constexpr KeyClass kRefused = KeyClass::refused;
constexpr KeyClass kDeprecated = KeyClass::deprecated;

constexpr KeyValue kBool = KeyValue::boolean;
constexpr KeyValue kInteger = KeyValue::integer;
constexpr KeyValue kText = KeyValue::text;
constexpr KeyValue kBlock = KeyValue::block;

}  // namespace

std::string_view name_of(KeyClass key_class) {
  switch (key_class) {
    case KeyClass::works:
      return "works";
    case KeyClass::no_effect:
      return "no effect";
    case KeyClass::warning:
      return "warning";
    case KeyClass::refused:
      return "refused";
    case KeyClass::deprecated:
      return "deprecated";
  }
  return "?";
}

const std::vector<KeyInfo>& config_keys() {
  static const std::vector<KeyInfo> keys{
      // --- batches
      {"train_batch_size", kWorks, "sequences per optimizer step, all ranks"},
      {"train_micro_batch_size_per_gpu", kWorks, "sequences per rank and micro-step"},
      {"gradient_accumulation_steps", kWorks, "micro-steps per optimizer step"},
      // --- optimizer and schedule
      {"optimizer", kWorks, "absent: AdamW with its defaults"},
      {"optimizer.type", kWorks, "Adam (AdamW unless adam_w_mode is false), AdamW, SGD"},
      {"optimizer.legacy_fusion", kNoEffect, "there is one implementation", kBool},
      {"optimizer.params", kWorks, ""},
      {"optimizer.params.lr", kWorks, ""},
      {"optimizer.params.betas", kWorks, "[beta1, beta2]"},
      {"optimizer.params.eps", kWorks, ""},
      {"optimizer.params.weight_decay", kWorks, "not on biases and norms"},
      {"optimizer.params.momentum", kWorks, "SGD"},
      {"optimizer.params.dampening", kWorks, "SGD"},
      {"optimizer.params.nesterov", kWorks, "SGD"},
      {"optimizer.params.bias_correction", kWorks, "Adam and AdamW"},
      {"optimizer.params.adam_w_mode", kWorks, "Adam: false adds the decay to the gradient"},
      {"optimizer.params.torch_adam", kNoEffect, "there is one implementation", kBool},
      {"optimizer.params.amsgrad", kRefused, "AMSGrad is not implemented"},
      {"optimizer.params.fused", kNoEffect, "the update is one pass", kBool},
      {"optimizer.params.foreach", kNoEffect, "the update is one pass", kBool},
      {"optimizer.params.max_grad_norm", kRefused, "use gradient_clipping"},
      {"optimizer.params.freeze_step", kRefused, "1-bit optimizers are not implemented"},
      {"scheduler", kWorks, "absent: a constant learning rate"},
      {"scheduler.type", kWorks,
       "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest, StepLR, linear, cosine, "
       "constant"},
      {"scheduler.params", kWorks, "see optim/schedule.h"},
      {"gradient_clipping", kWorks, "largest global norm; 0: off; default 1"},
      // --- precision
      {"fp16", kWorks, ""},
      {"fp16.enabled", kWorks, "f16 weights, activations and gradients, f32 master weights"},
      {"fp16.loss_scale", kWorks, "of the mean loss of a micro-batch; 0: dynamic; also in quotes"},
      {"fp16.initial_scale_power", kWorks, ""},
      {"fp16.loss_scale_window", kWorks, ""},
      {"fp16.hysteresis", kWorks, ""},
      {"fp16.consecutive_hysteresis", kWorks, ""},
      {"fp16.min_loss_scale", kWorks, ""},
      {"fp16.auto_cast", kNoEffect, "inputs are token ids", kBool},
      {"fp16.fp16_master_weights_and_grads", kRefused, "master weights are f32"},
      {"fp16.opt_level", kNoEffect, "a leftover of Apex", kText},
      {"bf16", kWorks, ""},
      {"bf16.enabled", kWorks, "bf16 weights, activations and gradients, f32 master weights"},
      {"bf16.check_grad_overflow", kWorks, "default true"},
      {"bf16.immediate_grad_update", kNoEffect, "gradients are always reduced as they come", kBool},
      {"bf16.bf16_master_weights_and_grads", kRefused, "master weights are f32"},
      {"bf16.bf16_optimizer_states", kRefused, "optimizer states are f32"},
      {"bfloat16", kDeprecated, "use bf16"},
      {"data_types", kWorks, ""},
      {"data_types.grad_accum_dtype", kWorks, "fp32, fp16 or bf16; see zero/gradient_policy.h"},
      {"data_types.param_dtype", kRefused, "use fp16 or bf16"},
      {"data_types.buffer_dtype", kNoEffect, "models have no floating-point buffers", kText},
      {"communication_data_type", kWorks, "of gradients on the wire"},
      {"seq_parallel_communication_data_type", kNoEffect, "there is no sequence parallelism",
       kText},
      {"prescale_gradients", kWorks, "\"reduce_algorithm\": \"native\" only"},
      {"gradient_predivide_factor", kWorks, "\"reduce_algorithm\": \"native\" only"},
      {"gradient_allreduce_op", kRefused, "the loss decides: see zinc.loss_reduction"},
      {"amp", kRefused, "Apex does not exist here; use fp16 or bf16"},
      {"torch_autocast", kRefused, "use fp16 or bf16"},
      // --- ZeRO
      {"zero_optimization", kWorks, ""},
      {"zero_optimization.stage", kWorks, "0 to 3"},
      {"zero_optimization.reduce_bucket_size", kWorks, "elements"},
      {"zero_optimization.allgather_bucket_size", kWorks, "elements"},
      {"zero_optimization.overlap_comm", kWorks, "default: stage 3 only"},
      {"zero_optimization.sub_group_size", kWorks,
       "elements of an offloaded update that are in a buffer at once; 0 (default): 1e9, or 2^23 "
       "with \"offload_step\": \"device\""},
      {"zero_optimization.stage3_prefetch_bucket_size", kWorks, "elements"},
      {"zero_optimization.prefetch_bucket_size", kDeprecated, "use stage3_prefetch_bucket_size"},
      {"zero_optimization.stage3_param_persistence_threshold", kWorks, "elements"},
      {"zero_optimization.param_persistence_threshold", kDeprecated,
       "use stage3_param_persistence_threshold"},
      {"zero_optimization.stage3_model_persistence_threshold", kNoEffect,
       "the layout is the same on every stage: each small parameter is persistent", kInteger},
      {"zero_optimization.stage3_max_live_parameters", kWorks, "elements; 0 is valid"},
      {"zero_optimization.max_live_parameters", kDeprecated, "use stage3_max_live_parameters"},
      {"zero_optimization.stage3_max_reuse_distance", kWorks, "elements; 0 is valid"},
      {"zero_optimization.max_reuse_distance", kDeprecated, "use stage3_max_reuse_distance"},
      {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNoEffect,
       "each rank writes its part of the whole 16-bit weights on every stage", kBool},
      {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNoEffect,
       "each rank writes its part of the whole 16-bit weights on every stage", kBool},
      {"zero_optimization.ignore_unused_parameters", kWorks,
       "false: a trained parameter without a gradient is an error"},
      {"zero_optimization.contiguous_gradients", kNoEffect, "gradients always lie in one buffer",
       kBool},
      {"zero_optimization.round_robin_gradients", kNoEffect, "all ranks hold equal shards", kBool},
      {"zero_optimization.reduce_scatter", kNoEffect, "gradients are always reduce-scattered",
       kBool},
      {"zero_optimization.allgather_partitions", kNoEffect, "weights are always all-gathered",
       kBool},
      {"zero_optimization.use_multi_rank_bucket_allreduce", kNoEffect,
       "gradients are always reduce-scattered", kBool},
      {"zero_optimization.stage3_module_granularity_threshold", kNoEffect,
       "the unit is a transformer block", kInteger},
      {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kNoEffect,
       "parameters are all-gathered", kBool},
      {"zero_optimization.stage3_allgather_sequential", kNoEffect,
       "gathers follow the recorded schedule", kBool},
      {"zero_optimization.load_from_fp32_weights", kNoEffect, "master weights are always f32",
       kBool},
      {"zero_optimization.elastic_checkpoint", kNoEffect, "checkpoints fit every world size",
       kBool},
      {"zero_optimization.memory_efficient_linear", kNoEffect, "it always is", kBool},
      {"zero_optimization.enable_sanity_checks", kNoEffect, "the schedule is always checked",
       kBool},
      {"zero_optimization.log_trace_cache_warnings", kNoEffect, "leaving the schedule is an error",
       kBool},
      {"zero_optimization.override_module_apply", kNoEffect, "there are no Python modules", kBool},
      {"zero_optimization.leaf_module", kNoEffect, "the unit is a transformer block", kBlock},
      {"zero_optimization.pipeline_loading_checkpoint", kNoEffect, "ranks read their own ranges",
       kBool},
      {"zero_optimization.grad_hooks", kNoEffect, "gradients are reduced as they come", kBool},
      {"zero_optimization.legacy_stage1", kRefused, "DeepSpeed removed it"},
      {"zero_optimization.offload_optimizer", kWorks, "stages 1 to 3"},
      {"zero_optimization.offload_optimizer.device", kWorks, "\"none\", \"cpu\" or \"nvme\""},
      {"zero_optimization.offload_optimizer.nvme_path", kWorks, "a directory"},
      {"zero_optimization.offload_optimizer.pin_memory", kNoEffect,
       "host memory is always pinned on a GPU; CPU ranks need no pinning", kBool},
      {"zero_optimization.offload_optimizer.buffer_count", kNoEffect,
       "derived from the pipeline's depth", kInteger},
      {"zero_optimization.offload_optimizer.pipeline_read", kWorks,
       "reads the next tile while one is updated"},
      {"zero_optimization.offload_optimizer.pipeline_write", kWorks,
       "writes a tile while the next is updated"},
      {"zero_optimization.offload_optimizer.fast_init", kNoEffect,
       "first values always go tile by tile", kBool},
      {"zero_optimization.offload_optimizer.ratio", kWorks,
       "0 to 1, with \"device\": \"cpu\": the share of the states that leaves the device"},
      {"zero_optimization.offload_param", kWorks, "stage 3"},
      {"zero_optimization.offload_param.device", kWorks, "\"none\", \"cpu\" or \"nvme\""},
      {"zero_optimization.offload_param.nvme_path", kWorks, "a directory"},
      {"zero_optimization.offload_param.pin_memory", kNoEffect,
       "host memory is always pinned on a GPU; CPU ranks need no pinning", kBool},
      {"zero_optimization.offload_param.buffer_count", kWorks,
       "nvme: buffers in host memory, read ahead of use"},
      {"zero_optimization.offload_param.buffer_size", kWorks, "nvme: elements of a buffer at most"},
      {"zero_optimization.offload_param.max_in_cpu", kWorks,
       "nvme: elements per rank that stay in host memory"},
      {"zero_optimization.cpu_offload", kDeprecated, "use offload_optimizer"},
      {"zero_optimization.cpu_offload_param", kDeprecated, "use offload_param"},
      {"zero_optimization.cpu_offload_use_pin_memory", kNoEffect, "deprecated in DeepSpeed", kBool},
      {"zero_optimization.zenflow", kRefused, "ZenFlow is not implemented"},
      {"zero_optimization.zero_hpz_partition_size", kNoEffect, "ZeRO++ is not implemented",
       kInteger},
      {"zero_optimization.zero_quantized_weights", kRefused, "ZeRO++ is not implemented"},
      {"zero_optimization.zero_quantized_nontrainable_weights", kRefused,
       "ZeRO++ is not implemented"},
      {"zero_optimization.zero_quantized_gradients", kRefused, "ZeRO++ is not implemented"},
      {"zero_optimization.zeropp_loco_param", kRefused, "ZeRO++ is not implemented"},
      {"zero_optimization.mics_shard_size", kNoEffect, "MiCS is not implemented", kInteger},
      {"zero_optimization.mics_hierarchical_params_gather", kRefused, "MiCS is not implemented"},
      {"zero_optimization.save_muon_momentum_buffer_in_memory", kNoEffect,
       "Muon is not implemented", kBool},
      {"zero_allow_untested_optimizer", kWorks, "allows a client's own optimizer on stages 1 to 3"},
      {"zero_force_ds_cpu_optimizer", kWorks,
       "true: a client's own optimizer with offload_optimizer is refused"},
      // --- activations
      {"activation_checkpointing", kWorks, ""},
      {"activation_checkpointing.number_checkpoints", kWorks,
       "null: keeps activations; n: at most n saved inputs, of every ceil(blocks / n)-th block"},
      {"activation_checkpointing.partition_activations", kNoEffect,
       "there is no tensor parallelism", kBool},
      {"activation_checkpointing.cpu_checkpointing", kWorks,
       "saved inputs of recomputed blocks in host memory; see number_checkpoints"},
      {"activation_checkpointing.contiguous_memory_optimization", kWorks,
       "saved inputs side by side in one allocation that is kept from step to step"},
      {"activation_checkpointing.synchronize_checkpoint_boundary", kNoEffect, "", kBool},
      {"activation_checkpointing.profile", kNoEffect, "see the trace", kBool},
      // --- I/O
      {"aio", kWorks, "see zinc bench io"},
      {"aio.block_size", kWorks, "bytes of one request, a multiple of 4096"},
      {"aio.queue_depth", kWorks, "requests in flight per thread"},
      {"aio.intra_op_parallelism", kWorks, "threads"},
      {"aio.thread_count", kWorks, "an old name of intra_op_parallelism"},
      {"aio.num_threads", kWorks, "another name of intra_op_parallelism"},
      {"aio.single_submit", kWorks, "one request per system call"},
      {"aio.overlap_events", kWorks, "false: a queue is filled when all of it has ended"},
      {"aio.use_gds", kNoEffect, "transfers go through host memory", kBool},
      // --- figures
      {"steps_per_print", kWorks, "steps between printed lines"},
      {"wall_clock_breakdown", kWorks,
       "prints the times of a step's phases every steps_per_print, and writes them to "
       "metrics.jsonl"},
      {"dump_state", kWorks, "prints the resolved configuration and the model at the start"},
      {"memory_breakdown", kNoEffect, "peak_bytes is in metrics.jsonl", kBool},
      {"tensorboard", kWorks, ""},
      {"tensorboard.enabled", kWorks, "writes events to output_path as well"},
      {"tensorboard.output_path", kWorks, "empty: the run's folder"},
      {"tensorboard.job_name", kWorks, ""},
      {"csv_monitor", kWorks, ""},
      {"csv_monitor.enabled", kWorks, "one file per curve, DeepSpeed's layout"},
      {"csv_monitor.output_path", kWorks, "empty: the run's folder"},
      {"csv_monitor.job_name", kWorks, ""},
      {"wandb", kWarning, "Weights & Biases cannot be reached; see metrics.jsonl", kBlock},
      {"comet", kWarning, "Comet cannot be reached; see metrics.jsonl", kBlock},
      {"flops_profiler", kNoEffect, "model FLOP/s are always shown", kBlock},
      {"comms_logger", kNoEffect, "see the trace", kBlock},
      {"log_level", kNoEffect, "the library does not log", kText},
      {"vocabulary_size", kNoEffect, "the model's config says it", kInteger},
      {"dataloader_drop_last", kNoEffect, "batches are always full", kBool},
      {"disable_allgather", kNoEffect, "", kBool},
      {"graph_harvesting", kNoEffect, "", kBool},
      {"use_data_before_expert_parallelism", kNoEffect, "", kBool},
      {"sparse_gradients", kRefused, "embedding gradients are dense"},
      {"managed_gradient_accumulation", kWorks, "false is refused: the engine counts micro-steps"},
      // --- what zinc does not have
      {"checkpoint", kNoEffect, "there is one checkpoint format", kBlock},
      {"elasticity", kRefused, "elastic training is not implemented"},
      {"pipeline", kRefused, "pipeline parallelism is not implemented"},
      {"tensor_parallel", kRefused, "tensor parallelism is not implemented"},
      {"sparse_attention", kRefused, "sparse attention is not implemented"},
      {"compression_training", kRefused, "compression is not implemented"},
      {"data_efficiency", kRefused, "data efficiency is not implemented"},
      {"curriculum_learning", kRefused, "curriculum learning is not implemented"},
      {"progressive_layer_drop", kRefused, "progressive layer drop is not implemented"},
      {"eigenvalue", kRefused, "it belongs to compression, which is not implemented"},
      {"autotuning", kRefused, "autotuning is not implemented"},
      {"hybrid_engine", kRefused, "there is no inference engine"},
      {"expert_parallel", kRefused, "mixture of experts is not implemented"},
      {"compile", kNoEffect, "there is nothing to compile", kBlock},
      {"nebula", kRefused, "Nebula is a service of Azure"},
      // --- zinc's own
      {"zinc", kWorks, "zinc's own settings"},
      {"zinc.seed", kWorks, "of weights, data order and dropout"},
      {"zinc.determinism", kWorks,
       "\"run\" (default): same bits for one world size; \"world\": for every power-of-two world "
       "with the same micro-batches per step"},
      {"zinc.reduce_schedule", kWorks, "\"boundary\" (stages 0 and 1) or \"micro_step\""},
      {"zinc.schedule", kWorks,
       "\"horizontal\" (default) or \"vertical\": all micro-batches through a layer before the "
       "next; "
       "reduces after every micro-batch"},
      {"zinc.offload_step", kWorks,
       "\"auto\" (default), \"host\" or \"device\": with offload_optimizer to the cpu, which of "
       "them "
       "updates; auto: what the hardware file makes faster (docs/offload.md)"},
      {"zinc.gradient_offload", kWorks,
       "\"host\" (default) or \"nvme\": with offload_optimizer to nvme, where reduced gradients "
       "wait for the update, and for the next micro-batch (docs/offload.md)"},
      {"zinc.reduce_algorithm", kWorks, "\"ordered\" or \"native\""},
      {"zinc.loss_reduction", kWorks, "\"tokens\" or \"micro_batch\" (DeepSpeed's mean of means)"},
      {"zinc.recompute_every_blocks", kWorks,
       "0: keep activations; n: one saved input per n blocks"},
      {"zinc.activation_offload", kWorks,
       "saved inputs of recomputed blocks; see number_checkpoints"},
      {"zinc.activation_offload.device", kWorks,
       "\"none\", \"cpu\" (the same as cpu_checkpointing) or \"nvme\""},
      {"zinc.activation_offload.nvme_path", kWorks, "a directory"},
      {"zinc.activation_offload.buffer_count", kWorks,
       "nvme: inputs in host memory at once; written behind, read ahead"},
      {"zinc.max_consecutive_skips", kWorks, "overflows in a row that end the run"},
      {"zinc.num_threads", kWorks, "per rank; 0: OMP_NUM_THREADS, else cores / local ranks"},
      {"zinc.device_memory_limit", kWorks, "as in \"2GiB\""},
      {"zinc.cuda_graph", kWorks,
       "true: forward and backward of a micro-batch as one CUDA graph, the step as two "
       "(docs/gpu.md), on a GPU; stage 3 with NCCL or one rank"},
      {"zinc.overlap_update", kWorks,
       "updates by the host beside backward or the next forward pass; default: of states on NVMe, "
       "and on a GPU of those in host memory (docs/offload.md)"},
      {"zinc.verify_swap", kWorks, "false: what a disk gives back is not checked by CRC"},
      {"zinc.comm_deadline_seconds", kWorks, "how long a collective may wait for its peers"},
      {"zinc.trace", kWorks, "file: every gather, reduction, stall and kernel (docs/trace.md)"},
  };
  return keys;
}

std::string config_keys_markdown() {
  std::string text = "| key | class | note |\n|---|---|---|\n";
  for (const KeyInfo& key : config_keys()) {
    text += concat("| `", key.path, "` | ", name_of(key.key_class), " | ", key.note, " |\n");
  }
  return text;
}

}  // namespace zinc::train
