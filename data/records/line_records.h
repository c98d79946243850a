// data/records/line_records.h: files that are cut at the ends of their lines.
#pragma once

#include <string>

#include "data/records/byte_stream.h"
#include "data/records/record_reader.h"

namespace zinc::data {

enum class LineKind : uint8_t {
  json,  // a JSON object
  text,  // UTF-8, as field "text"
};

// Empty lines are left out. A carriage return before the end of a line does not belong to it.
class LineRecords final : public RecordReader {
 public:
  LineRecords(const std::string& path, LineKind kind);
  bool next(RawRecord& raw) override;
  Record parse(const RawRecord& raw) const override;

 private:
  TextInput input_;
  LineKind kind_;
};

}  // namespace zinc::data
