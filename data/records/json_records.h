// data/records/json_records.h: the objects of a JSON file, one by one.
#pragma once

#include <string>

#include "data/records/byte_stream.h"
#include "data/records/record_reader.h"

namespace zinc::data {

// An array of objects, or objects in a row with nothing but space between them. Columns in messages
// count from the begin of the record.
class JsonRecords final : public RecordReader {
 public:
  explicit JsonRecords(const std::string& path);
  bool next(RawRecord& raw) override;
  Record parse(const RawRecord& raw) const override;

 private:
  void skip_space();
  void read_value(RawRecord& raw);
  [[noreturn]] void fail(std::string_view what) const;

  TextInput input_;
  bool begun_ = false;
  bool array_ = false;
  bool ended_ = false;  // the array is closed
};

// The text as one object; messages point into the file. DataError where it is no object.
Record parse_json_record(const std::string& path, const RawRecord& raw);

}  // namespace zinc::data
