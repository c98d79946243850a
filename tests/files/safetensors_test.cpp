#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "files/safetensors/format.h"
#include "files/safetensors/reader.h"
#include "files/safetensors/writer.h"
#include "tests/files/scratch_folder.h"

namespace zinc::files {
namespace safetensors_test {

using testing::ElementsAre;
using testing::IsEmpty;

// Written by the reference implementation: tests/reference/make_safetensors.py.
constexpr const char* kReference = "tests/reference/reference.safetensors";

template <class T>
ConstView host(const std::vector<T>& values) {
  return {values.data(), kDTypeOf<T>, Shape{static_cast<int64_t>(values.size())}};
}

template <class T>
std::vector<T> read(const SafetensorsFile& file, std::string_view name, int64_t begin,
                    int64_t count) {
  std::vector<T> out(static_cast<size_t>(count));
  file.read(*file.find(name), begin, View(out.data(), kDTypeOf<T>, Shape{count}));
  return out;
}

std::string file_bytes(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

TEST(SafetensorsReader, ReferenceFile_HasItsValues) {
  const SafetensorsFile file = SafetensorsFile::open(kReference);
  EXPECT_EQ(file.header().metadata, (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.header().tensors.size(), 9U);
  EXPECT_THAT(read<float>(file, "b.f32", 0, 6),
              ElementsAre(0.0f, -1.5f, 3.25f, 1e-30f, 1e30f, -0.0f));
  EXPECT_TRUE(std::signbit(read<float>(file, "b.f32", 5, 1)[0]));
  EXPECT_THAT(read<float>(file, "a.f32", 0, 1), ElementsAre(7.0f));
  EXPECT_THAT(read<double>(file, "double", 0, 2), ElementsAre(0.1, -0.2));
  EXPECT_THAT(read<int64_t>(file, "ids", 0, 4), ElementsAre(1, -2, 3, int64_t{1} << 40));
  EXPECT_THAT(read<int32_t>(file, "small", 0, 3), ElementsAre(1, -2, 3));
  EXPECT_THAT(read<uint8_t>(file, "bytes", 0, 3), ElementsAre(0, 127, 255));
  EXPECT_THAT(read<float>(file, "scalar", 0, 1), ElementsAre(2.5f));
  EXPECT_THAT(read<float>(file, "empty", 0, 0), IsEmpty());
  EXPECT_EQ(file.find("empty")->shape, (Shape{0, 4}));
  EXPECT_EQ(file.find("scalar")->shape, Shape{});
  EXPECT_EQ(file.find("b.f32")->shape, (Shape{2, 3}));
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(SafetensorsReader, Ranges_AreFlatElements) {
  const SafetensorsFile file = SafetensorsFile::open(kReference);
  EXPECT_THAT(read<float>(file, "b.f32", 1, 3), ElementsAre(-1.5f, 3.25f, 1e-30f));
  EXPECT_THAT(read<int64_t>(file, "ids", 3, 1), ElementsAre(int64_t{1} << 40));
  EXPECT_EQ(message_of<InvalidArgument>([&] { read<float>(file, "b.f32", 4, 3); }),
            "safetensors: elements [4, 7) of b.f32 [2, 3]");
}

TEST(SafetensorsReader, FloatTypes_AreConverted) {
  const SafetensorsFile file = SafetensorsFile::open(kReference);
  EXPECT_THAT(read<float>(file, "half", 0, 3), ElementsAre(1.0f, 65504.0f, -0x1p-14f));
  EXPECT_THAT(read<float>(file, "double", 0, 2), ElementsAre(0.1f, -0.2f));
  EXPECT_THAT(read<double>(file, "b.f32", 1, 2), ElementsAre(-1.5, 3.25));
  std::vector<bf16> rounded(2);
  file.read(*file.find("double"), 0, View(rounded.data(), DType::bf16, Shape{2}));
  EXPECT_EQ(rounded[0].bits, bf16(0.1f).bits);
  EXPECT_EQ(message_of<DataError>([&] { read<float>(file, "ids", 0, 1); }),
            std::string(kReference) + ": tensor \"ids\" is I64, which cannot be read as f32");
}

TEST(SafetensorsReader, LongConversion_CrossesItsChunks) {
  const ScratchFolder folder;
  constexpr int64_t kCount = 700'001;  // f32: 2.8 MB, three chunks
  std::vector<float> values(kCount);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251) - 100.0f;
  const std::vector<TensorSpec> specs = {{"w", DType::bf16, Shape{kCount}}};
  SafetensorsWriter writer(folder / "f", specs);
  writer.write("w", 0, host(values));
  writer.commit();
  const SafetensorsFile file = SafetensorsFile::open(folder / "f");
  EXPECT_EQ(read<float>(file, "w", 0, kCount), values);  // small integers are exact in bf16
  const std::vector<float> tail(values.begin() + 600'000, values.end());
  EXPECT_EQ(read<float>(file, "w", 600'000, kCount - 600'000), tail);
}

// A file that another program cuts while it is open.
TEST(SafetensorsReader, CutShortWhileInUse_IsADataError) {
  const ScratchFolder folder;
  const std::string path = folder.write("f", read_whole_file(kReference));
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(::truncate(path.c_str(), 630), 0);
  EXPECT_EQ(message_of<DataError>([&] { read<float>(file, "b.f32", 0, 6); }),
            path + ": ends at byte 630, before byte 652");
}

struct BadFile {
  std::string content;
  std::string message;  // behind the path
};

BadFile header(std::string_view text, size_t data_bytes, std::string message) {
  return {file_bytes(text, data_bytes), std::move(message)};
}

const std::vector<BadFile>& bad_files() {
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  const std::string hundred_megabytes("\x01\xe1\xf5\x05\0\0\0\0{}", 10);
  static const std::vector<BadFile> table = {
      {"", ": not a safetensors file: it has 0 bytes, fewer than the 8 of the header's length"},
      {"1234567",
       ": not a safetensors file: it has 7 bytes, fewer than the 8 of the header's length"},
      {huge,
       ": not a safetensors file: the first 8 bytes announce a header of 9223372036854775807 "
       "bytes; at most 100000000 are allowed"},
      {hundred_megabytes,
       ": not a safetensors file: the first 8 bytes announce a header of 100000001 bytes; at most "
       "100000000 are allowed"},
      {file_bytes("{}", 0).substr(0, 9),
       ": the header is announced with 2 bytes, but only 1 follow: the file is cut short or no "
       "safetensors file"},
      header("", 0, ": not a safetensors file: the header does not begin with '{'"),
      header(" {}", 0, ": not a safetensors file: the header does not begin with '{'"),
      header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9,
             ": the tensors end at byte 70, the file at 71"),
      header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
             ": tensor \"a\": data_offsets [0, 8] do not lie within the 7 bytes of data"),
      header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
             ": tensor \"a\": data_offsets [8, 0] do not lie within the 8 bytes of data"),
      header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
             ": tensor \"a\": shape [3] of F32 needs 12 bytes, data_offsets [0, 8] give 8"),
      header(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1,
             ": tensor \"a\": shape [3] of F4 does not fill whole bytes"),
      header(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8,
             ": tensor \"a\": unknown dtype \"F31\""),
      header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8,
             ": tensor \"a\": unknown key \"x\""),
      header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8,
             ": tensor \"a\": data_offsets must be [begin, end]"),
      header(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
             ": tensor \"a\": shape [4294967296, 4294967296] overflows"),
      header(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
             ": tensor \"a\": shape [4611686018427387904] overflows"),
      header(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
             ": tensor \"a\": has 7 dimensions; at most 6 are supported"),
      header(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
             ": tensor \"\": has no name"),
      header(R"({"a\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
             ": tensor \"a\\u0000\": its name holds a control character"),
      header(
          "{\"" + std::string(513, 'n') + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1, ": a tensor's name has 513 bytes; at most 512 are allowed"),
      header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
             3,
             ": tensor \"b\": its data begins at byte 1 of the data, inside the data before it, "
             "which ends at 2"),
      header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
             5,
             ": tensor \"b\": its data begins at byte 3 of the data, with a hole behind the data "
             "before it, which ends at 2"),
      header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
             ": tensor \"a\": its data begins at byte 1 of the data, with a hole behind the data "
             "before it, which ends at 0"),
  };
  return table;
}

