// files/json/parser.h: the one reader of JSON text, strict unless its options allow an extension.
//
// Always refused: text that is not UTF-8, NUL bytes, duplicate keys, anything behind the value,
// numbers beyond a double, lone surrogates, unescaped control characters, nesting, sizes and
// counts beyond the limits. The parser keeps its stack on the heap, so depth costs no call stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "files/json/value.h"

namespace zinc::files::json {

struct ParseOptions {
  // `// ...`, `/* ... */` and `# ...`; a comma before a closing bracket; a byte order mark;
  // Infinity, as Python writes it, for 1e15, which is beyond every count.
  bool relaxed = false;
  int max_depth = 128;                           // open containers
  int64_t max_bytes = int64_t{64} << 20;         // at most 4 GiB - 1
  int64_t max_values = int64_t{16} * 1'000'000;  // keys not counted

  int64_t first_line = 1;  // the line of `name` in which the text begins

  static ParseOptions config() { return {.relaxed = true, .max_bytes = int64_t{16} << 20}; }
};

// `name` stands in messages. Throws DataError: every problem as `name:line:column: message` with
// the line and a caret (syntax errors end the search, duplicate keys do not).
Value parse(std::string text, std::string name, const ParseOptions& options = {});

// Throws IoError where the file cannot be read, DataError as above.
Value parse_file(const std::string& path, const ParseOptions& options = {});

}  // namespace zinc::files::json
