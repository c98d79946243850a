#include "data/records/table_records.h"

#include <algorithm>

#include "core/error.h"
#include "files/utf8.h"

namespace zinc::data {
namespace {

void require_utf8(std::string_view row, std::string_view place) {
  if (const auto bad = files::first_invalid_utf8(row)) {
    throw DataError(str(place, ": not UTF-8 at byte ", *bad, " of the row"));
  }
}

}  // namespace

std::vector<std::string> split_row(std::string_view row, char delimiter, std::string_view place) {
  std::vector<std::string> fields;
  for (size_t at = 0;;) {
    std::string& field = fields.emplace_back();
    if (at < row.size() && row[at] == '"') {
      for (++at;; at += 2) {
        const size_t quote = row.find('"', at);
        if (quote == row.npos) {
          throw DataError(str(place, ": field ", fields.size(), " has no closing quote"));
        }
        field += row.substr(at, quote - at);
        at = quote;
        if (at + 1 >= row.size() || row[at + 1] != '"') break;
        field += '"';
      }
      ++at;
      if (at < row.size() && row[at] != delimiter) {
        throw DataError(str(place, ": field ", fields.size(),
                            " goes on behind its closing quote; a quote inside quotes is "
                            "written twice"));
      }
    } else {
      const size_t end = std::min(row.find(delimiter, at), row.size());
      field = row.substr(at, end - at);
      at = end;
    }
    if (at >= row.size()) return fields;
    ++at;
  }
}

TableRecords::TableRecords(const std::string& path, char delimiter)
    : RecordReader(path), input_(path), delimiter_(delimiter) {
  RawRecord raw;
  if (!next(raw)) throw DataError(str(path, ": is empty; its first row names the fields"));
  require_utf8(raw.text, place_of(raw));
  names_ = split_row(raw.text, delimiter_, place_of(raw));
  for (auto name = names_.begin(); name != names_.end(); ++name) {
    if (std::find(names_.begin(), name, *name) == name) continue;
    throw DataError(str(place_of(raw), ": two fields have the name \"", *name, "\""));
  }
}

bool TableRecords::next(RawRecord& raw) {
  while (input_.peek() == '\n' || input_.peek() == '\r') input_.get();
  if (input_.peek() == TextInput::kEnd) return false;
  raw.text.clear();
  raw.line = input_.line();
  enum class State : uint8_t { field_begins, plain, quoted, quote_in_quoted };
  State state = State::field_begins;
  for (int c = input_.peek(); c != TextInput::kEnd; c = input_.peek()) {
    if (state != State::quoted && (c == '\n' || c == '\r')) return true;
    raw.text += static_cast<char>(input_.get());
    if (static_cast<int64_t>(raw.text.size()) > kMaxRecordBytes) {
      throw DataError(str(place_of(raw), ": the row has more than ", kMaxRecordBytes,
                          " bytes; is a closing quote missing?"));
    }
    if (state == State::quoted) {
      if (c == '"') state = State::quote_in_quoted;
    } else if (c == delimiter_) {
      state = State::field_begins;
    } else if (c == '"' && state != State::plain) {
      state = State::quoted;
    } else {
      state = State::plain;
    }
  }
  return true;
}

Record TableRecords::parse(const RawRecord& raw) const {
  const std::string place = place_of(raw);
  require_utf8(raw.text, place);
  std::vector<std::string> fields = split_row(raw.text, delimiter_, place);
  if (fields.size() != names_.size()) {
    throw DataError(str(place, ": the row has ", fields.size(), " fields, the first row names ",
                        names_.size()));
  }
  files::json::Object object;
  for (size_t i = 0; i < fields.size(); ++i) object.set(names_[i], std::move(fields[i]));
  return {.fields = std::move(object), .place = place};
}

}  // namespace zinc::data
