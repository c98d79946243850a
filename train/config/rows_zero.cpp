// Rows of ZeRO: sharding, transfers and tiers.
#include <cmath>

#include "train/config/row.h"

namespace zinc::train {
namespace {

using zero::EngineConfig;
using zero::OffloadConfig;
using zero::OffloadDevice;
using zero::ZeroConfig;

template <class T>
Setting in_zero(T ZeroConfig::*member) {
  return at(&Config::engine, &EngineConfig::zero, member);
}

template <class T>
Setting in_states(T OffloadConfig::*member) {
  return at(&Config::engine, &EngineConfig::zero, &ZeroConfig::offload_optimizer, member);
}
bool states_leave(const Config& config) {
  return config.engine.zero.offload_optimizer.device != OffloadDevice::none;
}

template <class T>
Setting in_weights(T OffloadConfig::*member) {
  return at(&Config::engine, &EngineConfig::zero, &ZeroConfig::offload_param, member);
}
bool weights_leave(const Config& config) {
  return config.engine.zero.offload_param.device != OffloadDevice::none;
}

Setting device_of(OffloadConfig ZeroConfig::*member) {
  return one_of({OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme}, &Config::engine,
                &EngineConfig::zero, member, &OffloadConfig::device);
}

// The old form of a block `offload`: true or false.
Row old_offload(std::string_view name, std::string_view block, OffloadConfig ZeroConfig::*offload) {
  Row row = deprecated(name, block);
  row.setting = {.type = KeyType::boolean,
                 .set = [offload](Config& config, const files::json::Value& value) {
                   if (value.as_bool()) {
                     (config.engine.zero.*offload).device = OffloadDevice::cpu;
                   }
                 }};
  return row;
}

// Hugging Face's rule for sizes that are "auto".
auto by_hidden_size(double factor, double power) {
  return [factor, power](const Config&, const Overrides& flags) -> files::json::Value {
    if (!flags.hidden_size) return nullptr;
    const double hidden = std::pow(static_cast<double>(*flags.hidden_size), power);
    return static_cast<int64_t>(factor * hidden);
  };
}

Rows sharding_rows() {
  const std::string_view persistent =
      "the layout is the same on every stage: each small parameter is persistent";
  const std::string_view saved =
      "each rank writes its part of the whole 16-bit weights on every stage";
  return {
      works("stage", in_zero(&ZeroConfig::stage), between(0, 3),
            "shards nothing, optimizer states, gradients too, weights too"),
      works("reduce_bucket_size", in_zero(&ZeroConfig::reduce_bucket_size), at_least(1), "elements",
            "gradients that are reduced together")
          .when_auto("hidden_size^2", by_hidden_size(1.0, 2)),
      works("allgather_bucket_size", in_zero(&ZeroConfig::allgather_bucket_size), at_least(1),
            "elements", "weights that are gathered together after an update"),
      works("overlap_comm", in_zero(&ZeroConfig::overlap_comm), "collectives go on beside compute")
          .by_default_as("stage 3: true, else false")
          .shown_as([](const Config& config, int64_t) -> files::json::Value {
            return config.engine.overlap_comm();
          }),
      works("sub_group_size", in_zero(&ZeroConfig::sub_group_size), at_least(0), "elements",
            "most of an offloaded update that is in a buffer at once; 0: 1e9, or 2^23 with "
            "\"offload_step\": \"device\""),
      works("stage3_prefetch_bucket_size", in_zero(&ZeroConfig::prefetch_bucket_size), at_least(0),
            "elements", "weights that are gathered ahead; stage 3")
          .when_auto("0.9 hidden_size^2", by_hidden_size(0.9, 2)),
      deprecated("prefetch_bucket_size", "stage3_prefetch_bucket_size"),
      works("stage3_param_persistence_threshold", in_zero(&ZeroConfig::param_persistence_threshold),
            at_least(0), "elements", "a smaller parameter stays whole; stage 3")
          .when_auto("10 hidden_size", by_hidden_size(10.0, 1)),
      deprecated("param_persistence_threshold", "stage3_param_persistence_threshold"),
      no_effect("stage3_model_persistence_threshold", KeyType::integer, persistent),
      no_effect("model_persistence_threshold", KeyType::integer, persistent),
      works("stage3_max_live_parameters", in_zero(&ZeroConfig::max_live_parameters), at_least(0),
            "elements", "most weights that are gathered at once; with 0 those in use; stage 3")
          .fills_memory("as many as the device's memory allows"),
      deprecated("max_live_parameters", "stage3_max_live_parameters"),
      works("stage3_max_reuse_distance", in_zero(&ZeroConfig::max_reuse_distance), at_least(0),
            "elements", "weights stay gathered where their next use is nearer; stage 3"),
      deprecated("max_reuse_distance", "stage3_max_reuse_distance"),
      no_effect("stage3_gather_16bit_weights_on_model_save", KeyType::boolean, saved),
      no_effect("gather_16bit_weights_on_model_save", KeyType::boolean, saved),
      no_effect("stage3_gather_fp16_weights_on_model_save", KeyType::boolean, saved),
      works("ignore_unused_parameters", in_zero(&ZeroConfig::ignore_unused_parameters),
            "false: a trained parameter without a gradient is an error"),
  };
}

Rows design_rows() {
  const auto row = [](std::string_view name, std::string_view note) {
    return no_effect(str("", name), KeyType::boolean, note);
  };
  const std::string_view block_unit = "the unit is a transformer block";
  const std::string_view all_gathered = "parameters are all-gathered";
  const std::string_view by_program = "gathers follow the step program";
  return {
      row("contiguous_gradients", "gradients always lie in one buffer"),
      row("round_robin_gradients", "all ranks hold equal shards"),
      row("reduce_scatter", "gradients are always reduce-scattered"),
      row("allgather_partitions", "weights are always all-gathered"),
      row("use_multi_rank_bucket_allreduce", "gradients are always reduce-scattered"),
      no_effect("stage3_module_granularity_threshold", KeyType::integer, block_unit),
      no_effect("module_granularity_threshold", KeyType::integer, block_unit),
      row("stage3_use_all_reduce_for_fetch_params", all_gathered),
      row("use_all_reduce_for_fetch_params", all_gathered),
      row("stage3_allgather_sequential", by_program),
      row("allgather_sequential", by_program),
      row("load_from_fp32_weights", "a checkpoint has what is updated, in f32"),
      row("elastic_checkpoint", "checkpoints fit every world size"),
      row("memory_efficient_linear", "it always is"),
      row("enable_sanity_checks", "the step program is always checked"),
      row("log_trace_cache_warnings", "leaving the step program is an error"),
      row("override_module_apply", "there are no Python modules"),
      no_effect("leaf_module", KeyType::block, block_unit),
      row("pipeline_loading_checkpoint", "ranks read their own ranges"),
      row("grad_hooks", "gradients are reduced as they come"),
      refused("legacy_stage1", "DeepSpeed removed it"),
  };
}

Rows offload_rows() {
  using O = OffloadConfig;
  const Rows states{
      works("nvme_path", in_states(&O::nvme_path), "a directory; nvme needs it"),
      works("pipeline_read", in_states(&O::pipeline_read),
            "reads the next tile while one is updated"),
      works("pipeline_write", in_states(&O::pipeline_write),
            "writes a tile while the next is updated"),
      works("ratio", in_states(&O::ratio), between(0, 1),
            "with \"device\": \"cpu\": the share of the states that leaves the device")
          .fills_memory("the least that the device's memory allows"),
  };
  const Rows weights{
      works("nvme_path", in_weights(&O::nvme_path), "a directory; nvme needs it"),
      works("buffer_count", in_weights(&O::buffer_count), between(1, kMostBuffers), "buffers",
            "nvme: in host memory, filled ahead of use"),
      works("buffer_size", in_weights(&O::buffer_size), at_least(1), "elements",
            "nvme: largest size of a buffer"),
      works("max_in_cpu", in_weights(&O::max_in_cpu), at_least(0), "elements",
            "nvme: weights that stay in host memory, per rank"),
  };
  const Row pinned = no_effect("pin_memory", KeyType::boolean,
                               "host memory is always pinned on a GPU; CPU ranks need no pinning");
  return {
      block("offload_optimizer", "where optimizer states live; stages 1 to 3",
            {works("device", device_of(&ZeroConfig::offload_optimizer), "none: the device"),
             only("", states_leave, states), pinned,
             no_effect("buffer_count", KeyType::integer, "derived from the pipeline's depth"),
             no_effect("super_offload", KeyType::boolean,
                       "SuperOffload, which updates on the host ahead of the check for overflow "
                       "and takes the update back, is not implemented: the host updates behind it"),
             no_effect("cpuadam_cores_perc", KeyType::number,
                       "it is SuperOffload's; an update takes the threads of zinc.num_threads"),
             no_effect("fast_init", KeyType::boolean, "first values always go tile by tile")}),
      block("offload_param", "where weights live; stage 3",
            {works("device", device_of(&ZeroConfig::offload_param), "none: the device"),
             only("", weights_leave, weights), pinned}),
      old_offload("cpu_offload", "offload_optimizer", &ZeroConfig::offload_optimizer),
      old_offload("cpu_offload_param", "offload_param", &ZeroConfig::offload_param),
      no_effect("cpu_offload_use_pin_memory", KeyType::boolean, "deprecated in DeepSpeed"),
  };
}

Rows relative_rows() {
  const std::string_view zeropp = "ZeRO++ is not implemented";
  const std::string_view mics =
      "MiCS is not implemented; weights are sharded over all data ranks: leave it out, or take "
      "stage 2 where the network between machines is slow";
  return {
      refused("zenflow", "ZenFlow is not implemented"),
      refused("zero_hpz_partition_size",
              "ZeRO++ is not implemented: there is no second copy of the weights within a machine, "
              "and the gathers of backward go between machines; leave it out, or 1")
          .off_at_most(1),
      refused("zero_quantized_weights", zeropp),
      refused("zero_quantized_nontrainable_weights", zeropp),
      refused("zero_quantized_gradients", zeropp),
      refused("zeropp_loco_param", zeropp),
      refused("mics_shard_size", mics),
      refused("mics_hierarchical_params_gather", mics),
      no_effect("save_muon_momentum_buffer_in_memory", KeyType::boolean,
                "Muon's momentum is where the optimizer's states are"),
  };
}

}  // namespace

Rows zero_rows() {
  return {
      read_loosely(block("zero_optimization", "true or false, the old form, is stage 1 or 0",
                         {sharding_rows(), design_rows(), offload_rows(), relative_rows()})),
      works("zero_allow_untested_optimizer", in_zero(&ZeroConfig::allow_untested_optimizer),
            "allows a client's own optimizer on stages 1 to 3"),
      works("zero_force_ds_cpu_optimizer", in_zero(&ZeroConfig::force_cpu_optimizer),
            "a client's own optimizer with offload_optimizer is refused"),
  };
}

}  // namespace zinc::train
