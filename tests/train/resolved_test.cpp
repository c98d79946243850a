// The resolved configuration: it loads to the same values for every key, and it shows every key
// that changes a value, because the ranks compare it to know that they train alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "train/config/config.h"

namespace zinc::train {
namespace resolved_test {

using testing::HasSubstr;

constexpr int64_t kResolvedWorld = 2;

std::string resolved_of(const std::string& text, const Overrides& flags = {}) {
  return resolved_json(parse_config(text, "ds.json", kResolvedWorld, flags), kResolvedWorld);
}

// Members of a file without the key, and with a value that is not its default.
struct KeyRow {
  std::string without;
  std::string with;
};

std::string file_of(const std::string& members) {
  const bool has_batch = members.find("train_micro_batch_size_per_gpu") != std::string::npos;
  return concat("{", has_batch ? "" : "\"train_micro_batch_size_per_gpu\": 4, ", members, "}");
}

void expect_seen_and_kept(const std::string& key, const KeyRow& row) {
  const std::string without = resolved_of(file_of(row.without));
  const std::string with = resolved_of(file_of(row.with));
  EXPECT_NE(without, with) << key << " does not change the resolved configuration";
  EXPECT_EQ(resolved_of(with), with) << key << " is lost when the resolved configuration is loaded";
}

std::string in(const std::string& block, const std::string& member) {
  return concat("\"", block, "\": {", member, "}");
}

// A key of one block, its value, and what else the block holds.
KeyRow of_block(const std::string& block, const std::string& member, const std::string& more = "") {
  return {in(block, more), in(block, more.empty() ? member : concat(more, ", ", member))};
}

KeyRow of_params(const std::string& block, const std::string& type, const std::string& member,
                 const std::string& more = "") {
  const auto with = [&](const std::string& params) {
    return concat("\"", block, "\": {\"type\": \"", type, "\", \"params\": {", params, "}}");
  };
  return {with(more), with(more.empty() ? member : concat(more, ", ", member))};
}

KeyRow of_offload(const std::string& key, const std::string& device, const std::string& member) {
  const std::string stage = R"("stage": 3, )";
  const auto with = [&](const std::string& members) {
    return in("zero_optimization", concat(stage, "\"", key, "\": {", members, "}"));
  };
  return {with(device), with(concat(device, ", ", member))};
}

std::map<std::string, KeyRow> rows_of_keys() {
  const auto zero = [](const std::string& member) {
    return of_block("zero_optimization", member, R"("stage": 3)");
  };
  const auto own = [](const std::string& member, const std::string& more = "") {
    return of_block("zinc", member, more);
  };
  const std::string fp16 = R"("enabled": true)";
  const std::string nvme = R"("device": "nvme", "nvme_path": "/d")";
  const std::string native = R"("zinc": {"reduce_algorithm": "native"})";
  const std::string recompute = R"("recompute_every_blocks": 1)";
  const auto inputs = [&](const std::string& without, const std::string& with) {
    const auto block = [&](const std::string& members) {
      return in("zinc", concat(recompute, ", \"activation_offload\": {", members, "}"));
    };
    return KeyRow{block(without), block(with)};
  };
  return {
      {"train_batch_size", {"", R"("train_batch_size": 16)"}},
      {"train_micro_batch_size_per_gpu", {"", R"("train_micro_batch_size_per_gpu": 5)"}},
      {"gradient_accumulation_steps", {"", R"("gradient_accumulation_steps": 3)"}},
      {"optimizer.type", of_block("optimizer", R"("type": "SGD")")},
      {"optimizer.params.lr", of_params("optimizer", "AdamW", R"("lr": 0.1)")},
      {"optimizer.params.betas", of_params("optimizer", "AdamW", R"("betas": [0.5, 0.6])")},
      {"optimizer.params.eps", of_params("optimizer", "AdamW", R"("eps": 1e-5)")},
      {"optimizer.params.weight_decay", of_params("optimizer", "AdamW", R"("weight_decay": 0.1)")},
      {"optimizer.params.momentum", of_params("optimizer", "SGD", R"("momentum": 0.1)")},
      {"optimizer.params.dampening",
       of_params("optimizer", "SGD", R"("dampening": 0.1)", R"("momentum": 0.1)")},
      {"optimizer.params.nesterov",
       of_params("optimizer", "SGD", R"("nesterov": true)", R"("momentum": 0.1)")},
      {"optimizer.params.bias_correction",
       of_params("optimizer", "AdamW", R"("bias_correction": false)")},
      {"optimizer.params.adam_w_mode", of_params("optimizer", "Adam", R"("adam_w_mode": false)")},
      {"scheduler.type", of_block("scheduler", R"("type": "StepLR")")},
      {"scheduler.params", of_params("scheduler", "constant", R"("warmup_steps": 7)")},
      {"gradient_clipping", {"", R"("gradient_clipping": 0.5)"}},
      {"fp16.enabled", of_block("fp16", fp16)},
      {"fp16.loss_scale", of_block("fp16", R"("loss_scale": 64)", fp16)},
      {"fp16.initial_scale_power", of_block("fp16", R"("initial_scale_power": 9)", fp16)},
      {"fp16.loss_scale_window", of_block("fp16", R"("loss_scale_window": 9)", fp16)},
      {"fp16.hysteresis", of_block("fp16", R"("hysteresis": 9)", fp16)},
      {"fp16.consecutive_hysteresis", of_block("fp16", R"("consecutive_hysteresis": true)", fp16)},
      {"fp16.min_loss_scale", of_block("fp16", R"("min_loss_scale": 9)", fp16)},
      {"bf16.enabled", of_block("bf16", fp16)},
      {"bf16.check_grad_overflow", of_block("bf16", R"("check_grad_overflow": false)", fp16)},
      {"bfloat16", {"", R"("bfloat16": {"enabled": true})"}},
      {"data_types.grad_accum_dtype", of_block("data_types", R"("grad_accum_dtype": "bf16")")},
      {"communication_data_type", {"", R"("communication_data_type": "bf16")"}},
      {"prescale_gradients", {native, concat(native, R"(, "prescale_gradients": true)")}},
      {"gradient_predivide_factor",
       {native, concat(native, R"(, "gradient_predivide_factor": 2)")}},
      {"zero_optimization.stage", of_block("zero_optimization", R"("stage": 2)")},
      {"zero_optimization.reduce_bucket_size", zero(R"("reduce_bucket_size": 7)")},
      {"zero_optimization.allgather_bucket_size", zero(R"("allgather_bucket_size": 7)")},
      {"zero_optimization.overlap_comm", zero(R"("overlap_comm": false)")},
      {"zero_optimization.sub_group_size", zero(R"("sub_group_size": 7)")},
      {"zero_optimization.stage3_prefetch_bucket_size",
       zero(R"("stage3_prefetch_bucket_size": 7)")},
      {"zero_optimization.prefetch_bucket_size", zero(R"("prefetch_bucket_size": 7)")},
      {"zero_optimization.stage3_param_persistence_threshold",
       zero(R"("stage3_param_persistence_threshold": 7)")},
      {"zero_optimization.param_persistence_threshold",
       zero(R"("param_persistence_threshold": 7)")},
      {"zero_optimization.stage3_max_live_parameters", zero(R"("stage3_max_live_parameters": 7)")},
      {"zero_optimization.max_live_parameters", zero(R"("max_live_parameters": 7)")},
      {"zero_optimization.stage3_max_reuse_distance", zero(R"("stage3_max_reuse_distance": 7)")},
      {"zero_optimization.max_reuse_distance", zero(R"("max_reuse_distance": 7)")},
      {"zero_optimization.ignore_unused_parameters", zero(R"("ignore_unused_parameters": false)")},
      {"zero_optimization.offload_optimizer.device",
       of_offload("offload_optimizer", R"("nvme_path": "/d")", R"("device": "cpu")")},
      {"zero_optimization.offload_optimizer.nvme_path",
       {in("zero_optimization",
           R"("stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/a"})"),
        in("zero_optimization",
           R"("stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/b"})")}},
      {"zero_optimization.offload_optimizer.pipeline_read",
       of_offload("offload_optimizer", nvme, R"("pipeline_read": true)")},
      {"zero_optimization.offload_optimizer.pipeline_write",
       of_offload("offload_optimizer", nvme, R"("pipeline_write": true)")},
      {"zero_optimization.offload_optimizer.ratio",
       of_offload("offload_optimizer", R"("device": "cpu")", R"("ratio": 0.5)")},
      {"zero_optimization.offload_param.device",
       of_offload("offload_param", R"("nvme_path": "/d")", R"("device": "cpu")")},
      {"zero_optimization.offload_param.nvme_path",
       {in("zero_optimization",
           R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a"})"),
        in("zero_optimization",
           R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/b"})")}},
      {"zero_optimization.offload_param.buffer_count",
       of_offload("offload_param", nvme, R"("buffer_count": 7)")},
      {"zero_optimization.offload_param.buffer_size",
       of_offload("offload_param", nvme, R"("buffer_size": 7)")},
      {"zero_optimization.offload_param.max_in_cpu",
       of_offload("offload_param", nvme, R"("max_in_cpu": 7)")},
      {"zero_optimization.cpu_offload", zero(R"("cpu_offload": true)")},
      {"zero_optimization.cpu_offload_param", zero(R"("cpu_offload_param": true)")},
      {"zero_allow_untested_optimizer", {"", R"("zero_allow_untested_optimizer": true)"}},
      {"zero_force_ds_cpu_optimizer", {"", R"("zero_force_ds_cpu_optimizer": false)"}},
      {"activation_checkpointing.number_checkpoints",
       of_block("activation_checkpointing", R"("number_checkpoints": 2)")},
      {"activation_checkpointing.cpu_checkpointing",
       of_block("activation_checkpointing", R"("cpu_checkpointing": true)",
                R"("number_checkpoints": 2)")},
      {"activation_checkpointing.contiguous_memory_optimization",
       of_block("activation_checkpointing", R"("contiguous_memory_optimization": true)",
                R"("number_checkpoints": 2)")},
      {"aio.block_size", of_block("aio", R"("block_size": 4096)")},
      {"aio.queue_depth", of_block("aio", R"("queue_depth": 4)")},
      {"aio.intra_op_parallelism", of_block("aio", R"("intra_op_parallelism": 4)")},
      {"aio.thread_count", of_block("aio", R"("thread_count": 4)")},
      {"aio.num_threads", of_block("aio", R"("num_threads": 4)")},
      {"aio.single_submit", of_block("aio", R"("single_submit": true)")},
      {"aio.overlap_events", of_block("aio", R"("overlap_events": false)")},
      {"steps_per_print", {"", R"("steps_per_print": 5)"}},
      {"wall_clock_breakdown", {"", R"("wall_clock_breakdown": true)"}},
      {"dump_state", {"", R"("dump_state": true)"}},
      {"tensorboard.enabled", of_block("tensorboard", R"("enabled": true)")},
      {"tensorboard.output_path", of_block("tensorboard", R"("output_path": "x")")},
      {"tensorboard.job_name", of_block("tensorboard", R"("job_name": "x")")},
      {"csv_monitor.enabled", of_block("csv_monitor", R"("enabled": true)")},
      {"csv_monitor.output_path", of_block("csv_monitor", R"("output_path": "x")")},
      {"csv_monitor.job_name", of_block("csv_monitor", R"("job_name": "x")")},
      {"zinc.seed", own(R"("seed": 18446744073709551615)")},
      {"zinc.determinism", own(R"("determinism": "world")")},
      {"zinc.reduce_schedule", own(R"("reduce_schedule": "micro_step")")},
      {"zinc.schedule", own(R"("schedule": "vertical")")},
      {"zinc.offload_step",
       {R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}})",
        R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
           "zinc": {"offload_step": "device"})"}},
      {"zinc.gradient_offload",
       {in("zero_optimization", concat(R"("stage": 1, "offload_optimizer": {)", nvme, "}")),
        concat(in("zero_optimization", concat(R"("stage": 1, "offload_optimizer": {)", nvme, "}")),
               R"(, "zinc": {"gradient_offload": "nvme"})")}},
      {"zinc.reduce_algorithm", own(R"("reduce_algorithm": "native")")},
      {"zinc.loss_reduction", own(R"("loss_reduction": "micro_batch")")},
      {"zinc.recompute_every_blocks", own(recompute)},
      {"zinc.activation_offload.device",
       inputs(R"("nvme_path": "/d")", R"("nvme_path": "/d", "device": "nvme")")},
      {"zinc.activation_offload.nvme_path",
       inputs(R"("device": "nvme", "nvme_path": "/a")", R"("device": "nvme", "nvme_path": "/b")")},
      {"zinc.activation_offload.buffer_count", inputs(nvme, nvme + R"(, "buffer_count": 7)")},
      {"zinc.max_consecutive_skips", own(R"("max_consecutive_skips": 7)")},
      {"zinc.num_threads", own(R"("num_threads": 3)")},
      {"zinc.device_memory_limit", own(R"("device_memory_limit": "3GiB")")},
      {"zinc.cuda_graph", own(R"("cuda_graph": true)")},
      {"zinc.overlap_update", own(R"("overlap_update": false)")},
      {"zinc.verify_swap", own(R"("verify_swap": false)")},
      {"zinc.comm_deadline_seconds", own(R"("comm_deadline_seconds": 1.5)")},
      {"zinc.trace", own(R"("trace": "t.json")")},
  };
}

