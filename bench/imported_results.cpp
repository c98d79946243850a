#include "bench/imported_results.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "core/error.h"

namespace zinc::bench {
namespace {

constexpr size_t kMaxLine = 64 * 1024;

// False where a quote is not closed.
bool split(const std::string& line, std::vector<std::string>& fields) {
  fields.assign(1, "");
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      const bool doubled = quoted && i + 1 < line.size() && line[i + 1] == '"';
      if (doubled) {
        fields.back() += '"';
        ++i;
      } else {
        quoted = !quoted;
      }
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else if (line[i] != '\r') {
      fields.back() += line[i];
    }
  }
  return !quoted;
}

}  // namespace

Baselines read_baselines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw DataError(str(path, ": cannot be read"));
  int number = 0;
  const auto wrong = [&](const std::string& what) {
    return DataError(str(path, ":", number, ": ", what));
  };
  std::vector<std::string> fields;
  std::map<std::string, size_t> column;
  Baselines baselines;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.size() > kMaxLine) throw wrong("the line is too long");
    if (line.empty() || line == "\r") continue;
    if (!split(line, fields)) throw wrong("a quote is not closed");
    if (column.empty()) {
      for (size_t i = 0; i < fields.size(); ++i) column.emplace(fields[i], i);
      for (const char* needed : {"op", "pass", "dtype", "shape", "median_us"}) {
        if (!column.contains(needed)) {
          throw wrong(str("the heading has no column \"", needed,
                          "\"; needed are op,pass,dtype,shape,median_us"));
        }
      }
      continue;
    }
    if (fields.size() != column.size()) {
      throw wrong(str(fields.size(), " fields, the heading has ", column.size()));
    }
    const auto at = [&](const char* name) -> const std::string& { return fields[column[name]]; };
    const std::string& text = at("median_us");
    double microseconds = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), microseconds);
    if (error != std::errc() || end != text.data() + text.size() || !(microseconds > 0.0) ||
        !std::isfinite(microseconds)) {
      throw wrong(str("median_us is \"", text, "\", not a time"));
    }
    Baseline one{
        .name = column.contains("name") ? at("name") : std::filesystem::path(path).stem().string(),
        .median_us = microseconds};
    Baseline& kept = baselines[str(at("op"), " ", at("pass"), " ", at("dtype"), " ", at("shape"))];
    if (kept.median_us == 0.0 || one.median_us < kept.median_us) kept = std::move(one);
  }
  if (file.bad()) throw DataError(str(path, ": cannot be read"));
  if (column.empty()) throw wrong("the file is empty");
  return baselines;
}

}  // namespace zinc::bench
