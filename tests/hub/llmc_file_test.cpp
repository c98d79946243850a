#include "hub/llmc_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "hub/model_config.h"
#include "hub/weight_folder.h"
#include "hub/weight_reader.h"
#include "tests/files/scratch_folder.h"

namespace zinc::hub {
namespace llmc_file_test {

using testing::HasSubstr;

// tests/reference/make_torch.py and make_llmc.py.
const std::string kFolder = "tests/reference/torch/";

nn::Gpt2Config tiny_config() {
  return {.vocab_size = 20, .max_positions = 12, .hidden_size = 8, .num_layers = 2, .num_heads = 2};
}

std::vector<float> values_of(const WeightFile& file, size_t index, int64_t begin, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  file.read(index, begin, View(out.data(), DType::f32, Shape{count}));
  return out;
}

// The folder's names lack the prefix.
Shape shape_in(const WeightReader& weights, std::string_view name) {
  return weights.files().find(name.substr(std::string_view("transformer.").size()))->tensor().shape;
}

ReadParameter reader_of(const WeightReader& weights) {
  return [&weights](std::string_view name, int64_t begin, View out) {
    weights.read(name, shape_in(weights, name), begin, out);
  };
}

// Two readers that share nothing give the same model: safetensors and llm.c's file.
TEST(LlmcFile, ReadsTheModelOfTheSafetensorsFolder) {
  const WeightReader expected(WeightFolder::open(kFolder + "gpt2_expected"),
                              name_map(tiny_config()));
  for (const char* name : {"gpt2_f32_llmc.bin", "gpt2_bf16_llmc.bin"}) {
    SCOPED_TRACE(name);
    const LlmcFile file(files::InputFile::open(kFolder + name));
    EXPECT_EQ(file.config(), tiny_config());
    ASSERT_EQ(file.tensors().size(), 4U + 12U * 2U);
    for (size_t i = 0; i < file.tensors().size(); ++i) {
      const StoredTensor& tensor = file.tensors()[i];
      ASSERT_EQ(shape_in(expected, tensor.name), tensor.shape) << tensor.name;
      const int64_t count = tensor.shape.numel();
      std::vector<float> wanted(static_cast<size_t>(count));
      expected.read(tensor.name, tensor.shape, 0, View(wanted.data(), DType::f32, Shape{count}));
      EXPECT_EQ(values_of(file, i, 0, count), wanted) << tensor.name;
      for (int64_t begin = 0; begin < count; begin += 13) {
        const int64_t n = std::min<int64_t>(29, count - begin);
        EXPECT_EQ(values_of(file, i, begin, n),
                  std::vector<float>(wanted.begin() + begin, wanted.begin() + begin + n))
            << tensor.name << " from " << begin;
      }
    }
    // The same through what --init opens.
    const WeightReader opened(WeightFolder::open(kFolder + name));
    EXPECT_NE(opened.files().find("transformer.h.1.mlp.c_proj.weight"), nullptr);
  }
}

TEST(LlmcFile, Writer_GivesTheBytesOfTheReference) {
  const files::ScratchFolder folder;
  const WeightReader weights(WeightFolder::open(kFolder + "gpt2_expected"),
                             name_map(tiny_config()));
  write_llmc_file(folder / "f32.bin", tiny_config(), DType::f32, reader_of(weights));
  EXPECT_TRUE(files::read_whole_file(folder / "f32.bin") ==
              files::read_whole_file(kFolder + "gpt2_f32_llmc.bin"));
  write_llmc_file(folder / "bf16.bin", tiny_config(), DType::bf16, reader_of(weights));
  EXPECT_TRUE(files::read_whole_file(folder / "bf16.bin") ==
              files::read_whole_file(kFolder + "gpt2_bf16_llmc.bin"));
}

// Matrices larger than a block of the reader and of the writer.
TEST(LlmcFile, LargeMatrices_RoundTripInBlocks) {
  const files::ScratchFolder folder;
  const nn::Gpt2Config config{
      .vocab_size = 3, .max_positions = 2, .hidden_size = 768, .num_layers = 1, .num_heads = 12};
  const auto value = [](std::string_view name, int64_t i) {
    return static_cast<float>(i + static_cast<int64_t>(name.size()));
  };
  write_llmc_file(folder / "large.bin", config, DType::f32,
                  [&](std::string_view name, int64_t begin, View out) {
                    for (int64_t i = 0; i < out.numel(); ++i) {
                      out.data_as<float>()[i] = value(name, begin + i);
                    }
                  });
  const LlmcFile file(files::InputFile::open(folder / "large.bin"));
  for (size_t t = 0; t < file.tensors().size(); ++t) {
    const StoredTensor& tensor = file.tensors()[t];
    const std::vector<float> values = values_of(file, t, 5 % tensor.shape.numel(),
                                                tensor.shape.numel() - 5 % tensor.shape.numel());
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i) + 5 % tensor.shape.numel();
      ASSERT_EQ(values[i], value(tensor.name, at)) << tensor.name << ' ' << at;
    }
  }
}