TEST(SafetensorsReader, BadFile_IsADataErrorThatNamesIt) {
  const ScratchFolder folder;
  for (const BadFile& bad : bad_files()) {
    const std::string path = folder.write("f.safetensors", bad.content);
    EXPECT_EQ(message_of<DataError>([&] { SafetensorsFile::open(path); }), path + bad.message);
  }
}

// The JSON reader's own refusals: the beginning of the message is enough, its words are tested
// with it.
TEST(SafetensorsReader, BadJson_PointsIntoTheHeader) {
  struct Case {
    std::string text;
    std::string message;
  };
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::vector<Case> table = {
      {"{\"a\":" + tensor + ",\"a\":" + tensor + "}", " (header):1:54: duplicate key"},
      {"{\"a\xff\":" + tensor + "}", " (header):1:4: "},
      {"{\"a\":" + tensor + "}x", " (header):1:54: "},
      {"{\"a\":" + std::string(200'000, '['), " (header):1:"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}",
       " (header):1:29: a.shape[0]: "},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}",
       " (header):1:29: a.shape[0]: "},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}",
       " (header):1:28: a.shape: "},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", " (header):1:6: a: "},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,1]}}",
       " (header):1:29: a.shape[0]: "},
      {"{\"a\":7}", " (header):1:6: a: "},
      {"{\"__metadata__\":{\"format\":1},\"a\":" + tensor + "}", " (header):1:27: "},
      {"{\"a\":" + tensor + ",}", " (header):1:"},
  };
  const ScratchFolder folder;
  for (const Case& bad : table) {
    const std::string path = folder.write("f", file_bytes(bad.text, 1));
    EXPECT_THAT(message_of<DataError>([&] { SafetensorsFile::open(path); }),
                testing::StartsWith(path + bad.message));
  }
}

