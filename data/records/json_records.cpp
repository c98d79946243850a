#include "data/records/json_records.h"

#include "core/error.h"
#include "files/json/parser.h"

namespace zinc::data {
namespace {

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

Record parse_json_record(const std::string& path, const RawRecord& raw) {
  files::json::Value value =
      files::json::parse(raw.text, path, {.max_bytes = kMaxRecordBytes, .first_line = raw.line});
  if (!value.is_object()) {
    value.fail(str("a record is an object with named fields, not ", name_of(value.kind())));
  }
  return {.fields = std::move(value), .place = str(path, ":", raw.line)};
}

JsonRecords::JsonRecords(const std::string& path) : RecordReader(path), input_(path) {}

void JsonRecords::skip_space() {
  while (is_space(input_.peek())) input_.get();
}

void JsonRecords::fail(std::string_view what) const {
  throw DataError(str(path(), ":", input_.line(), ": ", what));
}

bool JsonRecords::next(RawRecord& raw) {
  skip_space();
  if (!begun_ && input_.peek() == '[') {
    array_ = true;
    input_.get();
    skip_space();
  } else if (begun_ && array_ && !ended_) {
    if (input_.peek() == TextInput::kEnd) fail("the file ends inside the array");
    if (input_.peek() != ',' && input_.peek() != ']') fail("',' or ']' belongs behind a record");
    if (input_.peek() == ',') {
      input_.get();
      skip_space();
      if (input_.peek() == ']') fail("a record belongs behind ','");
    }
  }
  begun_ = true;
  if (array_ && !ended_ && input_.peek() == ']') {
    input_.get();
    ended_ = true;
    skip_space();
  }
  if (ended_) {
    if (input_.peek() != TextInput::kEnd) fail("there is more text behind the array of records");
    return false;
  }
  if (input_.peek() == TextInput::kEnd) {
    if (array_) fail("the file ends inside the array");
    return false;
  }
  if (!array_ && input_.peek() != '{') {
    fail("an object belongs here, or one array of objects that is the whole file");
  }
  read_value(raw);
  return true;
}

// Reads to the end of the object, or of the value in its place; parse() judges it.
void JsonRecords::read_value(RawRecord& raw) {
  raw.text.clear();
  raw.line = input_.line();
  bool in_string = false;
  bool escaped = false;
  for (int64_t depth = 0; input_.peek() != TextInput::kEnd;) {
    const int c = input_.peek();
    if (!in_string && depth == 0 && (c == ',' || c == ']' || is_space(c))) return;
    raw.text += static_cast<char>(input_.get());
    if (static_cast<int64_t>(raw.text.size()) > kMaxRecordBytes) {
      throw DataError(str(place_of(raw), ": the record has more than ", kMaxRecordBytes,
                          " bytes; is a quote or a bracket missing?"));
    }
    if (in_string) {
      if (!escaped && c == '"') in_string = false;
      escaped = !escaped && c == '\\';
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth <= 0) return;
  }
}

Record JsonRecords::parse(const RawRecord& raw) const { return parse_json_record(path(), raw); }

}  // namespace zinc::data
