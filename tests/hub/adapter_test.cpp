// The trained part of a model, and adapters as folders.
#include "hub/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/safetensors/writer.h"
#include "hub/tuning.h"
#include "hub/weight_folder.h"
#include "tests/files/scratch_folder.h"
#include "tests/zero/tiny_model.h"
#include "train/weights/save_model.h"

namespace zinc::hub {
namespace adapter_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <class Thrown, class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Tuning, LoraIsReadFromAWord) {
  const nn::LoraOptions lora = parse_lora(
      "r=4,alpha=32,dropout=0.05,rslora=true,dora=true,targets=q_proj,v_proj,exclude=0.q_proj,"
      "modules_to_save=score");
  EXPECT_EQ(lora, (nn::LoraOptions{.rank = 4,
                                   .alpha = 32,
                                   .dropout = 0.05,
                                   .rank_stabilized = true,
                                   .dora = true,
                                   .targets = {"q_proj", "v_proj"},
                                   .exclude = {"0.q_proj"},
                                   .modules_to_save = {"score"}}));
  const auto said = [](const char* text) {
    return refusal<ConfigError>([&] { parse_lora(text); });
  };
  EXPECT_THAT(said("rank=4,targets=a"), HasSubstr("no key \"rank\""));
  EXPECT_THAT(said("target=a"), HasSubstr("did you mean \"targets\"?"));
  EXPECT_THAT(said("r=4.5,targets=a"), HasSubstr("r=4.5 is no whole number"));
  EXPECT_THAT(said("alpha=x,targets=a"), HasSubstr("alpha=x is no number"));
  EXPECT_THAT(said("q_proj"), HasSubstr("\"q_proj\" is no key=value"));
}

// peft's TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.
TEST(Tuning, LoraWithoutTargets_TakesPeftsOfTheFamily) {
  TuningOptions tuning{.lora = parse_lora("r=4")};
  EXPECT_TRUE(tuning.lora->targets.empty());
  settle_lora_targets(tuning, "llama");
  EXPECT_THAT(tuning.lora->targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_TRUE(tuning.has_default_targets);
  TuningOptions named{.lora = parse_lora("r=4,targets=c_fc")};
  settle_lora_targets(named, "gpt2");
  EXPECT_THAT(named.lora->targets, ElementsAre("c_fc"));
  EXPECT_FALSE(named.has_default_targets);
  TuningOptions unknown{.lora = parse_lora("r=4")};
  EXPECT_THAT(refusal<ConfigError>([&] { settle_lora_targets(unknown, "mine"); }),
              HasSubstr("targets are missing"));
  // Every family has layers of these names.
  nn::Gpt2 model(zero::test::tiny_config());
  EXPECT_EQ(nn::add_lora(model, {.targets = default_lora_targets("gpt2")}).size(), 4u);
}

std::vector<std::string> trained(const TuningOptions& tuning) {
  nn::Gpt2 model(zero::test::tiny_config());
  apply_tuning(model, tuning);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter->requires_grad()) names.push_back(name);
  }
  return names;
}

TEST(Tuning, PatternsSayWhatIsTrained) {
  EXPECT_THAT(trained({.train = {"*.ln_f.*", "*wpe*"}, .freeze = {"*.bias"}}),
              ElementsAre("transformer.wpe.weight", "transformer.ln_f.weight"));
  EXPECT_EQ(trained({.freeze = {"transformer.h.*"}}).size(), 4u);
  EXPECT_THAT(refusal<ConfigError>([] { trained({.freeze = {"transformer.wtf.weight"}}); }),
              AllOf(HasSubstr("no parameter matches \"transformer.wtf.weight\""),
                    HasSubstr("did you mean \"transformer.wte.weight\"?")));
  EXPECT_THAT(refusal<ConfigError>([] { trained({.freeze = {"*"}}); }),
              HasSubstr("nothing is left to train"));
  const TuningOptions both{.freeze = {"*.bias"}, .lora = nn::LoraOptions{.targets = {"c_fc"}}};
  EXPECT_THAT(refusal<ConfigError>([&] { trained(both); }), HasSubstr("named by modules_to_save"));
}

