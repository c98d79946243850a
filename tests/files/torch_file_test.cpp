#include "files/torch/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "tests/files/scratch_folder.h"

namespace zinc::files::torch {
namespace torch_file_test {

using testing::ElementsAre;
using testing::HasSubstr;

// Written by PyTorch itself: tests/reference/make_torch.py.
const std::string kFolder = "tests/reference/torch/";

template <class T>
std::vector<T> read(const TorchFile& file, const TensorRecord& tensor, int64_t begin = 0,
                    int64_t count = -1) {
  if (count < 0) count = tensor.shape.numel() - begin;
  std::vector<T> out(static_cast<size_t>(count));
  file.read(tensor, begin, View(out.data(), kDTypeOf<T>, Shape{count}));
  return out;
}

template <class T>
std::vector<T> read(const TorchFile& file, std::string_view key, int64_t begin = 0,
                    int64_t count = -1) {
  return read<T>(file, file.root().at(key).as_tensor(), begin, count);
}

void expect_values(const Value& root) {
  EXPECT_TRUE(root.at("none").is_none());
  EXPECT_TRUE(root.at("yes").as_bool());
  EXPECT_FALSE(root.at("no").as_bool());
  EXPECT_EQ(root.at("small").as_int64(), 7);
  EXPECT_EQ(root.at("word").as_int64(), 40'000);
  EXPECT_EQ(root.at("negative").as_int64(), -5);
  EXPECT_EQ(root.at("long").as_int64(), (int64_t{1} << 40) + 1);
  EXPECT_EQ(root.at("negative_long").as_int64(), -(int64_t{1} << 62));
  EXPECT_EQ(root.at("float").as_double(), 0.1);
  EXPECT_EQ(root.at("text").as_string(),
            "gr\xc3\xbc\xc3\x9f"
            "e");
  EXPECT_EQ(root.at("bytes").as_bytes(), std::string_view("\x00\xff"
                                                          "ab",
                                                          4));
  EXPECT_EQ(root.at("array").as_bytes(), "xyz");
  const Value list = root.at("list");
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list.at(size_t{0}).as_int64(), 1);
  EXPECT_EQ(list.at(size_t{1}).at(size_t{1}).as_int64(), 3);
  EXPECT_EQ(list.at(size_t{2}).size(), 0U);
  for (size_t i = 0; i < 4; ++i) {
    const Value tuple = root.at("tuples").at(i);
    EXPECT_EQ(tuple.kind(), Kind::tuple);
    ASSERT_EQ(tuple.size(), i + 1);
    EXPECT_EQ(tuple.at(i).as_int64(), static_cast<int64_t>(i + 1));
  }
  EXPECT_EQ(root.at("set").kind(), Kind::set);
  EXPECT_EQ(root.at("set").at(size_t{0}).as_int64(), 5);
  EXPECT_EQ(root.at("size").kind(), Kind::tuple);
  EXPECT_EQ(root.at("size").at(size_t{1}).as_int64(), 3);
  EXPECT_EQ(root.at("counter").at("a").as_int64(), 2);
  EXPECT_EQ(root.at("default").at("k").at(size_t{0}).as_int64(), 1);
  const Value arguments = root.at("arguments");
  EXPECT_EQ(arguments.type_name(), "argparse.Namespace");
  EXPECT_EQ(arguments.state().at("lr").as_double(), 0.5);
  EXPECT_EQ(root.at("dtype").type_name(), "torch.bfloat16");
}

TEST(TorchFile, PlainValues_AreThoseOfPython) {
  const TorchFile file = TorchFile::open(kFolder + "values.pt");
  expect_values(file.root());
  EXPECT_EQ(file.root().at("huge").type_name(), "int");
  EXPECT_EQ(file.root().at("state").size(), 2U);
  expect_values(TorchFile::open(kFolder + "protocol4.pt").root());
}

TEST(TorchFile, Tensors_HaveTheirTypesAndValues) {
  const TorchFile file = TorchFile::open(kFolder + "values.pt");
  EXPECT_THAT(read<double>(file, "f64"), ElementsAre(0.1, -1e300));
  EXPECT_THAT(read<float>(file, "f16"), ElementsAre(0.5f, -65504.0f));
  EXPECT_THAT(read<float>(file, "bf16"), ElementsAre(1.5f, static_cast<float>(bf16(-3e38f))));
  EXPECT_THAT(read<int64_t>(file, "i64"), ElementsAre(int64_t{1} << 40, -1));
  EXPECT_THAT(read<int32_t>(file, "i32"), ElementsAre(5, -6));
  EXPECT_THAT(read<uint8_t>(file, "u8"), ElementsAre(0, 255));
  EXPECT_THAT(read<float>(file, "scalar"), ElementsAre(2.5f));
  EXPECT_THAT(read<float>(file, "parameter"), ElementsAre(3.0f, 4.0f));
  EXPECT_THAT(read<float>(file, "empty"), ElementsAre());
  EXPECT_EQ(file.root().at("i64").as_tensor().shape, (Shape{1, 2}));
  EXPECT_EQ(file.root().at("empty").as_tensor().shape, (Shape{0, 3}));
  for (const char* name : {"i16", "flag", "u32"}) {
    EXPECT_FALSE(file.root().at(name).as_tensor().type.dtype.has_value()) << name;
    EXPECT_THROW(read<int32_t>(file, name), DataError) << name;
  }
  EXPECT_EQ(message_of<DataError>([&] { read<float>(file, "i32"); }),
            kFolder + "values.pt: a tensor [2] is int32, which cannot be read as f32");
}

TEST(TorchFile, ViewsOfOneStorage_AreReadByTheirStrides) {
  const TorchFile file = TorchFile::open(kFolder + "values.pt");
  const Value root = file.root();
  EXPECT_EQ(root.at("state").at("b").as_tensor().storage, root.at("columns").as_tensor().storage);
  std::vector<float> grid(24);
  for (size_t i = 0; i < grid.size(); ++i) grid[i] = static_cast<float>(i);
  EXPECT_EQ(read<float>(file, "shared"), grid);
  EXPECT_THAT(read<float>(file, "columns"), ElementsAre(1, 2, 3, 7, 8, 9, 13, 14, 15, 19, 20, 21));
  EXPECT_THAT(read<float>(file, "columns", 2, 5), ElementsAre(3, 7, 8, 9, 13));
  EXPECT_THAT(read<float>(file, "rows", 5, 3), ElementsAre(5, 12, 13));
  EXPECT_THAT(read<float>(file, "last_rows", 1, 2), ElementsAre(13, 14));
  EXPECT_THAT(read<float>(file, "expanded"), ElementsAre(1, 2, 1, 2, 1, 2));
  EXPECT_EQ(message_of<DataError>([&] { read<float>(file, "transposed"); }),
            kFolder +
                "values.pt: a tensor [6, 4] is stored with its rows apart (transposed); call "
                ".contiguous() on it before it is saved");
}

TEST(TorchFile, OtherFiles_AreRefusedByName) {
  const ScratchFolder folder;
  const std::string text = folder.write("text.bin", "hello");
  EXPECT_THAT(message_of<DataError>([&] { TorchFile::open(text); }),
              HasSubstr(": not a file of torch.save: "));
  EXPECT_THROW(TorchFile::open(folder.write("empty.bin", "")), DataError);
  EXPECT_THROW(TorchFile::open(folder / "absent.bin"), DataError);
}

// The row of pickles of before PyTorch 1.6, with one tensor, w = [1].
TEST(TorchFile, FirstLayout_IsRead) {
  const TorchFile file = TorchFile::open(kFolder + "legacy.pt");
  EXPECT_THAT(read<float>(file, "w"), ElementsAre(1.0f));
  const ScratchFolder folder;
  std::string whole = read_whole_file(kFolder + "legacy.pt");
  const auto said = [&](const std::string& bytes) {
    const std::string path = folder.write("damaged.bin", bytes);
    return message_of<DataError>([&] { TorchFile::open(path); });
  };
  EXPECT_THAT(said(whole.substr(0, whole.size() - 1)), HasSubstr("the file: it is cut short"));
  EXPECT_THAT(said(whole.substr(0, 200)), HasSubstr("cut short"));
  std::string longer = whole;
  longer[whole.size() - 12] = 2;  // the storage's number of elements
  EXPECT_THAT(said(longer), HasSubstr("has 2 elements, its tensors say 1"));
  whole[18] = 'x';  // a byte of 1001
  EXPECT_THAT(said(whole), HasSubstr("this version"));
}

TEST(TorchFile, ChangedByteOfATensor_IsFound) {
  const ScratchFolder folder;
  std::string bytes = read_whole_file(kFolder + "small.pt");
  const float two = 2.0f;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&two), sizeof two));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 3] ^= 1;
  const TorchFile file = TorchFile::open(folder.write("small.pt", bytes));
  EXPECT_THAT(message_of<DataError>([&] { read<float>(file, "w"); }),
              HasSubstr("have another CRC-32 than the zip file says"));
}

