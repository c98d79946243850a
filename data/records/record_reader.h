// data/records/record_reader.h: a file as records, one after another, each with its place.
//
// | name ends in | a record is |
// |---|---|
// | .jsonl, .ndjson | each line that is not empty: a JSON object |
// | .json | each object of one array, or of several in a row |
// | .csv, .tsv | each row behind the first, which names the fields (RFC 4180); values are text |
// | .txt | each line that is not empty, as field "text" |
// | .bin | each document of a token file, as field "input_ids"; its .idx must be there |
//
// Each but .bin also with .gz behind it. Files are read from front to back and never held whole, so
// they may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "files/json/value.h"

namespace zinc::data {

// A record that is longer is a DataError.
inline constexpr int64_t kMaxRecordBytes = int64_t{64} << 20;

// A record as it lies in its file.
struct RawRecord {
  std::string text;
  int64_t line = 0;  // where it begins, from 1; in a token file the number of the document
};

struct Record {
  files::json::Value fields;  // an object
  std::string place;          // "data.jsonl:17"
};

class RecordReader {
 public:
  explicit RecordReader(std::string path) : path_(std::move(path)) {}
  virtual ~RecordReader() = default;
  const std::string& path() const { return path_; }

  // Goes to the next record; false at the end of the file. Throws DataError where the end of the
  // record cannot be found: reading cannot go on then.
  virtual bool next(RawRecord& raw) = 0;
  // The fields of a record. May be called from several threads. Throws DataError with file and line
  // for a damaged record.
  virtual Record parse(const RawRecord& raw) const = 0;

 protected:
  std::string place_of(const RawRecord& raw) const;  // "data.jsonl:17"

 private:
  std::string path_;
};

// True if the records of a file with this name have named fields: JSON or a table.
bool has_field_name(const std::string& path);

// Chooses the reader by the file's name. DataError for a name that the table lacks, and as the
// reader throws.
std::unique_ptr<RecordReader> open_records(const std::string& path);

// The text of a value: the string itself; for a number or a boolean, its text in the file; empty
// for null. DataError with its place for a list or an object.
std::string text_of(const files::json::Value& value);

// True for null, "", [] and {}.
bool is_empty(const files::json::Value& value);

// Reports `problem` of a record, the `damaged`th damaged one. Throws a DataError, with --skip-bad
// as the cure, unless `skip_bad` leaves the record out.
void leave_out_damaged(const std::string& problem, int64_t damaged, int64_t skip_bad);

// Opens a file and hands out every record. Where `use` or the record itself throws a DataError, the
// record is left out. After `skip_bad` such records the next error is thrown, with --skip-bad as
// the cure. Absent: the first error is thrown, without that cure. Throws DataError, too, where no
// record was used.
void use_records(const std::string& path, std::optional<int64_t> skip_bad,
                 const std::function<void(const Record& record)>& use);

}  // namespace zinc::data
