#include "data/records/record_reader.h"

#include <string_view>

#include "core/error.h"
#include "data/records/json_records.h"
#include "data/records/line_records.h"
#include "data/records/table_records.h"
#include "data/records/token_records.h"

namespace zinc::data {
namespace {

enum class FileKind : uint8_t { unknown, json_lines, json, csv, tsv, text, tokens };

FileKind kind_of(std::string_view path) {
  if (path.ends_with(".bin")) return FileKind::tokens;
  if (path.ends_with(".gz")) path.remove_suffix(3);
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return FileKind::json_lines;
  if (path.ends_with(".json")) return FileKind::json;
  if (path.ends_with(".csv")) return FileKind::csv;
  if (path.ends_with(".tsv")) return FileKind::tsv;
  if (path.ends_with(".txt")) return FileKind::text;
  return FileKind::unknown;
}

}  // namespace

std::string RecordReader::place_of(const RawRecord& raw) const { return str(path_, ":", raw.line); }

bool has_field_name(const std::string& path) {
  switch (kind_of(path)) {
    case FileKind::json_lines:
    case FileKind::json:
    case FileKind::csv:
    case FileKind::tsv:
      return true;
    case FileKind::text:
    case FileKind::tokens:
    case FileKind::unknown:
      return false;
  }
  return false;
}

std::unique_ptr<RecordReader> open_records(const std::string& path) {
  switch (kind_of(path)) {
    case FileKind::json_lines:
      return std::make_unique<LineRecords>(path, LineKind::json);
    case FileKind::json:
      return std::make_unique<JsonRecords>(path);
    case FileKind::csv:
      return std::make_unique<TableRecords>(path, ',');
    case FileKind::tsv:
      return std::make_unique<TableRecords>(path, '\t');
    case FileKind::text:
      return std::make_unique<LineRecords>(path, LineKind::text);
    case FileKind::tokens:
      return std::make_unique<TokenRecords>(path);
    case FileKind::unknown:
      break;
  }
  throw DataError(str(path,
                      ": the name does not say what the file holds; names of files of records "
                      "end in .jsonl, .json, .csv, .tsv, .txt (each also with .gz) or .bin"));
}

std::string text_of(const files::json::Value& value) {
  switch (value.kind()) {
    case files::json::Kind::null:
      return {};
    case files::json::Kind::boolean:
      return value.as_bool() ? "true" : "false";
    case files::json::Kind::number:
      return value.as_number().text();
    case files::json::Kind::string:
      return value.as_string();
    case files::json::Kind::array:
    case files::json::Kind::object:
      break;
  }
  value.fail(str("expected text, got ", name_of(value.kind())));
}

bool is_empty(const files::json::Value& value) {
  return value.is_null() || value.is_string("") || (value.is_array() && value.as_array().empty()) ||
         (value.is_object() && value.as_object().empty());
}

void leave_out_damaged(const std::string& problem, int64_t damaged, int64_t skip_bad) {
  if (damaged <= skip_bad) return;
  if (skip_bad == 0) {
    throw DataError(str(problem, "\n  --skip-bad N leaves out up to N such records"));
  }
  throw DataError(str(problem, "\n  this is damaged record ", damaged, "; --skip-bad ", skip_bad,
                      " leaves out no more"));
}

void use_records(const std::string& path, std::optional<int64_t> skip_bad,
                 const std::function<void(const Record& record)>& use) {
  const std::unique_ptr<RecordReader> reader = open_records(path);
  int64_t used = 0;
  int64_t damaged = 0;
  RawRecord raw;
  while (reader->next(raw)) {
    try {
      use(reader->parse(raw));
      ++used;
    } catch (const DataError& error) {
      if (!skip_bad) throw;
      leave_out_damaged(error.what(), ++damaged, *skip_bad);
    }
  }
  if (used > 0) return;
  throw DataError(damaged == 0 ? str(path, ": holds no records")
                               : str(path, ": all ", damaged, " records are damaged"));
}

}  // namespace zinc::data