TEST(Tuning, TrainableParametersAreCountedAsPeftDoes) {
  nn::Gpt2 model(zero::test::tiny_config());
  apply_tuning(model, {.lora = nn::LoraOptions{.rank = 2, .targets = {"c_fc"}}});
  // 4 layers of 2 x (24 + 96); the base has 30,216.
  EXPECT_EQ(describe_trainable(model),
            "trainable params: 960 || all params: 31,176 || trainable%: 3.0793");
}

// --- adapters

zero::EngineConfig engine_config(int stage) {
  zero::EngineConfig config;
  config.batch.micro_batch = 2;
  config.precision.dtype = DType::bf16;
  config.optimizer.hyper.lr = 1e-2;
  config.zero.stage = stage;
  return config;
}

const nn::LoraOptions kLora{.rank = 2, .alpha = 4, .targets = {"c_attn", "mlp.c_proj"}};

// Losses of three steps of a model with adapters.
std::vector<double> train(zero::Engine& engine, comm::World& world) {
  std::vector<double> losses;
  for (int64_t step = 0; step < 3; ++step) {
    engine.backward(engine.forward(zero::test::make_batch(2 * step + world.rank())));
    losses.push_back(engine.step().loss);
  }
  return losses;
}

// The lengths of DoRA's rows are read from the base.
TEST(Adapter, DecomposedModelStartsAsItsBase) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World&) {
    const auto loss_of = [](const TuningOptions& tuning) {
      nn::Gpt2 model(zero::test::tiny_config());
      apply_tuning(model, tuning);
      model.load(AdaptedWeights(model, nullptr, {}, ""));
      model.eval();
      return model.loss(zero::test::make_batch(0)).item();
    };
    const nn::LoraOptions dora{
        .rank = 2, .dora = true, .targets = {"c_attn", "c_fc"}, .exclude = {"0.mlp.c_fc"}};
    const double plain = loss_of({});
    EXPECT_NEAR(loss_of({.lora = dora}), plain, 1e-5 * plain);
  });
}

constexpr int64_t kMost = 1 << 20;  // bytes of a file

TEST(Adapter, IsSavedOnEveryStage_AndGoesOnWhereItWas) {
  const files::ScratchFolder folder;
  std::vector<std::string> files;
  for (const int stage : {0, 3}) {
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(zero::test::tiny_config());
      apply_tuning(model, {.lora = kLora});
      zero::Engine engine(model, engine_config(stage), world);
      train(engine, world);
      const std::string path = folder / str("stage", stage);
      train::save_adapter(engine, {.lora = kLora, .base_model = "somewhere"}, {}, path);
      const AdapterConfig config = read_adapter_config(path);
      EXPECT_EQ(config.lora, kLora);
      EXPECT_EQ(config.base_model, "somewhere");

      nn::Gpt2 again(zero::test::tiny_config());
      apply_tuning(again, tuning_of_adapter(path));
      const AdaptedWeights weights(again, nullptr, {}, path);
      zero::Engine other(again, engine_config(3 - stage), world, {.weights = &weights});
      for (const auto& [name, parameter] : again.named_parameters()) {
        EXPECT_EQ(other.parameter(name).to_vector<float>(),
                  engine.parameter(name).to_vector<float>())
            << name;
      }
    });
    const std::string path = folder / str("stage", stage);
    files.push_back(files::read_text_file(path + "/adapter_model.safetensors", kMost));
    const WeightFolder stored = WeightFolder::open(path + "/adapter_model.safetensors");
    EXPECT_EQ(stored.tensors().size(), 16u);
    EXPECT_NE(stored.find("base_model.model.transformer.h.3.mlp.c_proj.lora_B.weight"), nullptr);
    EXPECT_THAT(files::read_text_file(path + "/adapter_config.json", kMost),
                HasSubstr("\"fan_in_fan_out\": true"));
  }
  EXPECT_EQ(files[0], files[1]);
}

