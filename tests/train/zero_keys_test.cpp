// Every key of zero_optimization that works changes what it is for: read from JSON, seen in a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "plan/plan.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "train/config/key.h"
#include "zero/layout/shard_group.h"

namespace zinc::train {
namespace zero_keys_test {

constexpr int kWorld = 4;

hub::ModelConfigFile model() {
  nn::LlamaConfig config;
  config.vocab_size = 200;
  config.max_positions = 32;
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.num_layers = 5;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  return {.config = config};
}

// `zero`: members of zero_optimization; `top`: members beside it, with a comma at the end.
Config config_with(const std::string& zero, const std::string& top = "") {
  const std::string text = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, )" +
                           top + R"("zero_optimization": {)" + zero + "}}";
  return parse_config(text, "test.json", kWorld);
}

plan::Plan whole_plan(const Config& config, bool save) {
  return plan::make_plan(model(), config, {.world = kWorld, .seq = 16, .save = save});
}

plan::RankPlan plan(const std::string& zero, const std::string& top = "") {
  return whole_plan(config_with(zero, top), false).fullest;
}

int64_t peak(const plan::RankPlan& plan, Label label) {
  return plan.peaks.at(Tier::device, label).peak;
}
comm::PhantomTraffic traffic(const plan::RankPlan& plan, const char* name) {
  const auto found = plan.step.find(name);
  return found == plan.step.end() ? comm::PhantomTraffic{} : found->second;
}

const char* const kStage3 = R"("stage": 3, "stage3_param_persistence_threshold": 0)";
std::string stage_3(const std::string& more) { return kStage3 + (", " + more); }

TEST(ZeroKeys, Stage_ShardsStatesThenGradientsThenParameters) {
  const std::array<plan::RankPlan, 4> stage = {plan(R"("stage": 0)"), plan(R"("stage": 1)"),
                                               plan(R"("stage": 2)"),
                                               plan(stage_3(R"("stage3_max_live_parameters": 0)"))};
  EXPECT_EQ(peak(stage[0], Label::optimizer), kWorld * peak(stage[1], Label::optimizer));
  EXPECT_EQ(peak(stage[1], Label::optimizer), peak(stage[3], Label::optimizer));
  EXPECT_LT(peak(stage[2], Label::gradients), peak(stage[1], Label::gradients));
  EXPECT_LT(peak(stage[3], Label::parameters), peak(stage[2], Label::parameters));
}

TEST(ZeroKeys, ReduceBucketSize_CutsReductions) {
  const plan::RankPlan usual = plan(R"("stage": 2)");
  const plan::RankPlan small = plan(R"("stage": 2, "reduce_bucket_size": 9000)");
  EXPECT_GT(traffic(small, "reduce_scatter").calls, traffic(usual, "reduce_scatter").calls);
  EXPECT_EQ(traffic(small, "reduce_scatter").bytes_sent,
            traffic(usual, "reduce_scatter").bytes_sent);
}

TEST(ZeroKeys, AllgatherBucketSize_CutsGathers) {
  const plan::RankPlan usual = plan(R"("stage": 2)");
  const plan::RankPlan small = plan(R"("stage": 2, "allgather_bucket_size": 9000)");
  EXPECT_GT(traffic(small, "all_gather").calls, traffic(usual, "all_gather").calls);
}

TEST(ZeroKeys, OverlapComm_GathersAhead) {
  const plan::RankPlan without = plan(stage_3(R"("overlap_comm": false)"));
  const plan::RankPlan with = plan(stage_3(R"("overlap_comm": true)"));
  EXPECT_GT(peak(with, Label::parameters), peak(without, Label::parameters));
}

TEST(ZeroKeys, PrefetchBucketSize_BoundsWhatIsGatheredAhead) {
  const std::string off = R"("stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": )";
  const plan::RankPlan none = plan(stage_3(off + "0"));
  const plan::RankPlan one = plan(stage_3(off + "100000"));
  const plan::RankPlan all = plan(stage_3(off + "100000000"));
  EXPECT_LT(peak(none, Label::parameters), peak(one, Label::parameters));
  EXPECT_LT(peak(one, Label::parameters), peak(all, Label::parameters));
}

TEST(ZeroKeys, ParamPersistenceThreshold_KeepsSmallParametersWhole) {
  const std::string bounds = R"(, "stage3_max_reuse_distance": 0)";
  const plan::RankPlan none = plan(kStage3 + bounds);
  const plan::RankPlan all =
      plan(R"("stage": 3, "stage3_param_persistence_threshold": 100000000)" + bounds);
  // All weights are persistent: they are gathered once per step, after the update.
  EXPECT_LT(traffic(all, "all_gather").bytes_sent, traffic(none, "all_gather").bytes_sent);
}

TEST(ZeroKeys, MaxLiveParameters_BoundsWhatIsGathered_AndZeroLoads) {
  const plan::RankPlan bounded = plan(stage_3(R"("stage3_max_live_parameters": 0)"));
  const plan::RankPlan free = plan(stage_3(R"("stage3_max_live_parameters": 1e9)"));
  EXPECT_LT(peak(bounded, Label::parameters), peak(free, Label::parameters));
}

TEST(ZeroKeys, MaxReuseDistance_TradesMemoryForTraffic) {
  const std::string key = R"("stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": )";
  const plan::RankPlan near = plan(stage_3(key + "0"));
  const plan::RankPlan far = plan(stage_3(key + "1e9"));
  EXPECT_GT(traffic(near, "all_gather").bytes_sent, traffic(far, "all_gather").bytes_sent);
  EXPECT_LT(peak(near, Label::parameters), peak(far, Label::parameters));
}

TEST(ZeroKeys, CommunicationDataType_IsTheWire) {
  const plan::RankPlan narrow = plan(R"("stage": 2)");
  const plan::RankPlan wide = plan(R"("stage": 2)", R"("communication_data_type": "fp32", )");
  EXPECT_EQ(traffic(wide, "reduce_scatter").bytes_sent,
            2 * traffic(narrow, "reduce_scatter").bytes_sent);
}

TEST(ZeroKeys, GradAccumDtype_IsWhatIsKept) {
  const std::string several = R"("gradient_accumulation_steps": 2, )";
  const plan::RankPlan wide = plan(R"("stage": 1)", several);
  const plan::RankPlan narrow =
      plan(R"("stage": 1)", several + R"("data_types": {"grad_accum_dtype": "bf16"}, )");
  EXPECT_LT(peak(narrow, Label::gradients), peak(wide, Label::gradients));
}

TEST(ZeroKeys, SubGroupSize_BoundsTheBuffersOfAnUpdate) {
  const std::string offload =
      R"("stage": 2, "offload_optimizer": {"device": "cpu"}, "sub_group_size": )";
  const plan::RankPlan small = plan(offload + "4096");
  const plan::RankPlan large = plan(offload + "1e9");
  const auto staging = [](const plan::RankPlan& of) {
    return of.peaks.at(Tier::pinned_host, Label::staging).peak;
  };
  EXPECT_EQ(staging(small), 2 * 4096 * 2);  // two buffers in bf16
  EXPECT_GT(staging(large), staging(small));
}

TEST(ZeroKeys, Ratio_IsTheShareOfTheStatesInHostMemory) {
  const auto with = [](const std::string& device) {
    return plan(R"("stage": 2, "offload_optimizer": {"device": )" + device + "}");
  };
  const auto of_host = [](const plan::RankPlan& of, Label label) {
    return of.peaks.at(Tier::pinned_host, label).peak;
  };
  const plan::RankPlan none = with(R"("none")");
  const int64_t states = peak(none, Label::optimizer);
  for (const char* ratio : {"0", "0.25", "0.75", "1"}) {
    const plan::RankPlan split = with(str(R"("cpu", "ratio": )", ratio));
    const int64_t host = of_host(split, Label::optimizer);
    EXPECT_EQ(host + peak(split, Label::optimizer), states) << ratio;
    const double share = std::stod(ratio) * static_cast<double>(states);
    EXPECT_GE(static_cast<double>(host), share);
    EXPECT_LT(static_cast<double>(host), share + 12.0 * zero::kNormChunk);
    EXPECT_EQ(of_host(split, Label::gradients), host / 12 * 2) << ratio;  // in bf16
  }
  const plan::RankPlan nothing = with(R"("cpu", "ratio": 0)");
  EXPECT_EQ(nothing.device_peak(), none.device_peak());
  EXPECT_EQ(nothing.peaks.at(Tier::pinned_host).peak, none.peaks.at(Tier::pinned_host).peak);
}

TEST(ZeroKeys, NumberCheckpoints_IsHowManyInputsAreSaved) {
  const auto with = [](const std::string& top) {
    return plan::json_of(whole_plan(config_with(R"("stage": 2)", top), false));
  };
  const auto checkpoints = [&](const std::string& number) {
    return with(R"("activation_checkpointing": {"number_checkpoints": )" + number + "}, ");
  };
  const auto every = [&](const std::string& blocks) {
    return with(R"("zinc": {"recompute_every_blocks": )" + blocks + "}, ");
  };
  // Five blocks.
  EXPECT_EQ(checkpoints("null"), every("0"));
  EXPECT_EQ(checkpoints("1"), every("5"));
  EXPECT_EQ(checkpoints("2"), every("3"));
  EXPECT_EQ(checkpoints("4"), every("2"));
  EXPECT_EQ(checkpoints("5"), every("1"));
  EXPECT_EQ(checkpoints("99"), every("1"));
  const std::array<std::string, 4> all{every("0"), every("1"), every("2"), every("3")};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
  }
  EXPECT_THROW(with(R"("activation_checkpointing": {"number_checkpoints": 2},
                       "zinc": {"recompute_every_blocks": 2}, )"),
               ConfigError);
  EXPECT_THROW(checkpoints("0"), ConfigError);
}

