#include "hub/weight_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/safetensors/folder.h"
#include "tests/files/scratch_folder.h"

namespace zinc::hub {
namespace weight_folder_test {

using testing::ElementsAre;

ConstView host(const std::vector<float>& values) {
  return {values.data(), DType::f32, Shape{static_cast<int64_t>(values.size())}};
}

std::vector<files::TensorSpec> specs() {
  return {{"z", DType::f32, Shape{4}},
          {"a", DType::f32, Shape{2}},
          {"m", DType::f32, Shape{2, 2}},
          {"big", DType::f32, Shape{9}},
          {"b", DType::f32, Shape{1}}};
}

void write_all(const std::string& folder, int64_t max_shard_bytes) {
  files::SafetensorsFolderWriter writer(folder, specs(), max_shard_bytes);
  for (const files::TensorSpec& spec : specs()) {
    std::vector<float> values(static_cast<size_t>(spec.shape.numel()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i) + 100.0f * static_cast<float>(spec.name[0]);
    }
    writer.write(spec.name, 0, host(values));
  }
  writer.commit();
}

void expect_all(const WeightFolder& folder) {
  ASSERT_EQ(folder.tensors().size(), 5U);
  for (const files::TensorSpec& spec : specs()) {
    const WeightFolder::Location* location = folder.find(spec.name);
    ASSERT_NE(location, nullptr) << spec.name;
    EXPECT_EQ(location->tensor().shape, spec.shape);
    std::vector<float> values(static_cast<size_t>(spec.shape.numel()));
    location->read(0, View(values.data(), DType::f32, Shape{spec.shape.numel()}));
    EXPECT_EQ(values.back(),
              static_cast<float>(values.size() - 1) + 100.0f * static_cast<float>(spec.name[0]));
  }
  EXPECT_EQ(folder.find("absent"), nullptr);
}

TEST(PlanShards, FillsInOrderAndNeverDivides) {
  // The tensors have 16, 8, 16, 36 and 4 bytes.
  EXPECT_EQ(files::plan_shards(specs(), 24),
            (std::vector<std::vector<size_t>>{{0, 1}, {2}, {3}, {4}}));
  EXPECT_EQ(files::plan_shards(specs(), 40), (std::vector<std::vector<size_t>>{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(files::plan_shards(specs(), 39),
            (std::vector<std::vector<size_t>>{{0, 1}, {2}, {3}, {4}}));
  EXPECT_EQ(files::plan_shards(specs(), 1000), (std::vector<std::vector<size_t>>{{0, 1, 2, 3, 4}}));
}

TEST(WeightFolder, OneFile_RoundTrips) {
  const files::ScratchFolder folder;
  write_all(folder.path(), files::kDefaultShardBytes);
  EXPECT_THAT(folder.names(), ElementsAre("model.safetensors"));
  expect_all(WeightFolder::open(folder.path()));
  expect_all(WeightFolder::open(folder / "model.safetensors"));
}

TEST(WeightFolder, Shards_RoundTripThroughTheIndex) {
  const files::ScratchFolder folder;
  write_all(folder.path(), 40);
  EXPECT_THAT(folder.names(),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
  expect_all(WeightFolder::open(folder.path()));
  EXPECT_EQ(files::read_whole_file(folder / "model.safetensors.index.json"), R"({
  "metadata": {
    "total_parameters": 20,
    "total_size": 80
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00002-of-00002.safetensors",
    "big": "model-00002-of-00002.safetensors",
    "m": "model-00001-of-00002.safetensors",
    "z": "model-00001-of-00002.safetensors"
  }
}
)");
}

TEST(WeightFolder, OneFileOfAnotherName_IsFound) {
  const files::ScratchFolder folder;
  write_all(folder.path(), files::kDefaultShardBytes);
  std::filesystem::rename(folder / "model.safetensors", folder / "pytorch.safetensors");
  expect_all(WeightFolder::open(folder.path()));
  std::filesystem::copy(folder / "pytorch.safetensors", folder / "second.safetensors");
  EXPECT_EQ(files::message_of<DataError>([&] { WeightFolder::open(folder.path()); }),
            folder.path() +
                ": there are no weights: none of model.safetensors, model.safetensors.index.json, "
                "pytorch_model.bin, pytorch_model.bin.index.json; and more than one other "
                ".safetensors file");
}

TEST(WeightFolder, NothingThere_SaysWhatIsMissing) {
  const files::ScratchFolder folder;
  folder.write("training_args.bin", "x");
  EXPECT_EQ(files::message_of<DataError>([&] { WeightFolder::open(folder.path()); }),
            folder.path() +
                ": there are no weights: none of model.safetensors, model.safetensors.index.json, "
                "pytorch_model.bin, pytorch_model.bin.index.json; and no other .safetensors file");
  EXPECT_EQ(files::message_of<DataError>([&] { WeightFolder::open(folder / "absent"); }),
            "there is no file '" + (folder / "absent") + "'");
}

TEST(WeightFolder, IndexThatReachesOut_IsRefused) {
  const files::ScratchFolder folder;
  write_all(folder.path(), files::kDefaultShardBytes);
  for (const std::string name :
       {"../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ".hidden.safetensors",
        "", "a\\\\b.safetensors", "model.safetensors\\u0000"}) {
    const std::string inner = folder.write("inner/model.safetensors.index.json",
                                           "{\"weight_map\":{\n\"a\": \"" + name + "\"}}");
    EXPECT_THAT(
        files::message_of<DataError>([&] { WeightFolder::open(folder / "inner"); }),
        testing::StartsWith(inner + ":2:6: weight_map.a: a shard must be a plain file name in the "
                                    "folder of the index\n"))
        << name;
  }
}

TEST(WeightFolder, IndexThatDoesNotFit_IsRefused) {
  const files::ScratchFolder folder;
  write_all(folder.path(), 40);
  const auto message = [&](const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    std::string text = files::message_of<DataError>([&] { WeightFolder::open(folder.path()); });
    return text.substr(0, text.find('\n'));
  };
  const std::string path = folder / "model.safetensors.index.json";
  EXPECT_EQ(message(R"({"weight_map": {"a": "pytorch_model.bin"}})"),
            path + ":1:22: weight_map.a: a shard must be a .safetensors file");
  EXPECT_EQ(message(R"({"weight_map": {"a": "model-00003-of-00002.safetensors"}})"),
            path + ":1:22: weight_map.a: there is no file '" +
                (folder / "model-00003-of-00002.safetensors") +
                "': a download that is not complete?");
  EXPECT_EQ(message(R"({"weight_map": {"big": "model-00001-of-00002.safetensors"}})"),
            path + ":1:24: weight_map.big: this file does not hold the tensor");
  EXPECT_THAT(message(R"({"metadata": {}})"), testing::StartsWith(path + ":1:1: "));
}

TEST(SafetensorsFolderWriter, DuplicateNames_AreRefused) {
  const files::ScratchFolder folder;
  const std::vector<files::TensorSpec> twice = {{"a", DType::f32, Shape{4}},
                                                {"a", DType::f32, Shape{4}}};
  EXPECT_EQ(files::message_of<InvalidArgument>(
                [&] { files::SafetensorsFolderWriter(folder.path(), twice, 16); }),
            "safetensors: two tensors are called \"a\"");
  EXPECT_THAT(folder.names(), testing::IsEmpty());
}

// Both layouts of torch.save's files hold what the safetensors file beside them holds
// (tests/reference/make_torch.py).
TEST(WeightFolder, FilesOfTorchSave_HoldTheSameTensors) {
  const std::string root = "tests/reference/torch/";
  const WeightFolder expected = WeightFolder::open(root + "gpt2_expected");
  for (const std::string name : {"gpt2", "gpt2_shards"}) {
    const WeightFolder folder = WeightFolder::open(root + name);
    EXPECT_EQ(folder.tensors().size(), expected.tensors().size() + 2) << "two masks of attention";
    for (const auto& [tensor, location] : expected.tensors()) {
      const WeightFolder::Location* found = folder.find(tensor);
      ASSERT_NE(found, nullptr) << tensor;
      ASSERT_EQ(found->tensor().shape, location.tensor().shape) << tensor;
      const int64_t count = location.tensor().shape.numel();
      std::vector<float> wanted(static_cast<size_t>(count)), read(wanted);
      location.read(0, View(wanted.data(), DType::f32, Shape{count}));
      found->read(0, View(read.data(), DType::f32, Shape{count}));
      EXPECT_EQ(read, wanted) << name << ' ' << tensor;
      // A part of it, from the middle on.
      const int64_t begin = count / 2;
      std::vector<float> part(static_cast<size_t>(count - begin));
      found->read(begin, View(part.data(), DType::f32, Shape{count - begin}));
      EXPECT_EQ(part, std::vector<float>(wanted.begin() + begin, wanted.end())) << tensor;
    }
  }
}

TEST(WeightFolder, Safetensors_AreTakenBeforeFilesOfTorchSave) {
  const files::ScratchFolder folder;
  write_all(folder.path(), files::kDefaultShardBytes);
  std::filesystem::copy("tests/reference/torch/gpt2/pytorch_model.bin",
                        folder / "pytorch_model.bin");
  expect_all(WeightFolder::open(folder.path()));
}

TEST(WeightFolder, FileOfTorchSaveThatIsNoStateDict_IsRefused) {
  EXPECT_THAT(
      files::message_of<DataError>([&] { WeightFolder::open("tests/reference/torch/values.pt"); }),
      testing::EndsWith(": the entry \"none\" is None, not a tensor: save "
                        "model.state_dict() alone"));
}

}  // namespace weight_folder_test
}  // namespace zinc::hub