// Tensor ranks have slices of it; the file is whole, and others read their own slices of it.
TEST(Adapter, OfTensorRanks_IsSavedWhole_AndReadBySlices) {
  const files::ScratchFolder folder;
  const std::string path = folder / "adapter";
  nn::Gpt2Config base = zero::test::tiny_config();
  base.num_heads = 4;
  std::map<std::string, std::vector<float>> values;
  const auto on_ranks = [&](int tensor, bool is_saved) {
    comm::run_local_ranks(tensor, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      comm::RankSettings settings = world.settings();
      settings.mesh.tensor = tensor;
      world.configure(settings);
      nn::Gpt2 model(base);
      apply_tuning(model, is_saved ? tuning_of_adapter(path) : TuningOptions{.lora = kLora});
      const AdaptedWeights weights(model, nullptr, {}, is_saved ? path : "");
      zero::Engine engine(model, engine_config(1), world, {.weights = &weights});
      if (!is_saved) {
        engine.backward(engine.forward(zero::test::make_batch(0)));
        engine.step();
        train::save_adapter(engine, {.lora = kLora}, {}, path);
      }
      for (const auto& [name, parameter] : model.named_parameters()) {
        const std::vector<float> now = engine.parameter(name).to_vector<float>();
        if (!is_saved && world.is_main()) values[name] = now;
        if (is_saved) {
          EXPECT_EQ(now, values[name]) << name << " on rank " << world.rank();
        }
      }
    });
  };
  on_ranks(2, /*is_saved=*/false);
  EXPECT_EQ(WeightFolder::open(path + "/adapter_model.safetensors").tensors().size(), 16u);
  for (const int tensor : {1, 2, 4}) on_ranks(tensor, /*is_saved=*/true);
}

TEST(Adapter, OfAnotherBaseOrKind_IsRefusedByName) {
  const files::ScratchFolder folder;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(zero::test::tiny_config());
    apply_tuning(model, {.lora = kLora});
    zero::Engine engine(model, engine_config(0), world);
    train::save_adapter(engine, {.lora = kLora}, {}, folder / "adapter");
    EXPECT_THROW(train::save_adapter(engine, {.lora = kLora}, {}, folder / "adapter"), IoError);

    nn::Gpt2Config wider = zero::test::tiny_config();
    wider.hidden_size = 48;
    nn::Gpt2 other(wider);
    apply_tuning(other, tuning_of_adapter(folder / "adapter"));
    EXPECT_THAT(refusal<DataError>([&] { AdaptedWeights(other, nullptr, {}, folder / "adapter"); }),
                HasSubstr("c_attn.lora_A.weight: [2, 24] in the file, [2, 48] in the model"));
    nn::Gpt2Config deeper = zero::test::tiny_config();
    deeper.num_layers = 5;
    nn::Gpt2 third(deeper);
    apply_tuning(third, tuning_of_adapter(folder / "adapter"));
    EXPECT_THAT(refusal<DataError>([&] { AdaptedWeights(third, nullptr, {}, folder / "adapter"); }),
                HasSubstr("h.4.attn.c_attn.lora_A.weight"));
  });
  EXPECT_THAT(refusal<DataError>([&] { read_adapter_config(folder / "none"); }),
              HasSubstr("is no adapter"));
  const auto said = [&](const std::string& more) {
    files::write_file_atomically(
        folder / "adapter/adapter_config.json",
        "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_fc\"], " + more + "}");
    return refusal<DataError>([&] { read_adapter_config(folder / "adapter"); });
  };
  EXPECT_THAT(said("\"layer_replication\": [[0, 2]]"),
              HasSubstr("adapters with layer_replication are not supported"));
  EXPECT_THAT(said("\"layers_pattern\": [\"h\"]"), HasSubstr("layers_pattern"));
  EXPECT_EQ(said("\"layers_to_transform\": [1], \"layers_pattern\": [\"h\"]"),
            "nothing was thrown");
  EXPECT_THAT(said("\"exclude_modules\": \".*c_fc\""), HasSubstr("a list of their names is"));
  EXPECT_THAT(said("\"init_lora_weights\": \"pissa_niter_16\""), HasSubstr("change their base"));
  EXPECT_THAT(said("\"bias\": \"all\""), HasSubstr("train biases"));
  EXPECT_EQ(said("\"use_dora\": true, \"rank_pattern\": {}, \"bias\": \"none\", "
                 "\"layers_to_transform\": 1, \"init_lora_weights\": \"gaussian\""),
            "nothing was thrown");
}

