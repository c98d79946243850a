#include "train/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "optim/factory.h"
#include "train/config/key.h"

namespace zinc::train {
namespace config_test {

using testing::HasSubstr;

Config parse(const std::string& text, int64_t world = 1, const Overrides& flags = {}) {
  return parse_config(text, "ds.json", world, flags);
}

std::string problems_of(const std::string& text, int64_t world = 1, const Overrides& flags = {}) {
  try {
    parse(text, world, flags);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no problem";
}

constexpr const char* kBatch = R"("train_micro_batch_size_per_gpu": 4)";

std::string with(const std::string& members) { return str("{", kBatch, ", ", members, "}"); }

TEST(Config, BatchTriangleInfersTheThirdFromTwo) {
  struct Row {
    const char* text;
    int64_t micro;
    int64_t accumulation;
  };
  for (const Row& row : {
           Row{R"({"train_batch_size": 24})", 12, 1},
           Row{R"({"train_micro_batch_size_per_gpu": 3})", 3, 1},
           Row{R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 3})", 3, 4},
           Row{R"({"train_batch_size": 24, "gradient_accumulation_steps": 6})", 2, 6},
           Row{R"({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2})", 3, 2},
           Row{R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 3,
                   "gradient_accumulation_steps": 2})",
               3, 2},
       }) {
    const Config config = parse(row.text, 2);
    EXPECT_EQ(config.engine.batch.micro_batch, row.micro) << row.text;
    EXPECT_EQ(config.engine.batch.accumulation, row.accumulation) << row.text;
  }
}

TEST(Config, ContradictoryBatchesNameAllNumbers) {
  EXPECT_EQ(problems_of(R"({"train_batch_size": 25, "train_micro_batch_size_per_gpu": 3})", 2),
            "train_batch_size 25 is not train_micro_batch_size_per_gpu x "
            "gradient_accumulation_steps x ranks = 3 x 4 x 2");
  EXPECT_EQ(problems_of("{}"),
            "the batch size is open: give train_micro_batch_size_per_gpu (or --batch) or "
            "train_batch_size");
}

TEST(Config, ValuesThatCannotBeUsedTogetherOrAtAll_AreProblems) {
  struct Row {
    const char* members;
    const char* says;
  };
  for (const Row& row : {
           Row{R"("optimizer": {"type": "SGD", "params": {"dampening": 0.5}})",
               "SGD: dampening must lie in [0, 1) and needs a momentum, got 0.5"},
           Row{R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}})",
               "scheduler.params.warmup_num_steps must be at least 0, not -1"},
           Row{R"("scheduler": {"type": "StepLR", "params": {"step_size": 9007199254740993}})",
               "scheduler.params.step_size must be at most 1000000000000000, not 9007199254740993"},
           Row{R"("aio": {"block_size": 9223372036854771712})",
               "aio.block_size must be between 4096 and 1073741824, not 9223372036854771712"},
           Row{R"("zero_optimization": {"sub_group_size": 9223372036854775807})",
               "zero_optimization.sub_group_size must be at most 1000000000000000, not "
               "9223372036854775807"},
           Row{R"("zero_optimization": {"stage": 3, "offload_param": {"buffer_count": 65537}})",
               "zero_optimization.offload_param.buffer_count must be between 1 and 65536, not "
               "65537"},
           Row{R"("fp16": {"enabled": true, "loss_scale": "often"})",
               "fp16.loss_scale must be a number of at least 0, not \"often\""},
           Row{R"("zinc": {"seed": -1})", "zinc.seed must be an integer between 0 and 2^64 - 1"},
           Row{R"("fp16": {"enabled": true, "loss_scale": 1e300})",
               "loss scale: a static scale must lie in (0, 2^126], got 1e+300"},
           Row{R"("zinc": {"comm_deadline_seconds": 1e300})", "zinc.comm_deadline_seconds must"},
           Row{R"("zinc": {"device_memory_limit": "."})",
               "zinc.device_memory_limit must be a size as in"},
           Row{R"("zinc": {"device_memory_limit": "99999999999GiB"})",
               "zinc.device_memory_limit must be a size as in"},
           Row{R"("gradient_accumulation_steps": 1000001)",
               "gradient_accumulation_steps must be between 1 and 1000000, not 1000001"},
       }) {
    EXPECT_NE(problems_of(with(row.members)).find(row.says), std::string::npos)
        << problems_of(with(row.members));
  }
  EXPECT_EQ(problems_of("{}", 1, {.micro_batch = 0}),
            "--batch must be between 1 and 1000000, not 0");
  EXPECT_EQ(problems_of("{}", 1, {.micro_batch = 1, .accumulation = -1}),
            "--grad-accum must be between 1 and 1000000, not -1");
  EXPECT_EQ(problems_of("{}", 1, {.micro_batch = 1, .lr = -1.0}),
            "AdamW: lr must not be negative, got -1");
}

TEST(Config, FlagsResolveAutoAndWinOverWhatIsLeftOut) {
  const Config config = parse(
      R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
          "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
          "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
                        "warmup_num_steps": "auto", "warmup_max_lr": "auto"}},
          "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}})",
      2,
      {.micro_batch = 8,
       .accumulation = 2,
       .lr = 0.25,
       .weight_decay = 0.5,
       .warmup_steps = 7,
       .total_steps = 100,
       .dtype = DType::bf16,
       .seed = 9});
  EXPECT_EQ(config.engine.batch.micro_batch, 8);
  EXPECT_EQ(config.engine.batch.accumulation, 2);
  EXPECT_EQ(config.engine.optimizer.hyper.lr, 0.25);
  EXPECT_EQ(config.engine.optimizer.hyper.weight_decay, 0.5);
  EXPECT_EQ(config.engine.schedule.warmup_steps, 7);
  EXPECT_EQ(config.engine.schedule.total_steps, 100);
  EXPECT_EQ(config.engine.schedule.warmup_max_lr, 0.25);
  EXPECT_EQ(config.engine.precision.dtype, DType::bf16);
  EXPECT_EQ(config.seed, 9u);
}

