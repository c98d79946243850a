// files/json/source.h: the text that values came from, and how an error points into it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc::files::json {

// Bytes [begin, end) of a source. Empty for a value that was made by code.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool empty() const { return begin == end; }
  friend bool operator==(const Span&, const Span&) = default;
};

struct Position {
  int64_t line = 1;    // from 1
  int64_t column = 1;  // from 1, in code points
};

// A name for messages (a path, "--config", ...) and UTF-8 text. Immutable.
class Source {
 public:
  // `first_line`: the line of the file `name` in which the text begins.
  Source(std::string name, std::string text, int64_t first_line = 1)
      : name_(std::move(name)), text_(std::move(text)), first_line_(first_line) {}

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  Position position(uint32_t offset) const;

  // The path of the JSON value or key at `offset`: "zero_optimization.offload_param.device",
  // "shape[1]"; keys that are no plain words stand in quotes; empty for the root. The text before
  // `offset` must be well-formed JSON (comments allowed).
  std::string path(uint32_t offset) const;

  // Three lines, without a newline at the end; a long line is cut to a window around the place:
  //   ds.json:14:9: <message>
  //      14 |         "overlap_com": true,
  //         |         ^~~~~~~~~~~~~
  std::string describe(Span span, std::string_view message) const;

 private:
  std::string name_;
  std::string text_;
  int64_t first_line_;
};

}  // namespace zinc::files::json
