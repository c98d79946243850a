// data/records/table_records.h: the rows of a .csv or .tsv file (RFC 4180).
//
// A field may stand in quotes; then it may hold the delimiter, ends of lines, and quotes, each
// written twice. A quote inside a field that does not begin with one is itself. Rows end with LF,
// CR LF or CR; empty rows are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/records/byte_stream.h"
#include "data/records/record_reader.h"

namespace zinc::data {

// The fields of one row, which has no end of line behind it. DataError with `place` for text behind
// a closing quote, and for a quote that is not closed.
std::vector<std::string> split_row(std::string_view row, char delimiter, std::string_view place);

class TableRecords final : public RecordReader {
 public:
  // Reads the first row. DataError where there is none, or two fields have one name.
  TableRecords(const std::string& path, char delimiter);
  bool next(RawRecord& raw) override;
  // DataError also for a row with more or fewer fields than there are names.
  Record parse(const RawRecord& raw) const override;

 private:
  TextInput input_;
  char delimiter_;
  std::vector<std::string> names_;
};

}  // namespace zinc::data
