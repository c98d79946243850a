// Files as records: what each format holds, where records are, and what is said of damaged ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "data/records/byte_stream.h"
#include "data/records/prepare_tokens.h"
#include "data/records/record_reader.h"
#include "data/records/table_records.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "tests/files/scratch_folder.h"

namespace zinc::data {
namespace records_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Gives, for each record, its place without the folder, and its fields.
std::vector<std::string> records_of(const std::string& path) {
  const auto reader = open_records(path);
  std::vector<std::string> records;
  RawRecord raw;
  while (reader->next(raw)) {
    const Record record = reader->parse(raw);
    records.push_back(record.place.substr(record.place.rfind('/') + 1) + " " +
                      files::json::write(record.fields));
  }
  return records;
}

class Records : public testing::Test {
 protected:
  // The records of a file with this name and content.
  std::vector<std::string> read(std::string_view name, std::string_view content) {
    return records_of(folder_.write(name, content));
  }
  std::string problem(std::string_view name, std::string_view content) {
    return files::message_of<DataError>([&] { read(name, content); });
  }
  files::ScratchFolder folder_;
};

TEST_F(Records, JsonLines_LinesAreCountedAndEmptyOnesLeftOut) {
  EXPECT_THAT(
      read("a.jsonl", "{\"x\": 1}\n\n  \r\n{\"x\": \"\\n\"}\r\n{\"x\":null}"),
      ElementsAre("a.jsonl:1 {\"x\":1}", "a.jsonl:4 {\"x\":\"\\n\"}", "a.jsonl:5 {\"x\":null}"));
  EXPECT_THAT(read("b.jsonl", "\xEF\xBB\xBF{\"x\":1}\n"), ElementsAre("b.jsonl:1 {\"x\":1}"));
  EXPECT_THAT(read("empty.jsonl", ""), IsEmpty());
}

TEST_F(Records, JsonLines_DamageNamesFileLineAndColumn) {
  EXPECT_THAT(problem("a.jsonl", "{\"x\": 1}\n{\"x\": 1]\n"), HasSubstr("a.jsonl:2:8: "));
  EXPECT_THAT(problem("a.jsonl", "{\"x\": 1}\n\n[1]\n"), HasSubstr("a.jsonl:3:1: "));
  EXPECT_THAT(problem("a.jsonl", "{\"x\": \"\xff\"}\n"), HasSubstr("a.jsonl:1:"));
}

TEST_F(Records, JsonLines_BehindDamageTheNextRecordIsRead) {
  const auto reader = open_records(folder_.write("a.jsonl", "{\"x\": \n{\"x\": 2}\n"));
  RawRecord raw;
  ASSERT_TRUE(reader->next(raw));
  EXPECT_THROW(reader->parse(raw), DataError);
  ASSERT_TRUE(reader->next(raw));
  EXPECT_EQ(reader->parse(raw).fields.at("x").as_int64(), 2);
  EXPECT_FALSE(reader->next(raw));
}

TEST_F(Records, JsonLines_SayWhatStandsInTheirPlace) {
  EXPECT_THAT(problem("a.jsonl", "[{\"x\": 1},\n{\"x\": 2}]\n"),
              HasSubstr("a record is an object with named fields, not an array"));
  EXPECT_THAT(problem("a.jsonl", "{\"x\": NaN}\n"), HasSubstr("JSON has no NaN"));
  EXPECT_THAT(problem("a.jsonl", "{\"x\": [-Infinity]}\n"), HasSubstr("JSON has no NaN"));
  EXPECT_THAT(problem("a.jsonl", "{\"x\": 1}\n\xef\xbb\xbf{\"x\": 1}\n"),
              HasSubstr("a byte order mark stands here"));
  EXPECT_THAT(problem("a.jsonl", "version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("a pointer of Git LFS"));
  for (const char* name : {"a.csv", "a.txt", "a.json"}) {
    EXPECT_THAT(problem(name, "version https://git-lfs.github.com/spec/v1\n"),
                HasSubstr("a pointer of Git LFS"));
  }
  EXPECT_THAT(problem("a.jsonl", "<!DOCTYPE html>\n"), HasSubstr("an HTML page"));
}

TEST_F(Records, Json_ArraysAndObjectsInARow) {
  EXPECT_THAT(read("a.json", " [\n {\"x\": \"]}\\\"\"} ,{\"x\": [1, {}]}\n]\n"),
              ElementsAre("a.json:2 {\"x\":\"]}\\\"\"}", "a.json:2 {\"x\":[1,{}]}"));
  EXPECT_THAT(read("a.json", "{\"x\":\n 1}\n{\"x\": 2} {\"x\": 3}"),
              ElementsAre("a.json:1 {\"x\":1}", "a.json:3 {\"x\":2}", "a.json:3 {\"x\":3}"));
  EXPECT_THAT(read("a.json", "[]"), IsEmpty());
  EXPECT_THAT(read("a.json", " \n"), IsEmpty());
}

TEST_F(Records, Json_DamageNamesFileAndLine) {
  EXPECT_THAT(problem("a.json", "[{\"x\": 1},\n {\"x\" 1}]"), HasSubstr("a.json:2:6: "));
  EXPECT_THAT(problem("a.json", "[{\"x\": 1},\n"), HasSubstr("a.json:2: the file ends inside"));
  EXPECT_THAT(problem("a.json", "[{\"x\": 1},\n]"), HasSubstr("a.json:2: a record belongs"));
  EXPECT_THAT(problem("a.json", "[{}\n{}]"), HasSubstr("a.json:2: ',' or ']'"));
  EXPECT_THAT(problem("a.json", "[{}]\n{}"), HasSubstr("a.json:2: there is more text"));
  EXPECT_THAT(problem("a.json", "{},{}"), HasSubstr("a.json:1: an object belongs"));
  EXPECT_THAT(problem("a.json", "[1]"), HasSubstr("a record is an object"));
  EXPECT_THAT(problem("a.json", "3"), HasSubstr("an object belongs here"));
}

// The rows of the cases come from Python's csv.
TEST_F(Records, Tables_EqualPythonsCsv) {
  const files::json::Value cases = files::json::parse_file("tests/reference/examples.json");
  for (const files::json::Value& expected : cases.at("tables").as_array()) {
    const std::string& text = expected.at("text").as_string();
    SCOPED_TRACE(testing::PrintToString(text));
    const std::string path = folder_.write("t.csv", text);
    std::vector<std::vector<std::string>> rows;
    bool failed = false;
    try {
      const auto reader = open_records(path);
      RawRecord raw;
      while (reader->next(raw)) {
        auto& row = rows.emplace_back();
        const Record record = reader->parse(raw);
        for (const files::json::Member& member : record.fields.as_object()) {
          EXPECT_EQ(member.key, expected.at("names").at(row.size()).as_string());
          row.push_back(member.value.as_string());
        }
      }
    } catch (const DataError&) {
      failed = true;
      if (!rows.empty()) rows.pop_back();
    }
    EXPECT_EQ(failed, expected.at("error").as_bool());
    ASSERT_EQ(rows.size(), expected.at("rows").size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const files::json::Array& row = expected.at("rows").at(i).as_array();
      ASSERT_EQ(rows[i].size(), row.size());
      for (size_t j = 0; j < row.size(); ++j) EXPECT_EQ(rows[i][j], row[j].as_string());
    }
  }
}

TEST_F(Records, Tables_PlacesAndProblems) {
  EXPECT_THAT(
      read("a.tsv", "x\ty\n\"a\nb\"\tc,d\n1\t2\n"),
      ElementsAre("a.tsv:2 {\"x\":\"a\\nb\",\"y\":\"c,d\"}", "a.tsv:4 {\"x\":\"1\",\"y\":\"2\"}"));
  EXPECT_THAT(problem("a.csv", "x,y\n1,2\n3\n"),
              HasSubstr("a.csv:3: the row has 1 fields, the first row names 2"));
  EXPECT_THAT(problem("a.csv", "x,x\n1,2\n"), HasSubstr("a.csv:1: two fields have the name \"x\""));
  EXPECT_THAT(problem("a.csv", ""), HasSubstr("is empty"));
  EXPECT_THAT(problem("a.csv", "x\n\n\"open\n"), HasSubstr("a.csv:3: field 1 has no closing"));
  EXPECT_THAT(problem("a.csv", "x\n\xc3\n"), HasSubstr("a.csv:2: not UTF-8 at byte 0"));
}

TEST_F(Records, Text_EachLineIsOne) {
  EXPECT_THAT(read("a.txt", "one\r\n\ntwo"),
              ElementsAre("a.txt:1 {\"text\":\"one\"}", "a.txt:3 {\"text\":\"two\"}"));
  EXPECT_THAT(problem("a.txt", "one\n\xff\n"), HasSubstr("a.txt:2: not UTF-8"));
}

TEST_F(Records, TokenFiles_EachDocumentIsOne) {
  const std::string text = folder_.write("t.txt", "ab\nc\n");
  prepare_tokens(text::ByteTokenizer(),
                 {.files = {text}, .kind = DocumentKind::line, .folder = folder_ / "shards"});
  EXPECT_THAT(records_of(folder_ / "shards/tokens_000000.bin"),
              ElementsAre("tokens_000000.bin:1 {\"input_ids\":[97,98]}",
                          "tokens_000000.bin:2 {\"input_ids\":[99]}"));
  EXPECT_THAT(problem("alone.bin", "1234"), HasSubstr("alone.idx is missing"));
  folder_.write("alone.idx", "12345678");
  EXPECT_THAT(problem("alone.bin", "1234"), HasSubstr("is not the index of"));
}

TEST_F(Records, NamesDecide) {
  EXPECT_THAT(problem("a.parquet", "x"), HasSubstr("the name does not say"));
  EXPECT_TRUE(has_field_name("x/a.jsonl.gz") && has_field_name("a.csv") &&
              has_field_name("a.json"));
  EXPECT_FALSE(has_field_name("a.txt") || has_field_name("a.bin") || has_field_name("a"));
  EXPECT_THAT(files::message_of<DataError>([&] { open_records(folder_ / "none.jsonl"); }),
              HasSubstr("none.jsonl"));
}

TEST_F(Records, BlocksOfAFile_EndNowhereInParticular) {
  // Longer than the blocks in which files are read, with a line end at each border.
  std::string content;
  for (int i = 0; i < 60'000; ++i) content += str("{\"x\": \"", std::string(i % 7, 'y'), "\"}\n");
  const auto reader = open_records(folder_.write("a.jsonl", content));
  RawRecord raw;
  for (int i = 0; i < 60'000; ++i) {
    ASSERT_TRUE(reader->next(raw));
    ASSERT_EQ(raw.line, i + 1);
    ASSERT_EQ(reader->parse(raw).fields.at("x").as_string().size(), static_cast<size_t>(i % 7));
  }
  EXPECT_FALSE(reader->next(raw));
}

// Two members in a row, made by Python's gzip: {"x":1} and {"x":2}, each with an end of line.
constexpr unsigned char kGzip[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0xaa, 0x50,
    0xb2, 0x32, 0xac, 0xe5, 0x02, 0x00, 0x15, 0xf0, 0x31, 0x50, 0x08, 0x00, 0x00, 0x00,
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0xaa, 0x50,
    0xb2, 0x32, 0xaa, 0xe5, 0x02, 0x00, 0x4c, 0x4e, 0x77, 0x52, 0x08, 0x00, 0x00, 0x00};

class PackedRecords : public Records {
 protected:
  void SetUp() override {
    path_ = folder_.write("a.jsonl.gz", bytes_);
    try {
      open_byte_stream(path_);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("gunzip"));
      GTEST_SKIP() << "this build has no zlib";
    }
  }
  const std::string bytes_{reinterpret_cast<const char*>(kGzip), sizeof kGzip};
  std::string path_;
};

TEST_F(PackedRecords, MembersInARow_AreOneText) {
  EXPECT_THAT(records_of(path_), ElementsAre("a.jsonl.gz:1 {\"x\":1}", "a.jsonl.gz:2 {\"x\":2}"));
}

TEST_F(PackedRecords, DamageNamesTheByte) {
  EXPECT_THAT(problem("cut.jsonl.gz", bytes_.substr(0, bytes_.size() - 9)),
              HasSubstr("cut.jsonl.gz: cannot be unpacked at byte 47: the file ends"));
  std::string changed = bytes_;
  changed[20] ^= 0x10;  // in the checksum
  EXPECT_THAT(problem("bad.jsonl.gz", changed), HasSubstr("cannot be unpacked at byte"));
  EXPECT_THAT(problem("plain.jsonl.gz", "{\"x\": 1}\n"), HasSubstr("cannot be unpacked"));
  EXPECT_THAT(problem("none.jsonl.gz", ""), HasSubstr("cannot be unpacked"));
}

}  // namespace records_test
}  // namespace zinc::data