TEST(Config, AFlagThatContradictsAFixedValueNamesBoth) {
  EXPECT_EQ(
      problems_of(with(R"("optimizer": {"type": "Adam", "params": {"lr": 0.1}})"), 1, {.lr = 0.2}),
      "--lr 0.2 contradicts optimizer.params.lr 0.1 of the file; change one of them, or set "
      "the key to \"auto\"");
  EXPECT_EQ(problems_of(with(R"("bf16": {"enabled": true})"), 1, {.dtype = DType::f32}),
            "--dtype f32 contradicts bf16.enabled of the file; change one of them, or set it to "
            "\"auto\"");
  EXPECT_EQ(
      problems_of(with(R"("optimizer": {"type": "Adam", "params": {"lr": 0.1}})"), 1, {.lr = 0.1}),
      "no problem");
}

// The blocks that DeepSpeed reads through pydantic, which takes these for the values they spell.
TEST(Config, ValuesInQuotes_AreTakenWhereDeepSpeedTakesThem) {
  const Config config = parse(with(
      R"("zero_optimization": {"stage": "2", "reduce_bucket_size": "5e8", "overlap_comm": "False",
                               "contiguous_gradients": "true"},
         "bf16": {"enabled": "true"}, "fp16": {"enabled": 0, "loss_scale_window": "100"})"));
  EXPECT_EQ(config.engine.zero.stage, 2);
  EXPECT_EQ(config.engine.zero.reduce_bucket_size, 500'000'000);
  EXPECT_FALSE(config.engine.overlap_comm());
  EXPECT_EQ(config.engine.precision.dtype, DType::bf16);
  EXPECT_NE(problems_of(with(R"("zero_optimization": {"stage": "two"})")), "no problem");
  EXPECT_NE(problems_of(with(R"("zero_optimization": {"stage": "4"})")), "no problem");
  EXPECT_NE(problems_of(with(R"("zero_optimization": {"overlap_comm": 2})")), "no problem");
  EXPECT_NE(problems_of(with(R"("optimizer": {"type": "Adam", "params": {"lr": "1"}})")),
            "no problem");
}

