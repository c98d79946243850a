#include "data/records/line_records.h"

#include "core/error.h"
#include "data/records/json_records.h"
#include "files/utf8.h"

namespace zinc::data {

LineRecords::LineRecords(const std::string& path, LineKind kind)
    : RecordReader(path), input_(path), kind_(kind) {}

bool LineRecords::next(RawRecord& raw) {
  while (input_.peek() != TextInput::kEnd) {
    raw.text.clear();
    raw.line = input_.line();
    for (int c = input_.get(); c != TextInput::kEnd && c != '\n'; c = input_.get()) {
      raw.text += static_cast<char>(c);
      if (static_cast<int64_t>(raw.text.size()) > kMaxRecordBytes) {
        throw DataError(str(place_of(raw), ": the line has more than ", kMaxRecordBytes,
                            " bytes; is this a file of lines?"));
      }
    }
    if (raw.text.ends_with('\r')) raw.text.pop_back();
    if (raw.text.find_first_not_of(" \t") != std::string::npos) return true;
  }
  return false;
}

Record LineRecords::parse(const RawRecord& raw) const {
  if (kind_ == LineKind::json) {
    const size_t begin = raw.text.find_first_not_of(" \t");
    if (raw.text[begin] == '[') {
      throw DataError(str(place_of(raw), ":", begin + 1,
                          ": a record is an object with named fields, not an array; a file that is "
                          "one JSON array has a name that ends in .json"));
    }
    return parse_json_record(path(), raw);
  }
  if (const auto bad = files::first_invalid_utf8(raw.text)) {
    throw DataError(str(place_of(raw), ": not UTF-8 at byte ", *bad, " of the line"));
  }
  files::json::Object fields;
  fields.set("text", raw.text);
  return {.fields = std::move(fields), .place = place_of(raw)};
}

}  // namespace zinc::data
