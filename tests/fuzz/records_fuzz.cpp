// Fuzz target: bytes as a file of records: JSON, a line for each, a table, or text. Each reader
// ends, gives records in the order of their lines, and what it accepts reads back from a file
// written anew. From what all records have in common examples are made, in every format: their
// tokens are those of their text.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/examples/example_maker.h"
#include "data/records/json_records.h"
#include "data/records/line_records.h"
#include "data/records/table_records.h"
#include "files/file_descriptor.h"
#include "files/json/writer.h"

namespace {

using zinc::DataError;
using zinc::data::ChatFormat;
using zinc::data::Example;
using zinc::data::LineKind;
using zinc::data::RawRecord;
using zinc::data::Record;
using zinc::data::RecordReader;

constexpr int64_t kMaxTokens = 64;

using Open = std::function<std::unique_ptr<RecordReader>(const std::string& path)>;

void check(bool condition) {
  if (!condition) std::abort();
}

// The readers take a path: a file in memory, under the name that the system gives it.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    check(::write(fd_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  zinc::files::FileDescriptor fd_;
};

// Up to an end that cannot be told; records that are damaged are left out.
std::vector<Record> read_all(const std::string& bytes, const Open& open) {
  const MemoryFile file(bytes);
  std::vector<Record> records;
  try {
    const std::unique_ptr<RecordReader> reader = open(file.path());
    int64_t line = 0;
    RawRecord raw;
    while (reader->next(raw)) {
      check(raw.line >= line && raw.line >= 1);
      line = raw.line;
      check(raw.text.size() <= bytes.size());
      try {
        records.push_back(reader->parse(raw));
      } catch (const DataError&) {
        continue;
      }
      check(records.back().fields.is_object() && !records.back().place.empty());
    }
  } catch (const DataError&) {
  }
  return records;
}

std::string quoted(const std::string& field) {
  std::string text = "\"";
  for (const char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

// The records of a table, as a table with every field in quotes.
std::string table_of(const std::vector<Record>& records, char delimiter) {
  std::string text;
  const auto add = [&](const std::string& field, bool first) {
    if (!first) text += delimiter;
    text += quoted(field);
  };
  bool first = true;
  for (const auto& member : records.front().fields.as_object()) {
    add(member.key, first);
    first = false;
  }
  for (const Record& record : records) {
    text += '\n';
    first = true;
    for (const auto& member : record.fields.as_object()) {
      add(member.value.as_string(), first);
      first = false;
    }
  }
  return text;
}

void check_same(const std::vector<Record>& records, const std::vector<Record>& again) {
  check(records.size() == again.size());
  for (size_t i = 0; i < records.size(); ++i) check(records[i].fields == again[i].fields);
}

void check_examples(const std::vector<Record>& records) {
  if (records.empty()) return;
  zinc::data::FieldMap fields;
  try {
    fields = zinc::data::find_fields(records);
  } catch (const DataError&) {
    return;
  }
  const zinc::text::ByteTokenizer bytes;
  for (const ChatFormat format : {ChatFormat::plain, ChatFormat::llama3, ChatFormat::chatml,
                                  ChatFormat::mistral, ChatFormat::chatglm3}) {
    for (const auto mask : {zinc::data::Mask::prompt_tokens, zinc::data::Mask::offsets}) {
      const zinc::data::ExampleMaker maker(
          &bytes, {.fields = fields, .format = format, .mask = mask, .max_tokens = kMaxTokens});
      for (const Record& record : records) {
        try {
          const Example example = maker.make(record);
          const auto size = static_cast<int64_t>(example.tokens.size());
          check(size <= kMaxTokens && example.trained.size() == example.tokens.size());
          check(example.cut_tokens >= 0 && example.num_targets() <= size);
          for (const int32_t token : example.tokens) check(token >= 0 && token < 256);
          if (!fields.tokens.empty()) continue;
          std::string text;
          for (const auto& span : maker.render(record)) text += span.text;
          check(size + example.cut_tokens == static_cast<int64_t>(text.size()));
          for (int64_t i = 0; i < size; ++i) {
            const auto at = static_cast<size_t>(i);
            check(example.tokens[at] == static_cast<unsigned char>(text[at]));
          }
        } catch (const DataError&) {
        }
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const Open json = [](const std::string& path) {
    return std::make_unique<zinc::data::JsonRecords>(path);
  };
  const Open lines = [](const std::string& path) {
    return std::make_unique<zinc::data::LineRecords>(path, LineKind::json);
  };
  const Open text = [](const std::string& path) {
    return std::make_unique<zinc::data::LineRecords>(path, LineKind::text);
  };
  for (const Open& open : {json, lines, text}) {
    const std::vector<Record> records = read_all(bytes, open);
    std::string written;
    for (const Record& record : records) written += zinc::files::json::write(record.fields) + '\n';
    check_same(records, read_all(written, lines));
    check_same(records, read_all(written, json));
    check_examples(records);
  }
  for (const char delimiter : {',', '\t'}) {
    const Open table = [delimiter](const std::string& path) {
      return std::make_unique<zinc::data::TableRecords>(path, delimiter);
    };
    const std::vector<Record> records = read_all(bytes, table);
    if (records.empty()) continue;
    check_same(records, read_all(table_of(records, delimiter), table));
    check_examples(records);
  }
  return 0;
}
