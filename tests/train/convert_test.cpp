// Checkpoints from DeepSpeed's files, and to llm.c's.
#include "train/checkpoint/convert.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "nn/models/gpt2.h"
#include "tests/train/scratch_folder.h"
#include "tests/zero/tiny_model.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/hub/llmc_file.h"
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
    const ScratchFolder folder;
    const auto saved = DeepSpeedCheckpoint::open(kFolder + from);
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
      for (const StateKind kind : kStateKinds) {
        const std::string name(name_of(kind));
        ASSERT_EQ(checkpoint.shape_of(parameter.name, name).has_value(),
                  parameter.trained || kind == StateKind::weights);
        if (!saved.has(parameter.name, kind)) continue;
        const int64_t numel = parameter.shape.numel();
        EXPECT_EQ(values_of([&](View out) { checkpoint.read(parameter.name, name, 0, out); }, numel),
                  values_of([&](View out) { saved.read(parameter.name, kind, 0, out); }, numel))
            << name << " of " << parameter.name;
        ++compared;
      }
    }
    EXPECT_GE(compared, from == "stage0" ? 6U : 18U);
  }
}

TEST(ExportLlmc, GivesTheWeightsOfTheCheckpoint_OfGpt2Alone) {
  const ScratchFolder folder;
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
  const Checkpoint checkpoint = save("gpt2", model_config_json(config, DType::f32));
  export_llmc(checkpoint, folder / "model.bin", DType::f32);
  const LlmcFile file(InputFile::open(folder / "model.bin"));
  size_t compared = 0;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const StoredTensor& tensor = file.tensors()[i];
    const int64_t numel = tensor.shape.numel();
    EXPECT_EQ(values_of([&](View out) { file.read(i, 0, out); }, numel),
              values_of([&](View out) { checkpoint.read(tensor.name, "weights", 0, out); }, numel))
        << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, checkpoint.tensors().size());
  const Checkpoint other =
      save("llama", model_config_json(zero::test::tiny_llama_config(), DType::f32));
  EXPECT_THROW(export_llmc(other, folder / "other.bin", DType::f32), ConfigError);
}

}  // namespace convert_test
}  // namespace zinc::train