TEST(Adapter, OfALayerThatFilesHaveInParts_IsRefused) {
  nn::Gpt2 model(zero::test::tiny_config());
  apply_tuning(model, {.lora = kLora});
  const auto names_with = [&](const std::string& layer) {
    const std::string ours = str("transformer.h.*.", layer, ".weight");
    return adapter_names({.rows = {{ours, "h.*.fused.weight", part_of_theirs(0, 24, 48)}}}, model);
  };
  EXPECT_THAT(refusal<ConfigError>([&] { names_with("attn.c_attn"); }),
              HasSubstr("an adapter of it cannot be stored as peft's"));
  EXPECT_EQ(names_with("mlp.c_fc").rows.size(), 6u);  // which has no adapter
}

// A base, and a saved adapter of it whose file a test writes anew under other names.
struct SavedAdapter {
  explicit SavedAdapter(const nn::LoraOptions& lora) {
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(zero::test::tiny_config());
      apply_tuning(model, {.lora = lora});
      zero::Engine engine(model, engine_config(0), world);
      train::save_adapter(engine, {.lora = lora}, {}, path);
      train::visit_adapter(engine,
                           [&](const std::string& name, const auto& now) { values[name] = now; });
    });
  }

  // Writes the tensors again; `name_of` gives each of them its names, of which there may be none.
  void rename(const std::function<std::vector<std::string>(const std::string&)>& names_of) const {
    const std::string file = path + "/adapter_model.safetensors";
    const WeightFolder stored = WeightFolder::open(file);
    std::vector<files::TensorSpec> specs;
    std::map<std::string, const WeightFolder::Location*> from;
    for (const auto& [name, location] : stored.tensors()) {
      for (const std::string& now : names_of(name)) {
        specs.push_back({.name = now, .dtype = DType::f32, .shape = location.tensor().shape});
        from[now] = &location;
      }
    }
    {
      files::SafetensorsWriter writer(folder / "renamed", specs);
      for (const files::TensorSpec& spec : specs) {
        std::vector<float> room(static_cast<size_t>(spec.shape.numel()));
        from[spec.name]->read(0, View(room.data(), DType::f32, Shape{spec.shape.numel()}));
        if (spec.name.find("original_module") != std::string::npos) room.assign(room.size(), 9.0f);
        writer.write(spec.name, 0,
                     ConstView(room.data(), DType::f32, Shape{spec.shape.numel()}, kCpu));
      }
      writer.commit();
    }
    std::filesystem::rename(folder / "renamed", file);
  }

  // The values that another model reads from it.
  void expect_read(const NameMap& names = {}) const {
    comm::run_local_ranks(1, {.seed = 6, .num_threads = 1}, [&](comm::World&) {
      nn::Gpt2 model(zero::test::tiny_config());
      apply_tuning(model, tuning_of_adapter(path));
      model.load(AdaptedWeights(model, nullptr, names, path));
      for (const auto& [name, expected] : values) {
        EXPECT_EQ(model.parameter(name).data().to_vector<float>(), expected) << name;
      }
    });
  }

  files::ScratchFolder folder;
  std::string path = folder / "adapter";
  std::map<std::string, std::vector<float>> values;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

nn::LoraOptions with_saved_module() {
  nn::LoraOptions lora = kLora;
  lora.modules_to_save = {"wpe", "0.ln_1"};
  return lora;
}

// Names as a training loop's own state_dict() has them, with the name of the adapter in them.
TEST(Adapter, NamesOfAWholeState_AreUnderstood) {
  const SavedAdapter adapter(with_saved_module());
  adapter.rename([](const std::string& name) -> std::vector<std::string> {
    for (const char* end : {".lora_A", ".lora_B"}) {
      if (name.find(end) != std::string::npos) {
        return {replaced(name, end, std::string(end) + ".default")};
      }
    }
    const size_t last = name.rfind('.');
    const std::string front = name.substr(0, last), end = name.substr(last);
    return {front + ".modules_to_save.default" + end, front + ".original_module" + end};
  });
  adapter.expect_read();
}

// peft's file after a resize of the embeddings: the module has three names.
TEST(Adapter, ModuleToSaveUnderThreeNames_IsReadOnce) {
  const SavedAdapter adapter(with_saved_module());
  adapter.rename([](const std::string& name) -> std::vector<std::string> {
    if (name.find("wpe") == std::string::npos) return {name};
    return {name, replaced(name, ".weight", ".modules_to_save.weight"),
            replaced(name, ".weight", ".original_module.weight")};
  });
  adapter.expect_read();
}

