// Rows of recomputation, disk transfers and figures, and of parts that zinc does not have.
#include "train/config/row.h"

namespace zinc::train {
namespace {

using zero::AioConfig;
using zero::EngineConfig;
using zero::RecomputeConfig;

template <class T>
Setting in_aio(T AioConfig::*member) {
  return at(&Config::engine, &EngineConfig::aio, member);
}

template <class T>
Setting in_recompute(T RecomputeConfig::*member) {
  return at(&Config::engine, &EngineConfig::recompute, member);
}

// 0 stands for a key that is not given.
Setting number_of_checkpoints() {
  Setting setting = in_recompute(&RecomputeConfig::num_checkpoints);
  setting.get = [](const Config& config, int64_t) -> files::json::Value {
    const int64_t number = config.engine.recompute.num_checkpoints;
    return number == 0 ? files::json::Value() : files::json::Value(number);
  };
  return setting;
}

Rows one_monitor(std::string_view name, MonitorConfig Config::*monitor, std::string_view note) {
  return read_loosely(
      block(name, "curves of a run",
            {works("enabled", at(monitor, &MonitorConfig::enabled), note),
             works("output_path", at(monitor, &MonitorConfig::output_path),
                   "a directory; empty: the run's folder"),
             works("job_name", at(monitor, &MonitorConfig::job_name), "a directory in it")}));
}

Rows wandb_rows() {
  return read_loosely(block(
      "wandb", "a run of Weights & Biases",
      {works("enabled", at(&Config::wandb, &WandbConfig::enabled),
             "writes an offline run to wandb/ in the run's folder, which `wandb sync` uploads"),
       works("group", at(&Config::wandb, &WandbConfig::group), "the run's group; null: none"),
       works("team", at(&Config::wandb, &WandbConfig::team),
             "the run's entity; null: that of whoever uploads it"),
       works("project", at(&Config::wandb, &WandbConfig::project), "that the run belongs to")}));
}

}  // namespace

Rows activation_rows() {
  return block(
      "activation_checkpointing", "what recomputes activations",
      {works("number_checkpoints", number_of_checkpoints(), at_least(1), "inputs",
             "most that are saved, of every ceil(blocks / n)-th block; null: keeps activations")
           .fills_memory("as few blocks are recomputed as the device's memory allows; see "
                         "zinc.recompute_blocks")
           .absent_where_false(),
       works("partition_activations", in_recompute(&RecomputeConfig::partition_activations),
             "each tensor rank keeps a part of the saved inputs of recomputed blocks, gathered in "
             "backward"),
       works("cpu_checkpointing", in_recompute(&RecomputeConfig::cpu_checkpointing),
             "saved inputs of recomputed blocks in host memory; see number_checkpoints"),
       works("contiguous_memory_optimization",
             in_recompute(&RecomputeConfig::contiguous_memory_optimization),
             "saved inputs side by side in one allocation that is kept from step to step"),
       no_effect("synchronize_checkpoint_boundary", KeyType::boolean, "streams wait for events"),
       no_effect("profile", KeyType::boolean, "see the trace")});
}

Rows aio_rows() {
  Bounds size = between(4096, zero::kLargestAioBlock);
  size.multiple_of = 4096;
  const std::string_view threads = "intra_op_parallelism";
  return block(
      "aio", "transfers to and from NVMe; see zinc bench io",
      {works("block_size", in_aio(&AioConfig::block_size), size, "bytes", "size of one request"),
       works("queue_depth", in_aio(&AioConfig::queue_depth), between(1, 65536), "requests",
             "in flight per thread"),
       works(threads, in_aio(&AioConfig::threads), between(1, 1024), "threads",
             "that submit requests"),
       other_name("num_threads", threads, KeyClass::works),
       other_name("thread_count", threads, KeyClass::works),
       works("single_submit", in_aio(&AioConfig::single_submit), "one request per system call"),
       works("overlap_events", in_aio(&AioConfig::overlap_events),
             "false: a queue is filled when all of it has ended"),
       no_effect("use_gds", KeyType::boolean,
                 "transfers go through host memory: the direct way between disk and GPU "
                 "(GPUDirect Storage) is not taken")});
}

Rows monitor_rows() {
  return {
      works("steps_per_print", at(&Config::steps_per_print), at_least(0), "steps",
            "between printed lines; 0: the command's own choice; Infinity: none"),
      works("wall_clock_breakdown", at(&Config::engine, &EngineConfig::wall_clock_breakdown),
            "prints the times of a step's phases every steps_per_print, and writes them to "
            "metrics.jsonl"),
      works("dump_state", at(&Config::dump_state),
            "prints the resolved configuration and the model at the start"),
      no_effect("memory_breakdown", KeyType::boolean, "peak_bytes is in metrics.jsonl"),
      one_monitor("tensorboard", &Config::tensorboard, "writes events to output_path as well"),
      one_monitor("csv_monitor", &Config::csv_monitor, "one file per curve, DeepSpeed's layout"),
      wandb_rows(),
      warning("comet", "Comet cannot be reached; see metrics.jsonl"),
  };
}

// DeepSpeed's name for an extent of the mesh; settle.h looks at it beside zinc.mesh.
Setting mesh_extent(int comm::Mesh::*extent) {
  Setting setting = at(&Config::mesh, extent);
  setting.set = [extent](Config& config, const files::json::Value& value) {
    if (value.as_int64() > 1) config.mesh.*extent = static_cast<int>(value.as_int64());
  };
  return setting;
}

Rows tensor_parallel_rows() {
  return read_loosely(block(
      "tensor_parallel", "layers in slices; see zinc.mesh",
      {works("autotp_size", mesh_extent(&comm::Mesh::tensor), between(0, 1024), "ranks",
             "the same as zinc.mesh.tensor; 0 or 1: off"),
       no_effect("tp_grain_size", KeyType::integer, "slices are as equal as they can be"),
       no_effect("preset_model", KeyType::text, "slices follow from the model's own layers"),
       no_effect("partition_config", KeyType::block,
                 "slices follow from the model's own layers, and other ones cannot be given")}));
}

Setting checkpoint_interval() {
  Setting setting = in_recompute(&RecomputeConfig::every_blocks);
  setting.set = [](Config& config, const files::json::Value& value) {
    if (value.as_int64() > 0) config.engine.recompute.every_blocks = value.as_int64();
  };
  return setting;
}

Rows pipeline_rows() {
  return block(
      "pipeline", "layers dealt out to ranks; see zinc.mesh",
      {works("stages", mesh_extent(&comm::Mesh::pipe), between(1, 1024), "ranks",
             "the same as zinc.mesh.pipe")
           .when_auto("as zinc.mesh.pipe says",
                      [](const Config& config, const Overrides&) -> files::json::Value {
                        return config.mesh.pipe;
                      }),
       works("partition",
             one_of({parallel::PipelinePartition::best, parallel::PipelinePartition::uniform,
                     parallel::PipelinePartition::parameters},
                    &Config::engine, &EngineConfig::pipeline, &parallel::PipelineConfig::partition),
             "of what each rank gets about as much: modelled time, stages, or trained weights; see "
             "zinc.pipeline_pattern"),
       works("activation_checkpoint_interval", checkpoint_interval(), at_least(0), "blocks",
             "the same as zinc.recompute_every_blocks; 0: as that says"),
       no_effect("seed_layers", KeyType::boolean, "first values follow from names alone"),
       no_effect("pipe_partitioned", KeyType::boolean, "tensor ranks send whole activations"),
       no_effect("grad_partitioned", KeyType::boolean, "tensor ranks send whole gradients"),
       no_effect("use_reentrant", KeyType::boolean, "there is one way to recompute")});
}

Rows deepspeed_checkpoint_rows() {
  return block(
      "checkpoint", "zinc.checkpoint has zinc's own keys",
      {no_effect("tag_validation", KeyType::text, "all ranks always write one checkpoint"),
       refused("load_universal",
               "a universal checkpoint is read by `zinc checkpoint convert --from deepspeed`, and "
               "the run goes on from what that writes (--resume); zinc's own fit every world size"),
       refused("use_node_local_storage",
               "each rank reads the folder that all ranks share: give --out such a folder"),
       no_effect("parallel_write", KeyType::block, "ranks always write their own ranges"),
       no_effect("writer", KeyType::block, "see zinc.checkpoint")});
}

Rows absent_rows() {
  return {
      works("sequence_parallel_size", mesh_extent(&comm::Mesh::sequence), between(0, 1024), "ranks",
            "the same as zinc.mesh.sequence; 0 or 1: off"),
      no_effect("flops_profiler", KeyType::block, "model FLOP/s are always shown"),
      no_effect("comms_logger", KeyType::block, "see the trace"),
      no_effect("log_level", KeyType::text, "the library does not log"),
      no_effect("vocabulary_size", KeyType::integer, "the model's config says it"),
      no_effect("dataloader_drop_last", KeyType::boolean, "batches are always full"),
      no_effect("disable_allgather", KeyType::boolean, "weights are always all-gathered"),
      no_effect("graph_harvesting", KeyType::boolean, "see zinc.cuda_graph"),
      no_effect("use_data_before_expert_parallelism", KeyType::boolean,
                "mixture of experts is not implemented"),
      deepspeed_checkpoint_rows(),
      refused("elasticity", "elastic training is not implemented"),
      pipeline_rows(),
      tensor_parallel_rows(),
      refused("compression_training", "compression is not implemented"),
      refused("data_efficiency", "data efficiency is not implemented"),
      refused("curriculum_learning", "curriculum learning is not implemented"),
      refused("progressive_layer_drop", "progressive layer drop is not implemented"),
      refused("eigenvalue", "it belongs to compression, which is not implemented"),
      refused("autotuning", "autotuning is not implemented"),
      refused("hybrid_engine", "there is no inference engine"),
      refused("expert_parallel", "mixture of experts is not implemented"),
      no_effect("compile", KeyType::block,
                "there is nothing to compile, and the passes of DeepCompile (\"deepcompile\") do "
                "not run: what is gathered, moved and reduced, and when, is zinc's step program"),
      refused("nebula", "Nebula is a service of Azure"),
  };
}

}  // namespace zinc::train