TEST(Config, NumberOfCheckpoints_MayBeFalse_AndNoStepIsPrintedWithInfinity) {
  const Config config = parse(with(R"("activation_checkpointing": {"number_checkpoints": false},
              "steps_per_print": Infinity, "wandb": {"enabled": false, "project": "Infinity"})"));
  EXPECT_EQ(config.engine.recompute.num_checkpoints, 0);
  EXPECT_EQ(config.steps_per_print, kLargestCount);
  EXPECT_EQ(config.wandb.project, "Infinity");
  EXPECT_NE(problems_of(with(R"("activation_checkpointing": {"number_checkpoints": true})")),
            "no problem");
}

std::string notices_of(const std::string& text) {
  std::string all;
  for (const std::string& notice : parse(text).notices) all += notice + '\n';
  return all;
}

// DeepSpeed takes these names beside those with stage3_.
TEST(Config, NamesWithoutStage3_AreTheirKeys) {
  const std::string said = notices_of(
      with(R"("zero_optimization": {"stage": 3, "gather_16bit_weights_on_model_save": true,
              "model_persistence_threshold": 1, "module_granularity_threshold": 5,
              "use_all_reduce_for_fetch_params": true, "allgather_sequential": true,
              "offload_optimizer": {"device": "cpu", "super_offload": true,
                                    "cpuadam_cores_perc": 0.9}},
              "tensor_parallel": {"autotp_size": 1, "preset_model": "llama",
                                  "partition_config": {"layer_specs": []}})"));
  EXPECT_NE(said.find("zero_optimization.gather_16bit_weights_on_model_save has no effect: each "
                      "rank writes its part"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("offload_optimizer.super_offload has no effect: SuperOffload"),
            std::string::npos)
      << said;
}

TEST(Config, BlocksOfOtherTools_AreLeftAside_AndTyposAreNot) {
  EXPECT_EQ(notices_of(with(R"("accelerate_settings": {"num_machines": 1})")),
            "accelerate_settings is no block of zinc or DeepSpeed, as of another tool: left "
            "aside\n");
  EXPECT_NE(problems_of(with(R"("zero_optimisation": {"stage": 1})")), "no problem");
  EXPECT_NE(problems_of(with(R"("accelerate_settings": 1)")), "no problem");
}

// Keys that would change what a user gets, and do nothing here.
TEST(Config, WhatIsMissedWithoutAWord_IsRefused) {
  const auto said = [](const char* text) { return problems_of(with(text)); };
  for (const char* off :
       {R"("zero_optimization": {"zero_hpz_partition_size": 1, "mics_shard_size": -1})",
        R"("checkpoint": {"load_universal": false, "use_node_local_storage": false})"}) {
    EXPECT_EQ(said(off), "no problem") << off;
  }
  for (const char* on : {R"("zero_optimization": {"zero_hpz_partition_size": 8})",
                         R"("zero_optimization": {"mics_shard_size": 8})",
                         R"("checkpoint": {"load_universal": true})",
                         R"("checkpoint": {"use_node_local_storage": true})"}) {
    EXPECT_NE(said(on), "no problem") << on;
  }
  const std::string told =
      notices_of(with(R"("aio": {"use_gds": true}, "compile": {"deepcompile": true})"));
  EXPECT_NE(told.find("the direct way between disk and GPU (GPUDirect Storage) is not taken"),
            std::string::npos);
  EXPECT_NE(told.find("the passes of DeepCompile (\"deepcompile\") do not run"), std::string::npos);
}

TEST(Config, AllProblemsArriveTogetherWithPlaces) {
  EXPECT_EQ(problems_of("{\n"
                        "  \"train_batch_size\": 4,\n"
                        "  \"gradient_cliping\": 1.0,\n"
                        "  \"zero_optimization\": {\"stage\": 4, \"overlap_com\": true}\n"
                        "}"),
            "3 problems\n"
            "ds.json:4:34: zero_optimization.stage must be between 0 and 3, not 4\n"
            "    4 |   \"zero_optimization\": {\"stage\": 4, \"overlap_com\": true}\n"
            "      |                                  ^\n"
            "ds.json:4:37: unknown key zero_optimization.overlap_com; did you mean "
            "\"overlap_comm\"?\n"
            "    4 |   \"zero_optimization\": {\"stage\": 4, \"overlap_com\": true}\n"
            "      |                                     ^~~~~~~~~~~~~\n"
            "ds.json:3:3: unknown key gradient_cliping; did you mean \"gradient_clipping\"?\n"
            "    3 |   \"gradient_cliping\": 1.0,\n"
            "      |   ^~~~~~~~~~~~~~~~~~");
}

TEST(Config, WhatPublicFilesHoldLoads) {
  const Config config = parse(
      R"(// a file as people write them
      {
        "train_batch_size": 1e1,  # an integer
        "fp16": {"enabled": false, "loss_scale": 0, "initial_scale_power": 32, "opt_level": "O2"},
        "bf16": {"enabled": true},
        "zero_optimization": {
          "stage": 3, "sub_group_size": 0, "stage3_max_live_parameters": 0,
          "stage3_max_reuse_distance": 0, "contiguous_gradients": true,
          "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
          "stage3_param_persistence_threshold": "auto",
          "stage3_gather_16bit_weights_on_model_save": true,
          "offload_optimizer": {"device": "none"},
        },
        "gradient_clipping": "auto", "steps_per_print": 2000, "wall_clock_breakdown": false,
        "aio": {"block_size": 1048576, "thread_count": 1}, /* unused */
      })",
      1, {.hidden_size = 1024});
  EXPECT_EQ(config.engine.batch.micro_batch, 10);
  EXPECT_EQ(config.engine.zero.stage, 3);
  EXPECT_EQ(config.engine.zero.max_live_parameters, 0);
  EXPECT_EQ(config.engine.zero.reduce_bucket_size, 1024 * 1024);
  EXPECT_EQ(config.engine.zero.param_persistence_threshold, 10240);
  EXPECT_EQ(config.engine.gradient.clipping, 1.0);
  EXPECT_EQ(config.engine.reduce_schedule(), zero::ReduceSchedule::micro_step);
  EXPECT_TRUE(config.engine.overlap_comm());
  EXPECT_FALSE(config.notices.empty());
}

TEST(Config, TheVerticalScheduleReducesAfterEveryMicroBatch) {
  const Config config =
      parse(with(R"("gradient_accumulation_steps": 4, "zinc": {"schedule": "vertical"})"));
  EXPECT_EQ(config.engine.pass_order, zero::PassOrder::vertical);
  EXPECT_EQ(config.engine.batches_together(), 4);
  EXPECT_EQ(config.engine.reduce_schedule(), zero::ReduceSchedule::micro_step);
  EXPECT_EQ(parse(with(R"("steps_per_print": 1)")).engine.pass_order, zero::PassOrder::horizontal);
  EXPECT_THROW(parse(with(R"("zinc": {"schedule": "vertical", "reduce_schedule": "boundary"})")),
               ConfigError);
}

TEST(Config, MomentsIn16BitsAreForAdam) {
  const auto moments = [](const std::string& optimizer) {
    return parse(with(str("\"zinc\": {\"moments\": \"bf16\"}, \"optimizer\": {\"type\": \"",
                          optimizer, "\"}")))
        .engine.optimizer.moments;
  };
  EXPECT_EQ(moments("AdamW"), optim::Moments::bf16);
  EXPECT_EQ(moments("Adam"), optim::Moments::bf16);
  EXPECT_THROW(moments("SGD"), ConfigError);
}

TEST(Config, ProductsIn8BitsAreOfBf16AndOfOneMesh) {
  const auto fp8 = [](const std::string& rest) {
    return parse(with(str("\"zinc\": {\"fp8\": true", rest))).engine.fp8;
  };
  EXPECT_TRUE(fp8(R"(}, "bf16": {"enabled": true})"));
  EXPECT_THROW(fp8("}"), ConfigError);
  EXPECT_THROW(fp8(R"(}, "fp16": {"enabled": true})"), ConfigError);
  EXPECT_THROW(fp8(R"(, "determinism": "world"}, "bf16": {"enabled": true})"), ConfigError);
}

TEST(Config, StatesThatTravelAreThoseInHostMemory) {
  const auto step = [](const std::string& device, const std::string& value) {
    return parse(with(str("\"zinc\": {\"offload_step\": \"", value,
                          "\"}, \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": "
                          "{\"device\": \"",
                          device, "\", \"nvme_path\": \"/tmp\"}}")))
        .engine.offload_step;
  };
  EXPECT_EQ(step("cpu", "device"), zero::OffloadStep::device);
  EXPECT_EQ(step("cpu", "host"), zero::OffloadStep::host);
  EXPECT_EQ(step("nvme", "auto"), zero::OffloadStep::automatic);
  EXPECT_EQ(parse(with(R"("steps_per_print": 1)")).engine.offload_step,
            zero::OffloadStep::automatic);
  EXPECT_EQ(step("nvme", "host"), zero::OffloadStep::host);
  EXPECT_THROW(step("nvme", "device"), ConfigError);
  EXPECT_THROW(step("none", "device"), ConfigError);
}

TEST(Config, AdamMeansAdamWUnlessItSaysOtherwise) {
  const auto kind = [](const std::string& optimizer) {
    return parse(with(str("\"optimizer\": ", optimizer))).engine.optimizer.kind;
  };
  EXPECT_EQ(kind(R"({"type": "Adam"})"), optim::OptimizerKind::adamw);
  EXPECT_EQ(kind(R"({"type": "Adam", "params": {"adam_w_mode": false}})"),
            optim::OptimizerKind::adam);
  EXPECT_EQ(kind(R"({"type": "SGD"})"), optim::OptimizerKind::sgd);
  for (const char* name : {"ZeroOneAdam", "onebitlamb", "MuAdam", "MuAdamW", "MuSGD"}) {
    const std::string problem = problems_of(with(str(R"("optimizer": {"type": ")", name, "\"}")));
    EXPECT_NE(problem.find(str("\"", name, "\" is not implemented")), std::string::npos);
    EXPECT_NE(problem.find(std::string_view(name) == "MuSGD"  ? "take SGD"
                           : std::string_view(name)[0] == 'M' ? "take AdamW"
                                                              : "take OneBitAdam"),
              std::string::npos)
        << problem;
  }
}