TEST(ResolvedKeys, EveryKeyThatWorks_IsSeenAndKept) {
  const std::map<std::string, KeyRow> rows = rows_of_keys();
  std::set<std::string> blocks;
  for (const KeyInfo& key : config_keys()) {
    const auto dot = key.path.rfind('.');
    if (dot != std::string_view::npos) blocks.emplace(key.path.substr(0, dot));
  }
  for (const KeyInfo& key : config_keys()) {
    const std::string path(key.path);
    if (key.key_class != KeyClass::works && key.key_class != KeyClass::deprecated) continue;
    // Only true is accepted, which is what the engine does.
    if (blocks.contains(path) || path == "managed_gradient_accumulation") continue;
    const auto row = rows.find(path);
    if (row == rows.end()) {
      ADD_FAILURE() << path << " has no row in this test";
      continue;
    }
    expect_seen_and_kept(path, row->second);
  }
}

TEST(ResolvedKeys, EveryParameterOfASchedule_IsSeenAndKept) {
  const std::string total = R"("total_steps": 50)";
  const std::string all = R"("total_num_steps": 50)";
  struct Row {
    const char* type;
    std::string member;
    std::string more;
  };
  for (const Row& row : {
           Row{"constant", R"("warmup_steps": 5)", ""},
           Row{"linear", R"("warmup_steps": 5)", total},
           Row{"linear", R"("min_lr": 1e-6)", total},
           Row{"linear", total, ""},
           Row{"cosine", R"("warmup_steps": 5)", total},
           Row{"cosine", R"("min_lr": 1e-6)", total},
           Row{"StepLR", R"("step_size": 5)", ""},
           Row{"StepLR", R"("gamma": 0.5)", ""},
           Row{"WarmupLR", R"("warmup_num_steps": 5)", ""},
           Row{"WarmupLR", R"("warmup_type": "linear")", ""},
           Row{"WarmupLR", R"("warmup_min_lr": 1e-6)", ""},
           Row{"WarmupLR", R"("warmup_max_lr": 1e-6)", ""},
           Row{"WarmupLR", R"("warmup_max_lr": "auto")", ""},
           Row{"WarmupDecayLR", R"("warmup_num_steps": 5)", all},
           Row{"WarmupDecayLR", R"("warmup_max_lr": 1e-6)", all},
           Row{"WarmupDecayLR", all, ""},
           Row{"WarmupCosineLR", R"("warmup_num_steps": 5)", all},
           Row{"WarmupCosineLR", R"("warmup_type": "linear")", all},
           Row{"WarmupCosineLR", R"("warmup_min_ratio": 0.5)", all},
           Row{"WarmupCosineLR", R"("cos_min_ratio": 0.5)", all},
           Row{"OneCycle", R"("cycle_min_lr": 1e-6)", ""},
           Row{"OneCycle", R"("cycle_max_lr": 1e-2)", ""},
           Row{"OneCycle", R"("decay_lr_rate": 0.5)", ""},
           Row{"OneCycle", R"("cycle_first_step_size": 5)", ""},
           Row{"OneCycle", R"("cycle_second_step_size": 5)", ""},
           Row{"OneCycle", R"("cycle_first_stair_count": 5)", ""},
           Row{"OneCycle", R"("cycle_second_stair_count": 5)", ""},
           Row{"OneCycle", R"("decay_step_size": 5)", ""},
           Row{"OneCycle", R"("cycle_momentum": false)", ""},
           Row{"OneCycle", R"("cycle_min_mom": 0.5)", ""},
           Row{"OneCycle", R"("cycle_max_mom": 0.95)", ""},
           Row{"OneCycle", R"("decay_mom_rate": 0.5)", ""},
           Row{"LRRangeTest", R"("lr_range_test_min_lr": 1e-6)", ""},
           Row{"LRRangeTest", R"("lr_range_test_step_size": 5)", ""},
           Row{"LRRangeTest", R"("lr_range_test_step_rate": 5)", ""},
           Row{"LRRangeTest", R"("lr_range_test_staircase": true)", ""},
       }) {
    expect_seen_and_kept(concat(row.type, ' ', row.member),
                         of_params("scheduler", row.type, row.member, row.more));
  }
}

TEST(ResolvedKeys, EveryFlag_IsSeenAndKept) {
  const std::string open = file_of(R"("scheduler": {"type": "linear"})");
  const std::string without = resolved_of(open, {.total_steps = 50});
  for (const Overrides& flags : {
           Overrides{.accumulation = 2, .total_steps = 50},
           Overrides{.lr = 0.1, .total_steps = 50},
           Overrides{.weight_decay = 0.1, .total_steps = 50},
           Overrides{.warmup_steps = 7, .total_steps = 50},
           Overrides{.total_steps = 60},
           Overrides{.total_steps = 50, .dtype = DType::bf16},
           Overrides{.total_steps = 50, .seed = 9},
       }) {
    const std::string with = resolved_of(open, flags);
    EXPECT_NE(with, without);
    EXPECT_EQ(resolved_of(with), with);
  }
  const std::string constant = file_of(R"("steps_per_print": 1)");
  EXPECT_THAT(resolved_of(constant, {.warmup_steps = 7}), HasSubstr("\"warmup_steps\": 7"));
}

}  // namespace resolved_test
}  // namespace zinc::train