TEST(TorchFile, WrongKinds_AreRefusedWithTheirPlace) {
  const TorchFile file = TorchFile::open(kFolder + "values.pt");
  EXPECT_THAT(message_of<DataError>([&] { file.root().at("text").as_int64(); }),
              testing::MatchesRegex(".*values.pt: values/data.pkl: byte [0-9]+: expected an "
                                    "integer, found a string"));
  EXPECT_THAT(message_of<DataError>([&] { file.root().at("other"); }),
              testing::EndsWith("the key \"other\" is missing"));
  EXPECT_THAT(message_of<DataError>([&] { file.root().at("list").at(size_t{9}); }),
              testing::EndsWith("has 3 elements, and number 9 is needed"));
  EXPECT_THROW(file.root().at("small").size(), DataError);
}

// Every value that can be reached, so that a damaged file shows what it does to a reader.
void read_everything(const TorchFile& file) {
  std::vector<Value> open{file.root()};
  int64_t budget = 10'000;  // a graph may be large as a tree
  while (!open.empty() && --budget > 0) {
    const Value value = open.back();
    open.pop_back();
    switch (value.kind()) {
      case Kind::list:
      case Kind::tuple:
      case Kind::set:
        for (size_t i = 0; i < value.size(); ++i) open.push_back(value.at(i));
        break;
      case Kind::dict:
        for (size_t i = 0; i < value.size(); ++i) open.push_back(value.value(i));
        break;
      case Kind::tensor: {
        const TensorRecord& tensor = value.as_tensor();
        if (!tensor.type.dtype || tensor.shape.numel() > 4096) break;
        std::vector<std::byte> out(
            static_cast<size_t>(tensor.shape.numel() * size_of(*tensor.type.dtype)));
        try {
          file.read(tensor, 0, View(out.data(), *tensor.type.dtype, Shape{tensor.shape.numel()}));
        } catch (const DataError&) {
        }
        break;
      }
      default:
        break;
    }
  }
}

// Counts the refusals of a file with every `step`-th byte changed in turn, and cut there.
// Everything that is read lies in the file, which the build with sanitizers checks.
int refusals_of_damage(const std::string& name, size_t step) {
  const ScratchFolder folder;
  const std::string whole = read_whole_file(kFolder + name);
  const auto opens = [&](const std::string& bytes) {
    const std::string path = folder.write("damaged.pt", bytes);
    try {
      read_everything(TorchFile::open(path));
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  EXPECT_TRUE(opens(whole));
  int refused = 0;
  for (size_t i = 0; i < whole.size(); i += step) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 3 == 0 ? 0xff : 1 << (i % 8)));
    if (!opens(damaged)) ++refused;
    EXPECT_FALSE(opens(whole.substr(0, i))) << i;
  }
  return refused;
}

// A DataError, or other values; nothing else.
TEST(TorchFile, DamageAtAnyByte_IsAnErrorOrAnotherValue) {
  EXPECT_GT(refusals_of_damage("small.pt", 1), 300);
  EXPECT_GT(refusals_of_damage("values.pt", 11), 100);
  EXPECT_GT(refusals_of_damage("legacy.pt", 1), 100);
}

}  // namespace torch_file_test
}  // namespace zinc::files::torch