TEST(LlmcFile, OtherFiles_AreRefused) {
  const files::ScratchFolder folder;
  const std::string whole = files::read_whole_file(kFolder + "gpt2_f32_llmc.bin");
  const auto error = [&](size_t at, int32_t number) {
    std::string changed = whole;
    std::memcpy(changed.data() + 4 * at, &number, 4);
    const std::string path = folder.write("changed.bin", changed);
    return files::message_of<DataError>([&] { LlmcFile(files::InputFile::open(path)); });
  };
  EXPECT_EQ(error(0, 20240326), "(no error)");
  EXPECT_THAT(error(1, 1), HasSubstr("version 1 of llm.c's weights; zinc reads 3 (f32) and 5"));
  EXPECT_THAT(error(1, 5), HasSubstr("bytes, the file has"));
  EXPECT_THAT(error(2, 13), HasSubstr("bytes, the file has"));
  for (size_t at = 2; at < 8; ++at) {
    for (const int32_t number : {-1, 0}) {
      EXPECT_THAT(error(at, number), HasSubstr("the header's sizes make no GPT-2")) << at;
    }
  }
  EXPECT_THAT(error(6, 9), HasSubstr("make no GPT-2")) << "not divisible by the heads";
  EXPECT_THAT(error(4, 2'000'000'000), HasSubstr("make no GPT-2"));
  for (const size_t length : {size_t{4}, size_t{1023}, whole.size() - 1}) {
    const std::string path = folder.write("cut.bin", whole.substr(0, length));
    EXPECT_THROW(LlmcFile(files::InputFile::open(path)), DataError) << length;
  }
}

TEST(LlmcFile, ModelsThatTheFormatCannotHold_AreRefused) {
  const files::ScratchFolder folder;
  const auto error = [&](auto change) {
    nn::Gpt2Config config = tiny_config();
    change(config);
    return files::message_of<ConfigError>([&] {
      write_llmc_file(folder / "x.bin", config, DType::f32, [](std::string_view, int64_t, View) {});
    });
  };
  EXPECT_EQ(error([](auto& c) { c.tie_word_embeddings = false; }),
            "llm.c's weights have no place for an lm_head of its own");
  EXPECT_THAT(error([](auto& c) { c.intermediate_size = 24; }), HasSubstr("n_inner"));
  EXPECT_THAT(error([](auto& c) { c.layer_norm_epsilon = 1e-6; }), HasSubstr("epsilon"));
  EXPECT_THAT(error([](auto& c) { c.activation = nn::Gpt2Activation::relu; }),
              HasSubstr("activation"));
  EXPECT_THAT(folder.names(), testing::IsEmpty());
}

}  // namespace llmc_file_test
}  // namespace zinc::hub
