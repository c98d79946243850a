// The cost of a manifest before it is believed: files that were made to take long, or much memory,
// are refused at a limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"
#include "files/input_file.h"
#include "tests/files/scratch_folder.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/format.h"

namespace zinc::train {
namespace checkpoint_limits_test {

using testing::HasSubstr;

uint32_t crc_of(const std::string& text) { return crc32c(std::as_bytes(std::span(text))); }

// A manifest with the checksum of its text.
std::string sealed(const std::string& rest) {
  return fmt::format("{{\"crc32c\":\"{:08x}\",{}", crc_of(rest), rest);
}

// The bytes that this thread has asked the kernel to read so far.
int64_t bytes_read() {
  std::ifstream counters("/proc/thread-self/io");
  int64_t bytes = -1;
  std::string label;
  return counters >> label >> bytes && label == "rchar:" ? bytes : -1;
}

std::string sparse_file(const files::ScratchFolder& folder, const std::string& name,
                        int64_t bytes) {
  const std::string path = folder.write(name, "{");
  std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
  return path;
}

std::string refused(const files::ScratchFolder& folder) {
  return files::message_of<DataError>([&] { Checkpoint::open(folder.path()); });
}

std::string repeated(const std::string& text, size_t bytes) {
  std::string all;
  while (all.size() + text.size() <= bytes) all += text;
  return all;
}

TEST(ManifestLimits, OneOfAGibibyteIsRefusedUnread) {
  const files::ScratchFolder folder;
  sparse_file(folder, "manifest.json", int64_t{1} << 30);
  const int64_t before = bytes_read();
  ASSERT_GE(before, 0);
  EXPECT_THAT(refused(folder), HasSubstr("1073741824 bytes"));
  EXPECT_LT(bytes_read() - before, int64_t{1} << 20);
}

// Files as large as bytes or values allow, with right checksums: each ends at the limit that keeps
// it short, or at the first check behind it.
TEST(ManifestLimits, WhatIsMadeToTakeLongEndsAtALimit) {
  const files::ScratchFolder folder;
  constexpr size_t kMost = kMaxManifestBytes - 64;
  const std::string file = "{\"name\":\"f\",\"bytes\":1,\"crc32c\":\"00000000\"},";
  std::string files, indices;
  for (int64_t i = 0; i < kMaxManifestValues / 6; ++i) {
    const std::string name = fmt::format("f{}", i);
    files += fmt::format("{{\"name\":\"{}\",\"bytes\":1,\"crc32c\":\"00000000\"}},", name);
    indices += fmt::format("\"{}\",", name);
  }
  files.pop_back();
  indices.pop_back();
  const std::string head = "\"format\":\"zinc checkpoint\",\"version\":1,";
  const std::string rest =
      "\"world\":16777216,\"seed\":0,\"engine\":{\"steps\":1,\"applied\":1,"
      "\"consecutive_skips\":0,\"optimizer\":\"adam\",\"kinds\":[\"weights\"],\"loss_scale\":"
      "{\"dynamic\":false,\"scale\":1,\"steps\":1,\"last_overflow\":-1,\"hysteresis\":1},"
      "\"schedule\":{\"updates\":1,\"fixed_lr\":null}},\"client_state\":{},";
  struct Case {
    std::string words;
    std::string text;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {"values", head + "\"client_state\":[" + repeated("1,", kMost - 200) + "1]}",
            "more than 40000 values"},
           {"containers", head + "\"client_state\":[" + repeated("[],", kMost - 200) + "1]}",
            "more than 40000 values"},
           {"depth", head + "\"client_state\":" + repeated("[", kMost - 200), "nested deeper"},
           {"one text", head + "\"format\":\"" + repeated("x", kMost - 200) + "\"}", "format"},
           {"duplicate keys", head + repeated("\"a\":1,", kMost / 9) + "\"a\":1}", "duplicate"},
           {"ranks", head + rest + "\"files\":[" + files + "],\"indices\":[" + indices + "]}",
            "one for each rank"},
           {"names",
            head + rest + "\"files\":[" + repeated(file, file.size() * kMaxManifestValues / 5) +
                "{\"name\":\"g\",\"bytes\":1,\"crc32c\":\"00000000\"}],\"indices\":[]}",
            "twice"},
       }) {
    SCOPED_TRACE(c.words);
    const std::string text = sealed(c.text);
    ASSERT_LE(text.size(), static_cast<size_t>(kMaxManifestBytes));
    folder.write("manifest.json", text);
    EXPECT_THAT(refused(folder), HasSubstr(c.message));
  }
}

TEST(ManifestLimits, AnIndexIsBoundByItsStateFile) {
  EXPECT_EQ(max_index_bytes(0), 65536);
  EXPECT_EQ(max_index_bytes(4096), 65536 + 8192);
  EXPECT_EQ(max_index_bytes(int64_t{1} << 50), kMaxIndexBytes);
  EXPECT_EQ(max_index_bytes(std::numeric_limits<int64_t>::max()), kMaxIndexBytes);
  // The names are longer than any real one.
  const StateIndex index{.file = "state-00000-of-00001.safetensors",
                         .bytes = 4100,
                         .header_bytes = 4096,
                         .parts = {{.name = std::string(kMaxStoredNameBytes, 'a'),
                                    .kind = "weights",
                                    .shape = {1},
                                    .count = 1,
                                    .blocks = {0}}}};
  EXPECT_EQ(parse_state_index(to_json(index), "index").parts.size(), 1U);
  StateIndex longer = index;
  longer.parts[0].name += 'a';
  EXPECT_THAT(files::message_of<DataError>([&] { parse_state_index(to_json(longer), "index"); }),
              HasSubstr("a name of 513 bytes: at most 512"));
}

}  // namespace checkpoint_limits_test
}  // namespace zinc::train
