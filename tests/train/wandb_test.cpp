// Offline runs of Weights & Biases: the bytes, and the run that they hold by a reader that was
// written against the format. tests/reference/read_wandb.py reads the same file with the real
// package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/files/scratch_folder.h"
#include "train/metrics/wandb_sink.h"

namespace zinc::train {
namespace wandb_test {

using testing::ElementsAre;
using testing::HasSubstr;

WandbRun example_run() {
  return {.id = "abcd1234",
          .project = "zinc",
          .entity = "team",
          .group = "group",
          .name = "first",
          .config = R"({"seed": 7, "optimizer": {"type": "Adam"}})",
          .start_time = 1700000000.5};
}

StepMetrics step(int64_t number, double loss) {
  return {.step = number,
          .loss = loss,
          .lr = 0.25,
          .grad_norm = 2.0,
          .samples = 8 * number,
          .wall_time = 1700000000.5 + static_cast<double>(number)};
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// The published check value of CRC-32.
TEST(Wandb, Crc_IsTheKnownOne) { EXPECT_EQ(crc32_ieee("123456789"), 0xcbf43926u); }

TEST(Wandb, RunId_IsWhatTheServiceTakes) {
  const std::string id = wandb_run_id("runs/a 1700000000 17");
  EXPECT_THAT(id, testing::MatchesRegex("[a-z0-9]{8}"));
  EXPECT_NE(id, wandb_run_id("runs/a 1700000000 18"));
}

TEST(Wandb, FolderName_HasTheTimeInUtc) {
  EXPECT_EQ(wandb_folder_name(example_run()), "offline-run-20231114_221320-abcd1234");
}

// A reader of the framing and of the few messages.
struct Fields {
  std::vector<std::pair<uint64_t, std::string>> bytes;  // wire type 2
  std::map<uint64_t, uint64_t> integers;                // wire type 0

  std::string at(uint64_t field) const {
    for (const auto& [number, value] : bytes) {
      if (number == field) return value;
    }
    throw std::runtime_error("field " + std::to_string(field) + " is missing");
  }
};

uint64_t varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(0));
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
}

Fields parse(std::string_view bytes) {
  Fields fields;
  while (!bytes.empty()) {
    const uint64_t key = varint(bytes);
    if ((key & 7) == 0) {
      fields.integers[key >> 3] = varint(bytes);
    } else if ((key & 7) == 2) {
      const uint64_t size = varint(bytes);
      fields.bytes.emplace_back(key >> 3, std::string(bytes.substr(0, size)));
      if (size > bytes.size()) throw std::runtime_error("a field is cut short");
      bytes.remove_prefix(size);
    } else {
      throw std::runtime_error("unexpected wire type");
    }
  }
  return fields;
}

std::vector<std::string> records_in(const std::string& file) {
  EXPECT_EQ(hex(file.substr(0, 7)), "3a572642e1be00");
  std::vector<std::string> records;
  std::string record;
  bool begun = false;  // the first part may be empty
  size_t at = 7;
  while (at < file.size()) {
    const size_t left = 32768 - at % 32768;
    if (left < 7) {
      EXPECT_EQ(file.substr(at, left), std::string(left, '\0'));
      at += left;
      continue;
    }
    uint32_t crc = 0;
    uint16_t length = 0;
    std::memcpy(&crc, file.data() + at, 4);
    std::memcpy(&length, file.data() + at + 4, 2);
    EXPECT_LE(7U + length, left) << "a part crosses its block";
    EXPECT_EQ(crc32_ieee(std::string_view(file).substr(at + 6, 1U + length)), crc);
    const int type = file[at + 6];
    EXPECT_EQ(!begun, type == 1 || type == 2);
    begun = type == 2 || type == 3;
    record += file.substr(at + 7, length);
    at += 7U + length;
    if (type == 1 || type == 4) {
      records.push_back(record);
      record.clear();
    }
  }
  EXPECT_FALSE(begun) << "the last record is not whole";
  return records;
}

// Items of history, summary and configuration.
std::map<std::string, std::string> items(const std::string& message) {
  std::map<std::string, std::string> values;
  for (const auto& [field, value] : parse(message).bytes) {
    if (field != 1) continue;
    const Fields item = parse(value);
    values[item.at(1)] = item.at(16);
  }
  return values;
}

TEST(WandbSink, TheRunReadsBack) {
  const files::ScratchFolder folder;
  std::string path;
  {
    WandbSink sink(folder.path(), example_run());
    path = sink.path();
    sink.write(step(1, 4.0));
    StepMetrics second = step(2, std::nan(""));
    second.grad_norm = std::numeric_limits<double>::infinity();
    second.val_loss = 3.5;
    sink.write(second);
  }
  EXPECT_EQ(path, folder / "offline-run-20231114_221320-abcd1234/run-abcd1234.wandb");
  const std::vector<std::string> records = records_in(files::read_whole_file(path));
  ASSERT_EQ(records.size(), 7U);  // header, run, two steps with a summary, summary, exit
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(parse(records[i]).integers[1], i);
  EXPECT_NO_THROW(parse(parse(records[0]).at(21)).at(1));
  const Fields run = parse(parse(records[1]).at(17));
  EXPECT_EQ(run.at(1), "abcd1234");
  EXPECT_EQ(run.at(2), "team");
  EXPECT_EQ(run.at(3), "zinc");
  EXPECT_EQ(run.at(6), "group");
  EXPECT_EQ(run.at(8), "first");
  EXPECT_EQ(parse(run.at(17)).integers[1], 1700000000U);
  EXPECT_EQ(parse(run.at(17)).integers[2], 500000000U);
  EXPECT_THAT(items(run.at(4)), ElementsAre(testing::Pair("optimizer", "{\"type\":\"Adam\"}"),
                                            testing::Pair("seed", "7")));
  const Fields history = parse(parse(records[2]).at(2));
  EXPECT_EQ(parse(history.at(2)).integers[1], 8U);
  auto values = items(parse(records[2]).at(2));
  EXPECT_EQ(values["_step"], "8");
  EXPECT_EQ(std::stod(values["_runtime"]), 1.0);
  EXPECT_EQ(std::stod(values["Train/Samples/train_loss"]), 4.0);
  EXPECT_EQ(std::stod(values["Train/Samples/lr"]), 0.25);
  values = items(parse(records[3]).at(2));
  EXPECT_EQ(values["Train/Samples/train_loss"], "NaN");
  EXPECT_EQ(values["Train/Samples/grad_norm"], "Infinity");
  EXPECT_EQ(std::stod(values["Validation/Samples/val_loss"]), 3.5);
  EXPECT_EQ(std::stod(items(parse(records[5]).at(3))["Validation/Samples/val_loss"]), 3.5);
  EXPECT_EQ(parse(parse(records[6]).at(18)).integers[1], 0U);
  EXPECT_EQ(parse(parse(records[6]).at(18)).integers[2], 2U);
}

TEST(WandbSink, ARunThatFails_SaysSo) {
  const files::ScratchFolder folder;
  std::string path;
  try {
    WandbSink sink(folder.path(), example_run());
    path = sink.path();
    throw std::runtime_error("the run fails");
  } catch (const std::runtime_error&) {
  }
  const std::vector<std::string> records = records_in(files::read_whole_file(path));
  EXPECT_EQ(parse(parse(records.back()).at(18)).integers[1], 1U);
}

// The run was killed in the midst of a record, or has ended, after five steps; it continues from
// the second.
TEST(WandbSink, ARunThatGoesOn_IsOneRunOfWhichLaterStepsAreReplaced) {
  const auto write_steps = [](WandbSink& sink, int64_t first, int64_t last) {
    for (int64_t i = first; i <= last; ++i) {
      StepMetrics metrics = step(i, static_cast<double>(i));
      metrics.loss_scale = 4.0;
      sink.write(metrics);
    }
  };
  for (const bool is_killed : {false, true}) {
    const files::ScratchFolder folder;
    std::string path;
    {
      WandbSink sink(folder.path(), example_run());
      path = sink.path();
      write_steps(sink, 1, 5);
    }
    if (is_killed) std::filesystem::resize_file(path, std::filesystem::file_size(path) - 200);
    WandbRun later = example_run();
    later.id = "wxyz9876";
    later.start_time += 1e6;
    {
      WandbSink sink(folder.path(), later, FiguresSoFar{.step = 2, .samples = 16});
      EXPECT_EQ(sink.path(), path);
      write_steps(sink, 3, 400);  // over several blocks
    }
    const std::vector<std::string> records = records_in(files::read_whole_file(path));
    ASSERT_EQ(records.size(), 2U + 400U + 2U);  // header, run, steps, summary, exit
    for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(parse(records[i]).integers[1], i);
    for (int64_t i = 1; i <= 400; ++i) {
      const Fields record = parse(records[static_cast<size_t>(i) + 1]);
      EXPECT_EQ(parse(parse(record.at(2)).at(2)).integers[1], static_cast<uint64_t>(8 * i));
      EXPECT_EQ(std::stod(items(record.at(2))["_runtime"]), static_cast<double>(i));
    }
    EXPECT_EQ(files::names_in(folder.path()).size(), 1U);
  }
  // Nothing to go on from: a run begins.
  const files::ScratchFolder folder;
  WandbSink sink(folder / "wandb", example_run(), FiguresSoFar{.step = 2, .samples = 16});
  EXPECT_EQ(records_in(files::read_whole_file(sink.path())).size(), 2U);
}

TEST(WandbSink, EveryStepIsThereAtOnce) {
  const files::ScratchFolder folder;
  WandbSink sink(folder.path(), example_run());
  sink.write(step(1, 4.0));
  EXPECT_EQ(records_in(files::read_whole_file(sink.path())).size(), 3U);
}

// Records that cross blocks, and one that leaves fewer than 7 bytes in a block.
TEST(WandbFramed, RecordsOfEverySizeReadBack) {
  for (const size_t filler :
       {32768U - 7U - 7U - 7U, 32768U - 7U - 7U - 3U, 32768U - 7U - 7U, 70000U}) {
    SCOPED_TRACE(filler);
    std::string file("\x3a\x57\x26\x42\xe1\xbe\x00", 7);
    const std::vector<std::string> records{std::string(filler, 'a'), "b", std::string(40000, 'c')};
    for (const std::string& record : records) {
      file += wandb_framed(record, std::ssize(file));
    }
    EXPECT_EQ(records_in(file), records);
  }
}

// wandb 0.19.11 writes the same record behind the header: wandb/sdk/internal/datastore.py.
TEST(WandbFramed, Bytes_AreThoseOfThePackage) {
  EXPECT_EQ(hex(wandb_framed("abc", 7)), "a9209d53030001616263");
}

}  // namespace wandb_test
}  // namespace zinc::train