TEST(ZeroKeys, ContiguousMemoryOptimization_KeepsThePlacesOfAllInputs) {
  const auto live = [](const std::string& more) {
    const std::string keys =
        R"("activation_checkpointing": {"cpu_checkpointing": true, "number_checkpoints": 2)";
    const plan::RankPlan of = plan(R"("stage": 2)", keys + more + "}, ");
    EXPECT_GT(of.peaks.at(Tier::pinned_host, Label::activations).peak, 0);
    return of.peaks.at(Tier::pinned_host, Label::activations).live;
  };
  EXPECT_EQ(live(""), 0);
  EXPECT_GT(live(R"(, "contiguous_memory_optimization": true)"), 0);
}

TEST(ZeroKeys, ActivationOffload_SaysWhereInputsWait) {
  constexpr const char* kCheckpoints =
      R"("activation_checkpointing": {"number_checkpoints": 5, "cpu_checkpointing": )";
  const auto peaks = [&](bool cpu_checkpointing, const std::string& offload) {
    return plan(R"("stage": 2)", str(kCheckpoints, cpu_checkpointing ? "true" : "false",
                                     R"(}, "zinc": {"activation_offload": {)", offload, "}}, "))
        .peaks;
  };
  const auto on_nvme = [&](int buffers) {
    return peaks(false, str(R"("device": "nvme", "nvme_path": "/d", "buffer_count": )", buffers));
  };
  const MemoryReport host = peaks(true, "");
  const int64_t inputs = host.at(Tier::pinned_host, Label::activations).peak;
  EXPECT_GT(inputs, 0);
  EXPECT_EQ(peaks(false, R"("device": "cpu")").at(Tier::pinned_host).peak, inputs);
  EXPECT_EQ(peaks(true, R"("device": "none")").at(Tier::pinned_host).peak, inputs);
  EXPECT_EQ(on_nvme(2).at(Tier::pinned_host, Label::activations).peak, 0);
  EXPECT_GE(on_nvme(2).at(Tier::nvme, Label::activations).peak, inputs);
  // Five inputs, and buffers for two or for one.
  EXPECT_EQ(on_nvme(2).at(Tier::pinned_host).peak, 2 * on_nvme(1).at(Tier::pinned_host).peak);
  EXPECT_THROW(peaks(false, R"("device": "nvme")"), ConfigError);
  EXPECT_THROW(peaks(true, R"("device": "nvme", "nvme_path": "/d")"), ConfigError);
  EXPECT_THROW(peaks(false, R"("device": "cpu", "pin_memory": true)"), ConfigError);
}