TEST(SafetensorsReader, PaddedHeaderAndForeignTypes_AreRead) {
  const ScratchFolder folder;
  const std::string path = folder.write(
      "f", file_bytes(R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[1,3]},)"
                      R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}      )",
                      3));
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.header().tensors[0].name, "b");
  EXPECT_EQ(file.find("a")->type, "F8_E4M3");
  EXPECT_EQ(file.find("a")->dtype, std::nullopt);
  EXPECT_EQ(message_of<DataError>([&] { read<uint8_t>(file, "a", 0, 2); }),
            path + ": tensor \"a\" is F8_E4M3, which cannot be read as u8");
}

TEST(SafetensorsReader, FloatsOfEightBits_AreReadAsFloats) {
  const ScratchFolder folder;
  const std::string header = R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[4,7]}}      )";
  std::string text;
  const auto length = static_cast<uint64_t>(header.size());
  text.append(reinterpret_cast<const char*>(&length), sizeof length);
  // 1, -448, the smallest (2^-9), 0; 1.5, -57344, 2^-16.
  text += header + std::string("\x38\xfe\x01\x00\x3e\xfb\x01", 7);
  const SafetensorsFile file = SafetensorsFile::open(folder.write("f", text));
  EXPECT_THAT(read<float>(file, "a", 0, 4),
              testing::ElementsAre(1.0f, -448.0f, std::exp2(-9.0f), 0.0f));
  EXPECT_THAT(read<float>(file, "b", 1, 2), testing::ElementsAre(-57344.0f, std::exp2(-16.0f)));
  EXPECT_THAT(read<double>(file, "b", 0, 1), testing::ElementsAre(1.5));
}