// The defaults of DeepSpeed's Lion and of torch.optim.Adagrad, whatever the order of the keys.
TEST(Config, LionAndAdagrad_HaveDefaultsOfTheirOwn) {
  const auto optimizer = [](const std::string& block) {
    return parse(with(str("\"optimizer\": ", block))).engine.optimizer;
  };
  EXPECT_EQ(optimizer(R"({"type": "lion"})").kind, optim::OptimizerKind::lion);
  EXPECT_EQ(optimizer(R"({"type": "Lion"})").hyper.beta2, 0.99);
  EXPECT_EQ(optimizer(R"({"params": {"betas": [0.95, 0.98]}, "type": "Lion"})").hyper.beta2, 0.98);
  const optim::OptimizerConfig adagrad =
      optimizer(R"({"params": {"lr_decay": 0.5, "lr": 0.3}, "type": "Adagrad"})");
  EXPECT_EQ(adagrad.kind, optim::OptimizerKind::adagrad);
  EXPECT_EQ(adagrad.lr_decay, 0.5);
  EXPECT_EQ(adagrad.hyper.lr, 0.3);
  EXPECT_EQ(adagrad.hyper.eps, 1e-10);
  EXPECT_EQ(optimizer(R"({"type": "Adagrad"})").hyper.lr, 1e-2);
  EXPECT_TRUE(optimizer(R"({"params": {"amsgrad": true}})").amsgrad);
}

TEST(Config, Muon_HasRatesOfItsTwoParts) {
  const auto optimizer = [](const std::string& block, const Overrides& flags = {}) {
    return parse_config(with(str("\"optimizer\": ", block)), "ds.json", 1, flags).engine.optimizer;
  };
  const optim::OptimizerConfig plain = optimizer(R"({"type": "muon"})");
  EXPECT_EQ(plain.kind, optim::OptimizerKind::muon);
  EXPECT_EQ(plain.matrix_hyper.lr, 0.02);
  EXPECT_EQ(plain.matrix_hyper.momentum, 0.95);
  EXPECT_TRUE(plain.muon.nesterov);
  EXPECT_EQ(plain.muon.steps, 5);
  EXPECT_EQ(plain.muon.products, DType::bf16);
  EXPECT_EQ(plain.hyper.lr, 3e-4);
  EXPECT_EQ(plain.hyper.beta2, 0.95);
  EXPECT_EQ(plain.hyper.eps, 1e-10);
  const optim::OptimizerConfig one_rate =
      optimizer(R"({"type": "Muon", "params": {"lr": 0.5, "weight_decay": 0.1, "momentum": 0.9,
                    "nesterov": false, "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"}})");
  EXPECT_EQ(one_rate.hyper.lr, 0.5);
  EXPECT_EQ(one_rate.matrix_hyper.lr, 0.5);
  EXPECT_EQ(one_rate.hyper.weight_decay, 0.1);
  EXPECT_EQ(one_rate.matrix_hyper.weight_decay, 0.1);
  EXPECT_EQ(one_rate.matrix_hyper.momentum, 0.9);
  EXPECT_FALSE(one_rate.muon.nesterov);
  EXPECT_EQ(one_rate.muon.steps, 3);
  EXPECT_EQ(one_rate.muon.scale, optim::MuonScale::match_rms);
  const optim::OptimizerConfig two_rates =
      optimizer(R"({"params": {"adam_lr": 0.1, "lr": 0.5, "muon_lr": 0.2}, "type": "Muon"})");
  EXPECT_EQ(two_rates.hyper.lr, 0.1);
  EXPECT_EQ(two_rates.matrix_hyper.lr, 0.2);
  const optim::OptimizerConfig by_flag =
      optimizer(R"({"type": "Muon", "params": {"muon_lr": 0.2}})", {.lr = 0.7});
  EXPECT_EQ(by_flag.hyper.lr, 0.7);
  EXPECT_EQ(by_flag.matrix_hyper.lr, 0.2);
  // Keys of Muon do not count with another rule.
  EXPECT_EQ(optimizer(R"({"type": "AdamW", "params": {"muon_lr": 0.2, "momentum": 0.5}})")
                .matrix_hyper.lr,
            0.02);
  const optim::OptimizerConfig own =
      parse(with(R"("optimizer": {"type": "Muon"}, "zinc": {"moments": "bf16", "muon":
                    {"products": "f32", "exclude": ["*router*", "h.0.*"]}})"))
          .engine.optimizer;
  EXPECT_EQ(own.muon.products, DType::f32);
  EXPECT_EQ(own.muon.exclude, (std::vector<std::string>{"*router*", "h.0.*"}));
  const auto rule = optim::make_optimizer(own);
  EXPECT_EQ(rule->name(), "Muon");
  EXPECT_EQ(rule->state_dtype(), DType::bf16);
  EXPECT_EQ(rule->whole_rule()->direction_dtype(DType::f32), DType::f32);
}