TEST(ZeroKeys, GradientOffload_SaysWhereGradientsWait) {
  const auto peaks = [](const std::string& device, const std::string& own) {
    return plan(
               R"("stage": 2, "sub_group_size": 4096, "offload_optimizer": {"nvme_path": "/d", "device": ")" +
                   device + "\"}",
               R"("zinc": {)" + own + "}, ")
        .peaks;
  };
  const MemoryReport host = peaks("nvme", "");
  const MemoryReport nvme = peaks("nvme", R"("gradient_offload": "nvme")");
  const int64_t gradients = host.at(Tier::pinned_host, Label::gradients).peak;
  EXPECT_GT(gradients, 0);
  EXPECT_EQ(peaks("nvme", R"("gradient_offload": "host")").at(Tier::pinned_host).peak,
            host.at(Tier::pinned_host).peak);
  EXPECT_EQ(nvme.at(Tier::pinned_host, Label::gradients).peak, 0);
  EXPECT_GE(nvme.at(Tier::nvme, Label::gradients).peak, gradients);
  EXPECT_LT(nvme.at(Tier::pinned_host).peak, host.at(Tier::pinned_host).peak);
  EXPECT_THROW(peaks("cpu", R"("gradient_offload": "nvme")"), ConfigError);
  EXPECT_THROW(peaks("nvme", R"("gradient_offload": "cpu")"), ConfigError);
}