// Every file that differs from a good one in one byte of its header opens or is refused, and never
// does anything else (run under the sanitizers too).
TEST(SafetensorsReader, OneChangedByte_NeverPassesUnchecked) {
  const std::string good = read_whole_file(kReference);
  const int64_t size = static_cast<int64_t>(good.size());
  int refused = 0;
  for (size_t at = 0; at < 576; ++at) {
    for (const char change : {'\x01', '\x10', '\x80'}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      try {
        const int64_t length =
            safetensors_header_length(std::as_bytes(std::span(bytes)), size, "f");
        const SafetensorsHeader header =
            parse_safetensors_header(bytes.substr(8, static_cast<size_t>(length)), size, "f");
        int64_t end = header.data_begin;
        for (const TensorEntry& entry : header.tensors) {
          EXPECT_EQ(entry.begin, end);
          end = entry.end;
        }
        EXPECT_EQ(end, size);
      } catch (const DataError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);  // the accepted rest are changed names and metadata
}

std::vector<TensorSpec> reference_specs() {
  return {{"b.f32", DType::f32, Shape{2, 3}}, {"a.f32", DType::f32, Shape{1}},
          {"half", DType::f16, Shape{3}},     {"double", DType::f64, Shape{2}},
          {"ids", DType::i64, Shape{2, 2}},   {"small", DType::i32, Shape{3}},
          {"bytes", DType::u8, Shape{3}},     {"scalar", DType::f32, Shape{}},
          {"empty", DType::f32, Shape{0, 4}}};
}

TEST(SafetensorsWriter, ReferenceTensors_GiveTheReferenceBytes) {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "f", reference_specs());
  writer.write("bytes", 0, host<uint8_t>({0, 127, 255}));
  writer.write("b.f32", 3, host<float>({1e-30f, 1e30f, -0.0f}));
  writer.write("b.f32", 0, host<float>({0.0f}));
  writer.write("b.f32", 1, host<float>({-1.5f, 3.25f}));
  writer.write("a.f32", 0, host<float>({7.0f}));
  writer.write("half", 0, host<float>({1.0f, 65504.0f, -0x1p-14f}));  // rounded to f16
  writer.write("double", 0, host<double>({0.1, -0.2}));
  writer.write("ids", 0, host<int64_t>({1, -2, 3, int64_t{1} << 40}));
  writer.write("small", 0, host<int32_t>({1, -2, 3}));
  writer.write("scalar", 0, host<float>({2.5f}));
  writer.commit();
  EXPECT_EQ(read_whole_file(folder / "f"), read_whole_file(kReference));
}

TEST(SafetensorsWriter, Misuse_IsNamed) {
  const ScratchFolder folder;
  const std::vector<TensorSpec> specs = {{"w", DType::f32, Shape{2, 3}},
                                         {"ids", DType::i64, Shape{1}}};
  SafetensorsWriter writer(folder / "f", specs);
  const auto message = [&](std::string_view name, int64_t begin, ConstView values) {
    return message_of<InvalidArgument>([&] { writer.write(name, begin, values); });
  };
  const std::vector<float> two = {1, 2};
  writer.write("w", 2, host(two));
  EXPECT_EQ(message("v", 0, host(two)), "safetensors: " + (folder / "f") + " has no tensor \"v\"");
  EXPECT_EQ(message("w", 5, host(two)), "safetensors: elements [5, 7) of w [2, 3]");
  EXPECT_EQ(message("w", -1, host(two)), "safetensors: elements [-1, 1) of w [2, 3]");
  EXPECT_EQ(message("w", 3, host(two)), "safetensors: elements [3, 5) of w were written before");
  EXPECT_EQ(message("w", 1, host(two)), "safetensors: elements [1, 3) of w were written before");
  EXPECT_EQ(message("ids", 0, host<float>({1})), "safetensors: ids is i64, not f32");
  writer.write("w", 0, host(two));
  EXPECT_EQ(message("w", 0, host(two)), "safetensors: elements [0, 2) of w were written before");
  writer.write("ids", 0, host<int64_t>({1}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { writer.commit(); }),
            "safetensors: " + (folder / "f") + ": w was not written from element 4 of 6 on");
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
  writer.write("w", 4, host(two));
  writer.commit();
  EXPECT_EQ(read<float>(SafetensorsFile::open(folder / "f"), "w", 0, 6),
            (std::vector<float>{1, 2, 1, 2, 1, 2}));
}

TEST(SafetensorsWriter, BadNames_AreRefused) {
  const auto message = [](std::vector<TensorSpec> specs) {
    return message_of<InvalidArgument>([&] { safetensors_layout(specs, {}); });
  };
  EXPECT_EQ(message({{"a", DType::f32, Shape{1}}, {"a", DType::f16, Shape{2}}}),
            "safetensors: two tensors are called \"a\"");
  EXPECT_EQ(message({{"", DType::f32, Shape{1}}}), "safetensors: a tensor cannot be called \"\"");
  EXPECT_EQ(message({{"__metadata__", DType::f32, Shape{1}}}),
            "safetensors: a tensor cannot be called \"__metadata__\"");
}

TEST(SafetensorsWriter, WithoutCommit_LeavesNothing) {
  const ScratchFolder folder;
  const std::vector<TensorSpec> specs = {{"w", DType::f32, Shape{2}}};
  {
    SafetensorsWriter writer(folder / "f", specs);
    writer.write("w", 0, host<float>({1, 2}));
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(SafetensorsWriter, NoSpace_FailsBeforeAnythingIsWritten) {
  const ScratchFolder folder;
  const std::vector<TensorSpec> specs = {{"w", DType::f32, Shape{int64_t{1} << 58}}};
  try {
    SafetensorsWriter writer(folder / "f", specs);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), folder / "f");
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

}  // namespace safetensors_test
}  // namespace zinc::files
