// Checkpoints from DeepSpeed's files, and to llm.c's.
#include "train/convert_checkpoint.h"
#include "train/export_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/float16.h"
#include "files/safetensors/reader.h"
#include "hub/family.h"
#include "hub/llmc_file.h"
#include "nn/models/gpt2.h"
#include "tests/files/scratch_folder.h"
#include "tests/zero/tiny_model.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/config/config.h"
#include "train/run_position.h"

namespace zinc::train {
namespace convert_test {

const std::string kFolder = "tests/reference/deepspeed/";

template <class Source>
std::vector<float> values_of(const Source& read, int64_t numel) {
  std::vector<float> values(static_cast<size_t>(numel));
  read(View(values.data(), DType::f32, Shape{numel}, kCpu));
  return values;
}

TEST(ConvertDeepSpeed, GivesACheckpointWithItsStates) {
  for (const std::string from : {"stage0", "stage1", "stage2", "stage3", "universal"}) {
    SCOPED_TRACE(from);
    const files::ScratchFolder folder;
    const auto saved = files::DeepSpeedCheckpoint::open(kFolder + from);
    const std::string path = convert_deepspeed(saved, folder.path(), {.seed = 7});
    EXPECT_EQ(path, folder / "step-000003");
    const Checkpoint checkpoint = Checkpoint::open(path);
    checkpoint.verify();
    EXPECT_EQ(checkpoint.state().steps, 3);
    EXPECT_EQ(checkpoint.manifest().seed, 7U);
    const RunPosition position = parse_run_position(checkpoint.manifest().client_state);
    EXPECT_EQ(position.loader.samples, saved.counters().global_samples);
    size_t compared = 0;
    for (const auto& parameter : saved.parameters()) {
      for (const files::StateKind kind : files::kStateKinds) {
        const std::string name(files::name_of(kind));
        ASSERT_EQ(checkpoint.shape_of(parameter.name, name).has_value(),
                  parameter.trained || kind == files::StateKind::weights);
        if (!saved.has(parameter.name, kind)) continue;
        const int64_t numel = parameter.shape.numel();
        EXPECT_EQ(
            values_of([&](View out) { checkpoint.read(parameter.name, name, 0, out); }, numel),
            values_of([&](View out) { saved.read(parameter.name, kind, 0, out); }, numel))
            << name << " of " << parameter.name;
        ++compared;
      }
    }
    EXPECT_GE(compared, from == "stage0" ? 6U : 18U);
  }
}

// The stored model under a family whose parameters lie in its files otherwise: two of its tensors
// are one parameter here, and one is turned.
struct NetConfig {
  int64_t vocab_size = 11, max_positions = 5, hidden_size = 6, num_heads = 1;
  bool tie_word_embeddings = true;
  std::vector<int64_t> eos_tokens{};
  static std::string_view model_type() { return "converted_net"; }
  int64_t head_dim() const { return hidden_size; }
  int64_t mlp_size() const { return 7; }
  void validate() const {}
  friend bool operator==(const NetConfig&, const NetConfig&) = default;
};

struct Net : nn::Model {
  explicit Net(const NetConfig&) {}
  static autograd::Initializer zeros() { return autograd::Initializer::zeros(); }
  nn::Parameter packed{*this, "packed", Shape{18, 6}, zeros()};
  nn::Parameter turned{*this, "turned", Shape{7, 6}, zeros()};
  nn::Parameter norm_weight{*this, "norm_weight", Shape{6}, zeros()};
  nn::Parameter norm_bias{*this, "norm_bias", Shape{6}, zeros()};
  nn::Parameter up_bias{*this, "up_bias", Shape{7}, zeros()};
  nn::Parameter gain{*this, "gain", Shape{5}, zeros()};
  Tensor loss(const nn::Batch&) override { return {}; }
};

hub::Family net_family() {
  return hub::make_family<NetConfig>(
      {.model_type = "converted_net",
       .architectures = {"ConvertedNet"},
       .parse = [](const files::json::Value&) { return NetConfig{}; },
       .write = [](const NetConfig&,
                   files::json::Object& object) { object.set("model_type", "converted_net"); },
       .make = hub::make_family_model<Net, NetConfig>,
       .names = [](const NetConfig&) -> hub::NameMap {
         return {.rows = {{"packed", "up.weight", hub::part_of_ours(0, 7)},
                          {"packed", "embed.weight", hub::part_of_ours(7, 11)},
                          {"turned", "down.weight", hub::transposed()},
                          {"norm_weight", "norm.weight"},
                          {"norm_bias", "norm.bias"},
                          {"up_bias", "up.bias"},
                          {"gain", "gain"}}};
       }});
}

TEST(ConvertDeepSpeed, ParametersOfAFamily_ComeFromTheTensorsOfItsMap) {
  const hub::Family family = net_family();
  const hub::ModelConfigFile model{.config = hub::ModelConfig(family, NetConfig{})};
  const files::ScratchFolder folder;
  const auto saved = files::DeepSpeedCheckpoint::open(kFolder + "stage2");
  const Checkpoint checkpoint =
      Checkpoint::open(convert_deepspeed(saved, folder.path(), {.model = &model}));
  checkpoint.verify();
  EXPECT_EQ(checkpoint.tensors().size(), 6U);
  for (const files::StateKind kind : files::kStateKinds) {
    const std::string name(files::name_of(kind));
    const auto theirs = [&](std::string_view tensor, int64_t numel) {
      return values_of([&](View out) { saved.read(tensor, kind, 0, out); }, numel);
    };
    const auto ours = [&](const std::string& parameter, int64_t numel) {
      return values_of([&](View out) { checkpoint.read(parameter, name, 0, out); }, numel);
    };
    std::vector<float> packed = theirs("up.weight", 42);
    const std::vector<float> embed = theirs("embed.weight", 66);
    packed.insert(packed.end(), embed.begin(), embed.end());
    EXPECT_EQ(ours("packed", 108), packed) << name;
    const std::vector<float> down = theirs("down.weight", 42), turned = ours("turned", 42);
    for (size_t r = 0; r < 7; ++r) {
      for (size_t c = 0; c < 6; ++c) EXPECT_EQ(turned[r * 6 + c], down[c * 7 + r]) << name;
    }
    EXPECT_EQ(ours("up_bias", 7), theirs("up.bias", 7)) << name;
    EXPECT_EQ(checkpoint.shape_of("gain", name).has_value(), kind == files::StateKind::weights);
  }
  hub::Family without = family;
  without.names = [](const std::any&) -> hub::NameMap { return {.rows = {{"gain", "lost"}}}; };
  const hub::ModelConfigFile other{.config = hub::ModelConfig(without, NetConfig{})};
  EXPECT_THAT(
      files::message_of<DataError>(
          [&] { convert_deepspeed(saved, folder / "lost", {.model = &other}); }),
      testing::HasSubstr("packed of the model needs packed [18, 6], which the checkpoint does not "
                         "have"));
}

TEST(ExportLlmc, GivesTheWeightsOfTheCheckpoint_OfGpt2Alone) {
  const files::ScratchFolder folder;
  nn::Gpt2Config config = zero::test::tiny_config();
  const auto save = [&](const std::string& tag, const std::string& config_json) {
    comm::run_local_ranks(2, {.seed = 4, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(config);
      zero::EngineConfig engine_config;
      engine_config.zero.stage = 1;
      zero::Engine engine(model, engine_config, world);
      save_checkpoint(engine, folder.path(), tag, {.texts = {{"config.json", config_json}}});
    });
    return Checkpoint::open(folder / tag);
  };
  const Checkpoint checkpoint = save("gpt2", hub::model_config_json(config, DType::f32));
  export_llmc(checkpoint, folder / "model.bin", DType::f32);
  const hub::LlmcFile file(files::InputFile::open(folder / "model.bin"));
  size_t compared = 0;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const hub::StoredTensor& tensor = file.tensors()[i];
    const int64_t numel = tensor.shape.numel();
    EXPECT_EQ(values_of([&](View out) { file.read(i, 0, out); }, numel),
              values_of([&](View out) { checkpoint.read(tensor.name, "weights", 0, out); }, numel))
        << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, checkpoint.tensors().size());
  const Checkpoint other =
      save("llama", hub::model_config_json(zero::test::tiny_llama_config(), DType::f32));
  EXPECT_THROW(export_llmc(other, folder / "other.bin", DType::f32), ConfigError);
}

// A checkpoint of two ranks behind two steps. `averages`: the weights for use, by name.
Checkpoint save_averaging(const files::ScratchFolder& folder, const std::string& tag,
                          bool has_configuration,
                          std::map<std::string, std::vector<float>>* averages = nullptr) {
  const nn::Gpt2Config config = zero::test::tiny_config();
  comm::run_local_ranks(2, {.seed = 4, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(config);
    model.parameter("transformer.h.0.mlp.c_fc.bias").set_requires_grad(false);
    Config all;
    all.engine.batch.micro_batch = 2;
    all.engine.zero.stage = 2;
    all.engine.optimizer.kind = optim::OptimizerKind::schedule_free;
    all.engine.optimizer.hyper = {.lr = 0.02, .beta1 = 0.8};
    zero::Engine engine(model, all.engine, world);
    for (int64_t step = 0; step < 2; ++step) {
      engine.backward(engine.forward(zero::test::make_batch(2 * step + world.rank())));
      engine.step();
    }
    SaveCheckpointOptions saving{
        .texts = {{"config.json", hub::model_config_json(config, DType::f32)}}};
    if (has_configuration) {
      saving.texts.emplace_back("config.resolved.json", resolved_json(all, world.size()));
    }
    save_checkpoint(engine, folder.path(), tag, saving);
    for (const auto& [name, parameter] : model.named_parameters()) {
      const std::vector<float> values = engine.evaluated_parameter(name).to_vector<float>();
      const bool is_other = values != engine.parameter(name).to_vector<float>();
      EXPECT_EQ(is_other, parameter->requires_grad()) << name;
      if (world.is_main() && averages != nullptr) (*averages)[name] = values;
    }
  });
  return Checkpoint::open(folder / tag);
}

TEST(Export, OfARuleThatAverages_HasTheAverages) {
  const files::ScratchFolder folder;
  std::map<std::string, std::vector<float>> averages;
  const Checkpoint checkpoint = save_averaging(folder, "averaged", true, &averages);
  export_llmc(checkpoint, folder / "model.bin", DType::f32);
  const hub::LlmcFile file(files::InputFile::open(folder / "model.bin"));
  ASSERT_EQ(file.tensors().size(), averages.size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const hub::StoredTensor& tensor = file.tensors()[i];
    EXPECT_EQ(values_of([&](View out) { file.read(i, 0, out); }, tensor.shape.numel()),
              averages.at(tensor.name))
        << tensor.name;
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string path = folder / str("model-", dtype);
    export_weights(checkpoint, path, {.dtype = dtype});
    const auto read = files::SafetensorsFile::open(path + "/model.safetensors");
    for (const auto& [name, values] : averages) {
      const auto numel = std::ssize(values);
      std::vector<float> rounded = values;
      if (dtype == DType::bf16) {
        for (float& value : rounded) value = static_cast<float>(bf16(value));
      }
      EXPECT_EQ(values_of([&](View out) { read.read(*read.find(name), 0, out); }, numel), rounded)
          << name;
    }
  }
}

// Its weights are not those for use, which no export may take for them.
TEST(Export, OfARuleThatAverages_WithoutItsConfiguration_IsRefusedByName) {
  const files::ScratchFolder folder;
  const Checkpoint checkpoint = save_averaging(folder, "averaged", false);
  for (const auto& work :
       {std::function<void()>([&] { export_llmc(checkpoint, folder / "model.bin", DType::f32); }),
        std::function<void()>([&] { export_weights(checkpoint, folder / "model"); })}) {
    EXPECT_THAT(files::message_of<ConfigError>(work),
                testing::AllOf(testing::HasSubstr("ScheduleFreeAdamW trains with other weights"),
                               testing::HasSubstr("has no config.resolved.json"),
                               testing::HasSubstr("best/ or final/")));
  }
}

}  // namespace convert_test
}  // namespace zinc::train