TEST(Adapter, ModuleToSaveThatIsNotThere_IsRefused) {
  const SavedAdapter adapter(with_saved_module());
  adapter.rename([](const std::string& name) -> std::vector<std::string> {
    if (name.find("wpe") != std::string::npos) return {};
    return {name};
  });
  comm::run_local_ranks(1, {.seed = 6, .num_threads = 1}, [&](comm::World&) {
    nn::Gpt2 model(zero::test::tiny_config());
    apply_tuning(model, tuning_of_adapter(adapter.path));
    EXPECT_THAT(refusal<DataError>([&] { AdaptedWeights(model, nullptr, {}, adapter.path); }),
                HasSubstr("transformer.wpe.weight"));
  });
}

// peft saves table and head where the embeddings were resized; a tied model has one of them.
TEST(Adapter, HeadBesideATiedTable_IsLeftAside) {
  const SavedAdapter adapter(with_saved_module());
  adapter.rename([](const std::string& name) -> std::vector<std::string> {
    if (name.find("wpe") == std::string::npos) return {name};
    return {name, "base_model.model.lm_head.weight"};
  });
  // Nobody trained the table: the file has it as it was.
  files::write_file_atomically(adapter.path + "/adapter_config.json",
                               R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4,
                            "target_modules": ["c_attn", "mlp.c_proj"]})");
  adapter.expect_read({.tied = {{"lm_head.weight", "transformer.wpe.weight"}}});
}

// peft's own list for classifiers names the heads of several families.
TEST(Adapter, NamesThatTheModelLacks_AreIgnoredInAFolder) {
  const SavedAdapter adapter(kLora);
  files::write_file_atomically(adapter.path + "/adapter_config.json",
                               R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4,
          "target_modules": ["c_attn", "mlp.c_proj", "q_lin"],
          "modules_to_save": ["classifier", "score"]})");
  adapter.expect_read();
  nn::Gpt2 model(zero::test::tiny_config());
  nn::LoraOptions lora = kLora;
  lora.targets.emplace_back("q_lin");
  EXPECT_THAT(refusal<ConfigError>([&] { apply_tuning(model, {.lora = lora}); }),
              HasSubstr("LoRA target \"q_lin\" matches no"));
  lora.targets = {"q_lin"};
  EXPECT_THAT(refusal<ConfigError>([&] { nn::add_lora(model, lora, nn::NamesNothing::ignored); }),
              HasSubstr("LoRA target \"q_lin\" matches no"));
}

TEST(Adapter, OfTorchSave_IsRead) {
  const files::ScratchFolder folder;
  files::write_file_atomically(folder / "adapter_config.json",
                               R"({"peft_type": "LORA", "target_modules": ["c_fc"]})");
  comm::run_local_ranks(1, {.seed = 6, .num_threads = 1}, [&](comm::World&) {
    nn::Gpt2 model(zero::test::tiny_config());
    apply_tuning(model, tuning_of_adapter(folder.path()));
    const auto said = [&] {
      return refusal<DataError>([&] { AdaptedWeights(model, nullptr, {}, folder.path()); });
    };
    EXPECT_THAT(said(), HasSubstr("adapter_model.bin'"));
    std::filesystem::copy_file("tests/reference/torch/legacy.pt", folder / "adapter_model.bin");
    EXPECT_THAT(said(), HasSubstr("adapter_model.bin: the weights do not fit the model"));
  });
}

TEST(Lora, BlocksAreTakenBehindTheNameThatIsGiven) {
  nn::Gpt2 model(zero::test::tiny_config());
  const nn::LoraOptions lora{
      .rank = 2, .targets = {"c_fc"}, .layers = {1, 3}, .block_names = {"layers", "h"}};
  EXPECT_THAT(nn::add_lora(model, lora),
              ElementsAre("transformer.h.1.mlp.c_fc", "transformer.h.3.mlp.c_fc"));
  nn::Gpt2 other(zero::test::tiny_config());
  nn::LoraOptions elsewhere = lora;
  elsewhere.block_names = {"blocks"};
  EXPECT_THAT(refusal<ConfigError>([&] { nn::add_lora(other, elsewhere); }),
              HasSubstr("nothing is left"));
}

}  // namespace adapter_test
}  // namespace zinc::hub