// The losses and weights of a short training with a configuration, two ranks.
std::vector<float> trained(const Config& config) {
  std::vector<float> values;
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::LlamaConfig tiny = zero::test::tiny_llama_config();
    tiny.num_layers = 1;
    nn::Llama model(tiny);
    zero::Engine engine(model, config.engine, world);
    for (int64_t step = 0; step < 2; ++step) {
      engine.backward(engine.forward(zero::test::make_batch(2 * step + world.rank(), 1)));
      const double loss = engine.step().loss;
      if (world.is_main()) values.push_back(static_cast<float>(loss));
    }
    const std::vector<float> weights = zero::test::weights_of(engine);
    if (world.is_main()) values.insert(values.end(), weights.begin(), weights.end());
  });
  return values;
}

// Keys that the table calls without effect change no value of the engine, no byte and no transfer
// of a plan, and no bit of a run; also those of MiCS, ZeRO++ and
// stage3_gather_16bit_weights_on_model_save.
TEST(ZeroKeys, WithoutEffect_ChangeNothing) {
  const std::string prefix = "zero_optimization.";
  const auto members = [](const std::string& path, const std::string& value) {
    const auto dot = path.find('.');
    if (dot == std::string::npos) return stage_3(str("\"", path, "\": ", value));
    const std::string device = path.starts_with("offload_param") ? "none" : "cpu";
    const std::string more = value.empty() ? "" : str(", \"", path.substr(dot + 1), "\": ", value);
    return stage_3(str("\"", path.substr(0, dot), "\": {\"device\": \"", device, "\"", more, "}"));
  };
  std::map<std::string, std::vector<float>> runs;  // without the key
  int checked = 0;
  for (const Key& key : config_keys()) {
    if (key.key_class != KeyClass::no_effect || !key.path.starts_with(prefix)) continue;
    const std::string path(key.path.substr(prefix.size()));
    const bool nested = path.find('.') != std::string::npos;
    const std::string plain = nested ? members(path, "") : kStage3;
    const Config without = config_with(plain);
    const std::string reference = plan::json_of(whole_plan(without, true));
    if (!runs.contains(plain)) runs.emplace(plain, trained(without));
    int loaded = 0;
    for (const char* value : {"true", "false", "2", "3", "{\"x\": 1}", "{\"x\": 2}"}) {
      std::optional<Config> config;
      try {
        config = config_with(members(path, value));
      } catch (const ConfigError&) {
        continue;  // another kind of value
      }
      ++loaded;
      EXPECT_EQ(resolved_json(*config, kWorld), resolved_json(without, kWorld)) << path << value;
      EXPECT_EQ(plan::json_of(whole_plan(*config, true)), reference) << path << " " << value;
      // Values of one kind tell the engine the same, as seen above: one of them is run.
      EXPECT_TRUE(loaded > 1 || trained(*config) == runs.at(plain)) << path << " " << value;
    }
    EXPECT_GE(loaded, 2) << path;
    ++checked;
  }
  EXPECT_GE(checked, 25);
}