TEST(Config, Muon_NamesWhatIsWrong) {
  const auto problem = [](const std::string& params, const std::string& rest = "") {
    return problems_of(
        with(str(R"("optimizer": {"type": "Muon", "params": {)", params, "}}", rest)));
  };
  EXPECT_THAT(problem(R"("muon_lrs": 1)"), HasSubstr("did you mean \"muon_lr\"?"));
  EXPECT_THAT(problem(R"("momentum": 1.0)"), HasSubstr("Muon: momentum must lie in [0, 1), got 1"));
  EXPECT_THAT(problem(R"("adjust_lr_fn": "spectral")"),
              HasSubstr("must be \"original\" or \"match_rms_adamw\""));
  EXPECT_THAT(problem(R"("ns_method": "fast")"), HasSubstr("must be \"standard\" or \"gram\""));
  EXPECT_THAT(problem(R"("per_head_muon": true)"), HasSubstr("takes a matrix of all heads as one"));
  EXPECT_THAT(problem("", R"(, "zinc": {"muon": {"exclude": ["a", 1]}})"),
              HasSubstr("zinc.muon.exclude must be a list of strings"));
  EXPECT_THAT(problem("", R"(, "zinc": {"muon": {"products": "f16"}})"),
              HasSubstr("zinc.muon.products must be \"bf16\" or \"f32\""));
  const auto notices = [](const std::string& method) {
    return parse(with(str(R"("optimizer": {"type": "Muon", "params": {"per_head_muon": false,
                          "ns_method": ")",
                          method, "\"}}")))
        .notices;
  };
  EXPECT_TRUE(notices("standard").empty());
  ASSERT_EQ(notices("gram").size(), 1U);
  EXPECT_THAT(notices("gram")[0], HasSubstr("zinc computes it in the standard form"));
}

TEST(Config, Lamb_HasDeepSpeedsNamesAndKeys) {
  const auto optimizer = [](const std::string& text) {
    return parse(with(str("\"optimizer\": ", text))).engine.optimizer;
  };
  for (const char* const name : {"Lamb", "LAMB", "FusedLamb"}) {
    EXPECT_EQ(optimizer(str(R"({"type": ")", name, "\"}")).kind, optim::OptimizerKind::lamb);
  }
  const optim::OptimizerConfig plain = optimizer(R"({"type": "Lamb"})");
  EXPECT_EQ(plain.lamb.least_ratio, 0.01);
  EXPECT_EQ(plain.lamb.most_ratio, 10.0);
  EXPECT_TRUE(plain.bias_correction);
  const optim::OptimizerConfig given = optimizer(
      R"({"type": "Lamb", "params": {"lr": 0.5, "betas": [0.8, 0.9], "eps": 1e-6, "max_coeff": 0.3,
          "min_coeff": 0.1, "bias_correction": false, "eps_inside_sqrt": false}})");
  EXPECT_EQ(given.hyper.lr, 0.5);
  EXPECT_EQ(given.hyper.beta2, 0.9);
  EXPECT_EQ(given.hyper.eps, 1e-6);
  EXPECT_EQ(given.lamb.least_ratio, 0.1);
  EXPECT_EQ(given.lamb.most_ratio, 0.3);
  EXPECT_FALSE(given.bias_correction);
  const auto problem = [](const std::string& params) {
    return problems_of(with(str(R"("optimizer": {"type": "Lamb", "params": {)", params, "}}")));
  };
  EXPECT_THAT(problem(R"("min_coeff": 20.0)"),
              HasSubstr("two bounds above 0 (min_coeff, max_coeff), not between 20 and 10"));
  EXPECT_THAT(problem(R"("eps_inside_sqrt": true)"), HasSubstr("eps is added to the root"));
  EXPECT_THAT(problem(R"("eps": 0)"), HasSubstr("LAMB: eps must be above 0, got 0"));
  EXPECT_THAT(problem(R"("max_coef": 1)"), HasSubstr("did you mean \"max_coeff\"?"));
}

