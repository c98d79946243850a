// Fuzz target: bytes as a DeepSpeed configuration. A file is accepted or refused with a
// ConfigError; what is accepted resolves to a file that means the same, and any JSON that parses is
// written and read again without a change.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "train/config/config.h"
#include "train/json/parser.h"
#include "train/json/writer.h"

namespace {

constexpr int64_t kWorld = 2;

void check(bool condition) {
  if (!condition) std::abort();
}

void check_json(const std::string& text) {
  zinc::train::json::Value value;
  try {
    value = zinc::train::json::parse(text, "input", zinc::train::json::ParseOptions::config());
  } catch (const zinc::DataError&) {
    return;
  }
  for (const int indent : {0, 2}) {
    const std::string written = zinc::train::json::write(value, indent);
    check(zinc::train::json::parse(written, "again") == value);
  }
}

void check_config(const std::string& text) {
  std::string resolved;
  try {
    resolved = zinc::train::resolved_json(zinc::train::parse_config(text, "input", kWorld), kWorld);
  } catch (const zinc::ConfigError&) {
    return;
  }
  const auto again = zinc::train::parse_config(resolved, "resolved", kWorld);
  check(zinc::train::resolved_json(again, kWorld) == resolved);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_json(text);
  check_config(text);
  return 0;
}