TEST(ZeroKeys, OfActivationCheckpointing_WithoutEffectChangeNothing) {
  const auto with = [](const std::string& more) {
    return config_with(kStage3,
                       R"("activation_checkpointing": {"number_checkpoints": 1)" + more + "}, ");
  };
  const Config without = with("");
  const std::string reference = plan::json_of(whole_plan(without, true));
  const std::vector<float> run = trained(without);
  for (const char* key : {"synchronize_checkpoint_boundary", "profile"}) {
    const Config config = with(str(", \"", key, "\": true"));
    ASSERT_EQ(config.notices.size(), without.notices.size() + 1) << key;
    EXPECT_EQ(plan::json_of(whole_plan(config, true)), reference) << key;
    EXPECT_TRUE(trained(config) == run) << key;
  }
}

TEST(ZeroKeys, ImpossibleValuesAreErrors) {
  struct Row {
    const char* zero;
    const char* says;
  };
  for (const Row& row : {
           Row{R"("stage": 4)", "zero_optimization.stage must be between 0 and 3, not 4"},
           Row{R"("stage": -1)", "zero_optimization.stage must be between 0 and 3, not -1"},
           Row{R"("stage": 1, "reduce_bucket_size": -5)", "zero_optimization.reduce_bucket_size"},
           Row{R"("stage": 1, "reduce_bucket_size": 0)", "zero_optimization.reduce_bucket_size"},
           Row{R"("stage": 1, "allgather_bucket_size": -5)",
               "zero_optimization.allgather_bucket_size"},
           Row{R"("stage": 3, "sub_group_size": -1)", "zero_optimization.sub_group_size"},
           Row{R"("stage": 3, "stage3_prefetch_bucket_size": -1)",
               "zero_optimization.stage3_prefetch_bucket_size"},
           Row{R"("stage": 3, "stage3_param_persistence_threshold": -1)",
               "zero_optimization.stage3_param_persistence_threshold"},
           Row{R"("stage": 3, "stage3_max_live_parameters": -1)",
               "zero_optimization.stage3_max_live_parameters"},
           Row{R"("stage": 3, "stage3_max_reuse_distance": -1)",
               "zero_optimization.stage3_max_reuse_distance"},
           Row{R"("stage": 0, "offload_optimizer": {"device": "cpu"})",
               "offload_optimizer needs ZeRO stage 1, 2 or 3"},
           Row{R"("stage": 2, "offload_param": {"device": "cpu"})",
               "offload_param needs ZeRO stage 3"},
           Row{R"("stage": 3, "offload_param": {"device": "nvme"})", "needs nvme_path"},
           Row{R"("stage": 2, "offload_optimizer": {"device": "tape"})", "device"},
           Row{R"("stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 1.5})",
               "ratio must be between 0 and 1"},
           Row{R"("stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp",
                  "ratio": 0.5})",
               "ratio below 1 needs"},
       }) {
    try {
      plan(row.zero);
      ADD_FAILURE() << row.zero << " is accepted";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(row.says));
    }
  }
}

}  // namespace zero_keys_test
}  // namespace zinc::train
