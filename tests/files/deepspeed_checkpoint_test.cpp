#include "files/deepspeed/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "files/safetensors/reader.h"
#include "tests/files/scratch_folder.h"

namespace zinc::files {
namespace deepspeed_checkpoint_test {

using testing::ElementsAre;
using testing::HasSubstr;

// Written by DeepSpeed itself: tests/reference/make_deepspeed.py.
const std::string kFolder = "tests/reference/deepspeed/";

std::vector<float> read(const DeepSpeedCheckpoint& checkpoint, std::string_view name,
                        StateKind kind, int64_t begin, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  checkpoint.read(name, kind, begin, View(out.data(), DType::f32, Shape{count}));
  return out;
}

std::vector<std::string> trained_names(const DeepSpeedCheckpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& parameter : checkpoint.parameters()) {
    if (parameter.trained) names.push_back(parameter.name);
  }
  return names;
}

// Every state of every parameter that the live engine had is there, whole and in parts.
void expect_states(const DeepSpeedCheckpoint& checkpoint, const std::string& expected_path) {
  const SafetensorsFile expected = SafetensorsFile::open(expected_path);
  size_t compared = 0;
  for (const auto& parameter : checkpoint.parameters()) {
    if (!parameter.trained) continue;
    for (const StateKind kind : kStateKinds) {
      const std::string key = str(name_of(kind), '/', parameter.name);
      const TensorEntry* entry = expected.find(key);
      ASSERT_NE(entry, nullptr) << key;
      ASSERT_EQ(entry->shape, parameter.shape) << key;
      const int64_t count = entry->shape.numel();
      std::vector<float> wanted(static_cast<size_t>(count));
      expected.read(*entry, 0, View(wanted.data(), DType::f32, Shape{count}));
      ASSERT_TRUE(checkpoint.has(parameter.name, kind)) << key;
      EXPECT_EQ(read(checkpoint, parameter.name, kind, 0, count), wanted) << key;
      for (int64_t begin = 0; begin < count; begin += 5) {
        const int64_t n = std::min<int64_t>(7, count - begin);
        EXPECT_EQ(read(checkpoint, parameter.name, kind, begin, n),
                  std::vector<float>(wanted.begin() + begin, wanted.begin() + begin + n))
            << key << " from " << begin;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, expected.header().tensors.size());
}

TEST(DeepSpeedCheckpoint, EveryStage_HasTheStatesOfTheLiveEngine) {
  for (const std::string stage : {"stage1", "bf16_optimizer", "stage2", "stage3"}) {
    SCOPED_TRACE(stage);
    const auto checkpoint = DeepSpeedCheckpoint::open(kFolder + stage);
    expect_states(checkpoint, kFolder + stage + "/expected.safetensors");
    std::vector<std::string> names = {"embed.weight", "up.weight", "down.weight",
                                      "norm.weight",  "norm.bias", "up.bias"};
    if (stage == "stage2") {  // round_robin_gradients orders each group anew
      names = {"embed.weight", "down.weight", "up.weight", "norm.weight", "up.bias", "norm.bias"};
    }
    EXPECT_EQ(trained_names(checkpoint), names);
    EXPECT_EQ(checkpoint.folder(), kFolder + stage + "/global_step3");
  }
}

// The file holds moments too, but by number alone: they are not there.
TEST(DeepSpeedCheckpoint, StageZero_HasTheWeightsOfTheModule) {
  const auto checkpoint = DeepSpeedCheckpoint::open(kFolder + "stage0");
  const SafetensorsFile expected = SafetensorsFile::open(kFolder + "stage0/expected.safetensors");
  EXPECT_EQ(expected.header().tensors.size(), 6U);
  for (const TensorEntry& entry : expected.header().tensors) {
    const std::string name = entry.name.substr(std::string_view("weights/").size());
    const int64_t count = entry.shape.numel();
    std::vector<float> wanted(static_cast<size_t>(count));
    expected.read(entry, 0, View(wanted.data(), DType::f32, Shape{count}));
    EXPECT_EQ(read(checkpoint, name, StateKind::weights, 0, count), wanted) << name;
    EXPECT_FALSE(checkpoint.has(name, StateKind::exp_avg)) << name;
  }
  EXPECT_EQ(checkpoint.counters().global_steps, 3);
  EXPECT_EQ(checkpoint.aliases().at("head.weight"), "embed.weight");
  EXPECT_FALSE(checkpoint.has("scale", StateKind::weights)) << "a buffer";
}

TEST(DeepSpeedCheckpoint, UniversalCheckpoint_HasTheStatesThatItWasMadeOf) {
  const auto checkpoint = DeepSpeedCheckpoint::open(kFolder + "universal");
  expect_states(checkpoint, kFolder + "stage1/expected.safetensors");
  EXPECT_THAT(trained_names(checkpoint), ElementsAre("down.weight", "embed.weight", "norm.bias",
                                                     "norm.weight", "up.bias", "up.weight"));
}

TEST(DeepSpeedCheckpoint, CountersAliasesAndFrozenParameters_AreRead) {
  for (const std::string name : {"stage1", "bf16_optimizer", "stage2", "stage3", "universal"}) {
    SCOPED_TRACE(name);
    const auto checkpoint = DeepSpeedCheckpoint::open(kFolder + name, "global_step3");
    const DeepSpeedCounters& counters = checkpoint.counters();
    EXPECT_EQ(counters.global_steps, 3);
    EXPECT_EQ(counters.skipped_steps, 0);
    EXPECT_EQ(counters.global_samples, 12);
    EXPECT_EQ(counters.scheduler_last_step, 2);
    EXPECT_EQ(counters.loss_scale, 1.0);
    EXPECT_EQ(checkpoint.aliases().at("head.weight"), "embed.weight");
    EXPECT_EQ(read(checkpoint, "head.weight", StateKind::weights, 3, 40),
              read(checkpoint, "embed.weight", StateKind::weights, 3, 40));
    const auto& frozen = checkpoint.parameters().back();
    EXPECT_EQ(frozen.name, "gain");
    EXPECT_FALSE(frozen.trained);
    EXPECT_THAT(read(checkpoint, "gain", StateKind::weights, 0, 5),
                ElementsAre(0.5f, 0.75f, 1.0f, 1.25f, 1.5f));
    EXPECT_THAT(read(checkpoint, "gain", StateKind::weights, 2, 2), ElementsAre(1.0f, 1.25f));
    EXPECT_FALSE(checkpoint.has("gain", StateKind::exp_avg));
    EXPECT_FALSE(checkpoint.has("scale", StateKind::weights)) << "a buffer";
    EXPECT_EQ(message_of<DataError>([&] { read(checkpoint, "gain", StateKind::exp_avg, 0, 1); }),
              checkpoint.folder() + ": there are no exp_avg of \"gain\"");
  }
}

TEST(DeepSpeedCheckpoint, RangeOutsideAParameter_IsTheCallersMistake) {
  const auto checkpoint = DeepSpeedCheckpoint::open(kFolder + "stage2");
  EXPECT_THROW(read(checkpoint, "up.bias", StateKind::weights, 0, 8), InvalidArgument);
  EXPECT_THROW(read(checkpoint, "up.bias", StateKind::weights, -1, 2), InvalidArgument);
}

class CopiedCheckpoint {
 public:
  explicit CopiedCheckpoint(const std::string& name) : path_(folder_ / name) {
    std::filesystem::copy(kFolder + name, path_, std::filesystem::copy_options::recursive);
  }
  std::string operator/(const std::string& file) const { return tag() + '/' + file; }
  std::string tag() const { return path_ + "/global_step3"; }
  const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    folder_.write(std::filesystem::path(path_).filename().string() + '/' + file, text);
  }
  std::string error() const {
    return message_of<DataError>([&] { DeepSpeedCheckpoint::open(path_); });
  }

 private:
  ScratchFolder folder_;
  std::string path_;
};

TEST(DeepSpeedCheckpoint, MissingFiles_AreNamed) {
  const CopiedCheckpoint copy("stage1");
  std::filesystem::remove(copy / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_EQ(copy.error(),
            copy.tag() +
                ": there are optimizer files of 1 ranks, but 2 saved: copy the folders of all "
                "machines into one, without files of other runs");
  const CopiedCheckpoint other("stage1");
  std::filesystem::remove(other / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
  EXPECT_THAT(other.error(), HasSubstr("zero_pp_rank_0_mp_rank_00_optim_states.pt is missing"));
  std::filesystem::remove_all(other.tag());
  EXPECT_THAT(other.error(), HasSubstr("no folder 'global_step3', which the file `latest` names"));
  std::filesystem::remove(other.path() + "/latest");
  EXPECT_THAT(other.error(), HasSubstr(": no DeepSpeed checkpoint: "));
  const CopiedCheckpoint third("stage3");
  std::filesystem::remove(third / "zero_pp_rank_1_mp_rank_00_model_states.pt");
  EXPECT_THAT(third.error(), HasSubstr("hold 3 elements of gain [5]"));
}

TEST(DeepSpeedCheckpoint, FilesOfOtherRunsOrLayouts_AreRefused) {
  const CopiedCheckpoint mixed("stage1");
  std::filesystem::copy(mixed / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                        mixed / "zero_pp_rank_0_mp_rank_00_optim_states.pt");
  EXPECT_THAT(mixed.error(), HasSubstr("two files are of rank 0"));
  const CopiedCheckpoint swapped("stage1");
  std::filesystem::copy(kFolder + "stage2/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt",
                        swapped / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(swapped.error(), HasSubstr("the ranks' files are of different stages"));
  const CopiedCheckpoint same("stage1");
  std::filesystem::copy(same / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                        same / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(same.error(), HasSubstr("files of different runs"));
  for (const char* name :
       {"zero_pp_rank_0_mp_rank_01_model_states.pt", "layer_01-model_00-model_states.pt",
        "expp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_01_model_states.pt"}) {
    const CopiedCheckpoint parallel("stage1");
    parallel.write(str("global_step3/", name), "");
    EXPECT_THAT(parallel.error(), HasSubstr("ds_to_universal")) << name;
  }
}

TEST(DeepSpeedCheckpoint, TagThatReachesOut_IsRefused) {
  const CopiedCheckpoint copy("stage1");
  for (const char* tag : {"../stage1/global_step3", "/etc", ".", ".."}) {
    copy.write("latest", tag);
    EXPECT_THAT(copy.error(), HasSubstr("a tag must be the plain name of a folder in it")) << tag;
  }
  copy.write("latest", "global_step3\n");
  EXPECT_EQ(copy.error(), "(no error)");
}

// A byte of each file changed: a DataError, or other values; nothing else.
TEST(DeepSpeedCheckpoint, DamagedFile_IsAnErrorOrOtherValues) {
  for (const std::string stage : {"stage1", "stage3"}) {
    const CopiedCheckpoint copy(stage);
    for (const std::string& name : names_in(copy.tag())) {
      const std::string whole = read_whole_file(copy / name);
      for (size_t i = 0; i < whole.size(); i += 7) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
        copy.write("global_step3/" + name, damaged);
        try {
          const auto checkpoint = DeepSpeedCheckpoint::open(copy.path());
          for (const auto& parameter : checkpoint.parameters()) {
            if (parameter.shape.numel() > 1000) continue;
            read(checkpoint, parameter.name, StateKind::weights, 0, parameter.shape.numel());
          }
        } catch (const DataError&) {
        }
      }
      copy.write("global_step3/" + name, whole);
    }
    EXPECT_EQ(copy.error(), "(no error)");
  }
}

}  // namespace deepspeed_checkpoint_test
}  // namespace zinc::files