TEST(Config, Adafactor_HasARateOfItsOwnUnlessOneIsGiven) {
  const auto config = [](const std::string& params, const Overrides& flags = {}) {
    return parse(with(str(R"("optimizer": {"type": "adafactor", "params": {)", params, "}}")), 1,
                 flags)
        .engine.optimizer;
  };
  const optim::OptimizerConfig plain = config("");
  EXPECT_EQ(plain.kind, optim::OptimizerKind::adafactor);
  EXPECT_TRUE(plain.adafactor.relative_step);
  EXPECT_EQ(plain.hyper.lr, 1.0);
  EXPECT_EQ(plain.adafactor.least_square, 1e-30);
  EXPECT_EQ(plain.adafactor.least_scale, 1e-3);
  EXPECT_EQ(plain.adafactor.clip_threshold, 1.0);
  EXPECT_EQ(plain.adafactor.decay_rate, -0.8);
  EXPECT_TRUE(plain.adafactor.scale_parameter);
  EXPECT_FALSE(plain.adafactor.warmup_init);
  for (const optim::OptimizerConfig& given : {config(R"("lr": 0.25)"), config("", {.lr = 0.25})}) {
    EXPECT_FALSE(given.adafactor.relative_step);
    EXPECT_EQ(given.hyper.lr, 0.25);
  }
  EXPECT_TRUE(config(R"("lr": 0.25, "relative_step": true)").adafactor.relative_step);
  EXPECT_FALSE(config(R"("relative_step": false)").adafactor.relative_step);
  const auto problem = [](const std::string& params, const std::string& rest = "") {
    return problems_of(
        with(str(R"("optimizer": {"type": "Adafactor", "params": {)", params, "}}", rest)));
  };
  const std::string schedule = R"(, "scheduler": {"type": "WarmupLR"})";
  EXPECT_THAT(problem("", schedule), HasSubstr("follows from the step alone; give lr"));
  EXPECT_EQ(config(R"("lr": 0.25)").hyper.lr, 0.25);
  EXPECT_THAT(problem(R"("beta1": 0.9)"), HasSubstr("Adafactor has no first moment here"));
  EXPECT_THAT(problem(R"("decay_rate": 0.8)"), HasSubstr("decay_rate must be below 0, got 0.8"));
  EXPECT_THAT(problem(R"("clip_threshold": 0)"), HasSubstr("clip_threshold must be"));
  EXPECT_THAT(problem("", R"(, "zinc": {"moments": "bf16"})"),
              HasSubstr("it keeps no moments of elements"));
}

TEST(Config, Adam8bit_HasTheNamesOfBothLibraries) {
  for (const char* name : {"Adam8bit", "adam8bit", "AdamW8bit", "ADAMW8BIT"}) {
    const std::string block = str(R"("optimizer": {"type": ")", name,
                                  R"(", "params": {"betas": [0.9, 0.95], "eps": 1e-6}})");
    const optim::OptimizerConfig config = parse(with(block)).engine.optimizer;
    EXPECT_EQ(config.kind, optim::OptimizerKind::adam8bit) << name;
    EXPECT_EQ(config.hyper.beta2, 0.95);
    EXPECT_EQ(config.hyper.eps, 1e-6);
  }
}

TEST(Config, ScheduleFreeAdamW_HasTheDefaultsOfItsPackage) {
  const auto optimizer = [](const std::string& block) {
    return parse(with(R"("optimizer": )" + block)).engine.optimizer;
  };
  const optim::OptimizerConfig plain = optimizer(R"({"type": "schedulefreeadamw"})");
  EXPECT_EQ(plain.kind, optim::OptimizerKind::schedule_free);
  EXPECT_EQ(plain.hyper.lr, 0.0025);
  EXPECT_EQ(plain.hyper.beta1, 0.9);
  EXPECT_EQ(plain.hyper.beta2, 0.999);
  EXPECT_EQ(plain.hyper.eps, 1e-8);
  EXPECT_EQ(plain.hyper.weight_decay, 0.0);
  EXPECT_EQ(plain.schedule_free.warmup_steps, 0);
  EXPECT_EQ(plain.schedule_free.r, 0.0);
  EXPECT_EQ(plain.schedule_free.weight_lr_power, 2.0);
  const optim::OptimizerConfig given = optimizer(
      R"({"params": {"lr": 0.1, "r": 0.5, "weight_lr_power": 1, "warmup_steps": 7},
          "type": "ScheduleFreeAdamW"})");
  EXPECT_EQ(given.hyper.lr, 0.1);
  EXPECT_EQ(given.schedule_free.r, 0.5);
  EXPECT_EQ(given.schedule_free.weight_lr_power, 1.0);
  EXPECT_EQ(given.schedule_free.warmup_steps, 7);
}

// A file of DeepSpeed's tutorials, with states in host memory.
TEST(Config, OneBitAdam_LoadsAsInTheTutorials) {
  const zero::EngineConfig engine = parse(with(R"(
      "optimizer": {"type": "OneBitAdam",
                    "params": {"lr": 4e-4, "freeze_step": 23000, "cuda_aware": false,
                               "comm_backend_name": "nccl"}},
      "scheduler": {"type": "WarmupLR",
                    "params": {"warmup_min_lr": 0, "warmup_max_lr": 4e-4, "warmup_num_steps": 1000}},
      "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})"))
                                        .engine;
  EXPECT_EQ(engine.optimizer.kind, optim::OptimizerKind::one_bit_adam);
  EXPECT_EQ(engine.optimizer.one_bit.freeze_step, 23000);
  EXPECT_FALSE(engine.optimizer.one_bit.parameter_scales);
  EXPECT_EQ(engine.reduce_schedule(), zero::ReduceSchedule::boundary);
  EXPECT_TRUE(zero::value_problems(engine).empty());
  EXPECT_NE(
      problems_of(with(R"("optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 0}})"))
          .find("freeze_step"),
      std::string::npos);
}

TEST(Config, RefusedKeysSayWhyAndLoadAtTheirOffValue) {
  EXPECT_NE(problems_of(with(R"("amp": {"enabled": true})")).find("amp: Apex does not exist"),
            std::string::npos);
  EXPECT_EQ(problems_of(with(R"("amp": {"enabled": false}, "pipeline": {}, "elasticity": null)")),
            "no problem");
  EXPECT_NE(problems_of(with(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})"))
                .find("fp16 and bf16 are both enabled"),
            std::string::npos);
  EXPECT_NE(problems_of(with(R"("prescale_gradients": true)")).find("native"), std::string::npos);
}

// A value for a key without effect.
std::string on_value(KeyType type) {
  switch (type) {
    case KeyType::integer:
      return "7";
    case KeyType::number:
      return "0.5";
    case KeyType::text:
      return "\"x\"";
    case KeyType::block:
      return "{\"x\": 1}";
    default:
      return "true";
  }
}

// A file that holds one key, whatever block it is in.
std::string holding(std::string_view path, const std::string& value) {
  std::string text = str("\"", path.substr(path.rfind('.') + 1), "\": ", value);
  for (std::string_view rest = path; rest.find('.') != std::string_view::npos;) {
    rest = rest.substr(0, rest.rfind('.'));
    text = str("\"", rest.substr(rest.rfind('.') + 1), "\": {", text, "}");
  }
  return with(text);
}

TEST(Config, KeysWithoutEffect_AreOfTheirTypeAndSaySo) {
  int checked = 0;
  for (const Key& key : config_keys()) {
    if (key.key_class != KeyClass::no_effect) continue;
    ASSERT_NE(key.setting.type, KeyType::any) << key.path;
    const std::string value = key.setting.type == KeyType::choice
                                  ? str('"', key.setting.choices.back(), '"')
                                  : on_value(key.setting.type);
    const Config config = parse(holding(key.path, value));
    ASSERT_EQ(config.notices.size(), 1u) << key.path;
    EXPECT_EQ(config.notices[0], str(key.path, " has no effect: ", key.note));
    const std::string wrong = key.setting.type == KeyType::text ? "true" : "\"AUTO\"";
    EXPECT_NE(problems_of(holding(key.path, wrong)).find(str(key.path, " must be ")),
              std::string::npos)
        << key.path;
    for (const char* open : {"null", "\"auto\""}) {
      EXPECT_TRUE(parse(holding(key.path, open)).notices.empty()) << key.path;
    }
    ++checked;
  }
  EXPECT_GE(checked, 50);
}

TEST(Config, ManagedGradientAccumulation_IsTrueOnly) {
  EXPECT_EQ(problems_of(with(R"("managed_gradient_accumulation": true)")), "no problem");
  EXPECT_NE(problems_of(with(R"("managed_gradient_accumulation": false)"))
                .find("managed_gradient_accumulation: only true"),
            std::string::npos);
}

TEST(Config, AParameterOfAnotherSchedule_IsUnknown) {
  EXPECT_NE(problems_of(with(R"("scheduler": {"type": "WarmupLR", "params": {"gamma": 0.5}})"))
                .find("unknown key scheduler.params.gamma: it is for StepLR"),
            std::string::npos);
}

TEST(Config, KeysOfRecomputationThatIsOff_AreTold) {
  for (const char* members : {R"("activation_checkpointing": {"cpu_checkpointing": true})",
                              R"("zinc": {"activation_offload": {"device": "cpu"}})"}) {
    const Config config = parse(with(members));
    ASSERT_EQ(config.notices.size(), 1u) << members;
    EXPECT_NE(config.notices[0].find(" has no effect without "), std::string::npos);
  }
  EXPECT_EQ(parse(with(R"("zinc": {"verify_swap": false})")).notices.size(), 1u);
}

TEST(Config, ADeprecatedBlockLosesWhereBothStand) {
  for (const char* both : {R"("bf16": {"enabled": true}, "bfloat16": {"enabled": false})",
                           R"("bfloat16": {"enabled": false}, "bf16": {"enabled": true})"}) {
    const Config config = parse(with(both));
    EXPECT_EQ(config.engine.precision.dtype, DType::bf16) << both;
    ASSERT_EQ(config.notices.size(), 2u);
    EXPECT_EQ(config.notices[1], "bfloat16 is ignored, because bf16 is there");
  }
  EXPECT_EQ(parse(with(R"("bfloat16": {"enabled": true})")).engine.precision.dtype, DType::bf16);
  EXPECT_EQ(parse(with(R"("zero_optimization": {"stage3_max_live_parameters": 5,
                          "max_live_parameters": 7})"))
                .engine.zero.max_live_parameters,
            5);
  EXPECT_EQ(
      parse(with(R"("aio": {"thread_count": 3, "intra_op_parallelism": 5})")).engine.aio.threads,
      5);
}

TEST(Config, ALossScaleMayStandInQuotes) {
  const auto scale = [](const std::string& value) {
    return parse(with(str(R"("fp16": {"enabled": true, "loss_scale": )", value, "}")))
        .engine.precision.loss_scale;
  };
  EXPECT_TRUE(scale("\"0\"").dynamic);
  EXPECT_FALSE(scale("\"128\"").dynamic);
  EXPECT_EQ(scale("\"128\"").static_scale, 128.0);
  EXPECT_EQ(scale("\"1e3\"").static_scale, 1000.0);
}

// transformers fills in its warmup_steps, which is 0 by default.
TEST(Config, WarmUpThatIsAuto_IsTheFlagsOrNone) {
  for (const char* type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}) {
    const auto steps = [&](const std::string& params, const Overrides& flags) {
      Overrides all = flags;
      all.total_steps = 12;
      return parse(with(str(R"("scheduler": {"type": ")", type, R"(", "params": {)", params,
                            type == std::string("WarmupLR") ? "" : R"(, "total_num_steps": "auto")",
                            "}}")),
                   1, all)
          .engine.schedule.warmup_steps;
    };
    const std::string open = R"("warmup_num_steps": "auto")";
    EXPECT_EQ(steps(open, {}), 0) << type;
    EXPECT_EQ(steps(open, {.warmup_steps = 0}), 0) << type;
    EXPECT_EQ(steps(open, {.warmup_steps = 5}), 5) << type;
    EXPECT_EQ(steps(R"("warmup_num_steps": 0)", {}), 0) << type;
    EXPECT_EQ(steps(R"("warmup_type": "log")", {}), std::nullopt) << type;  // DeepSpeed's 1000
  }
}

TEST(Config, FlagsThatTheSchedulerIgnores_AreProblems) {
  const auto says = [](const std::string& type, const std::string& params, const Overrides& flags) {
    return problems_of(
        with(str(R"("scheduler": {"type": ")", type, R"(", "params": {)", params, "}}")), 1, flags);
  };
  for (const char* type : {"StepLR", "OneCycle", "LRRangeTest"}) {
    EXPECT_EQ(says(type, "", {.warmup_steps = 5}),
              str("--warmup-steps 5 has no effect with scheduler.type \"", type,
                  "\": it has no warm-up; leave the flag out"));
  }
  EXPECT_EQ(says("OneCycle", "", {.lr = 0.5}),
            "--lr 0.5 has no effect with scheduler.type \"OneCycle\": set "
            "scheduler.params.cycle_min_lr and cycle_max_lr");
  EXPECT_EQ(says("LRRangeTest", "", {.lr = 0.5}),
            "--lr 0.5 has no effect with scheduler.type \"LRRangeTest\": set "
            "scheduler.params.lr_range_test_min_lr");
  EXPECT_EQ(says("WarmupLR", R"("warmup_max_lr": 0.25)", {.lr = 0.5}),
            "--lr 0.5 has no effect with scheduler.type \"WarmupLR\": "
            "scheduler.params.warmup_max_lr is 0.25; set it to \"auto\"");
  EXPECT_EQ(says("WarmupDecayLR", R"("total_num_steps": 9)", {.lr = 0.5}),
            "--lr 0.5 has no effect with scheduler.type \"WarmupDecayLR\": "
            "scheduler.params.warmup_max_lr is 0.001; set it to \"auto\"");
  const std::string none = "no problem";
  EXPECT_EQ(says("WarmupLR", "", {.lr = 0.5, .warmup_steps = 5}), none);
  EXPECT_EQ(says("WarmupLR", R"("warmup_max_lr": "auto")", {.lr = 0.5}), none);
  EXPECT_EQ(says("WarmupCosineLR", R"("total_num_steps": 9)", {.lr = 0.5, .warmup_steps = 5}),
            none);
  EXPECT_EQ(says("constant", "", {.lr = 0.5, .warmup_steps = 5}), none);
}

TEST(Config, EveryKeyOfTheTableIsOfItsClass) {
  for (const Key& key : config_keys()) {
    if (key.path.find('.') != std::string_view::npos) continue;
    const std::string on =
        key.key_class == KeyClass::refused ? "{\"x\": 1}" : on_value(key.setting.type);
    if (key.key_class == KeyClass::refused) {
      EXPECT_NE(problems_of(with(str("\"", key.path, "\": ", on))).find(key.path),
                std::string::npos)
          << key.path;
    }
    if (key.key_class == KeyClass::no_effect || key.key_class == KeyClass::warning) {
      const Config config = parse(with(str("\"", key.path, "\": ", on)));
      ASSERT_EQ(config.notices.size(), 1u) << key.path;
      EXPECT_NE(config.notices[0].find(key.path), std::string::npos);
    }
  }
}

TEST(Config, ResolvedFilesLoadToTheSameValues) {
  for (const std::string& members : {
           std::string(R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 2})"),
           std::string(R"("fp16": {"enabled": true, "loss_scale": 128})"),
           std::string(R"("optimizer": {"type": "SGD", "params": {"momentum": 0.9}},
                          "scheduler": {"type": "OneCycle", "params": {"cycle_max_lr": 0.1}})"),
           std::string(R"("scheduler": {"type": "WarmupCosineLR",
                          "params": {"total_num_steps": 50, "warmup_num_steps": 5}},
                          "zinc": {"device_memory_limit": "2GiB", "overlap_update": false,
                          "loss_reduction": "micro_batch"}, "data_types": {"grad_accum_dtype": "fp32"})"),
       }) {
    const std::string first = resolved_json(parse(with(members), 2), 2);
    EXPECT_EQ(resolved_json(parse(first, 2), 2), first) << members;
  }
}

TEST(Config, UpdatesOverlapPassesAsTheFileSays) {
  EXPECT_FALSE(parse(with(R"("zinc": {})"), 2).engine.overlap_update.has_value());
  for (const bool value : {false, true}) {
    const std::string members =
        str(R"("zinc": {"overlap_update": )", value ? "true" : "false", "}");
    EXPECT_EQ(parse(with(members), 2).engine.overlap_update, value);
  }
}

TEST(Config, TheDocumentIsTheTable) {
  std::ifstream file("docs/config.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(config_keys_markdown()), std::string::npos)
      << "docs/config.md must end with what `zinc config keys` prints: "
         "sed -i '/^| key |/,$d' docs/config.md && zinc config keys >> docs/config.md";
}

TEST(Config, DeepBracketsAreACleanError) {
  EXPECT_NE(problems_of(std::string(200'000, '[')).find("ds.json:1:"), std::string::npos);
}

}  // namespace config_test
}  // namespace zinc::train
