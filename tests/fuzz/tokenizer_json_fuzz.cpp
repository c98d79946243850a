// Fuzz target: bytes as a tokenizer.json. A file is accepted or refused with a DataError or a
// ConfigError; what is accepted encodes and decodes any text, or refuses it with a DataError, and
// every id lies in the vocabulary.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/utf8.h"
#include "text/json_tokenizer.h"

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

void check_text(const zinc::text::Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  try {
    ids = tokenizer.encode_with_specials(text);
  } catch (const zinc::DataError&) {  // no token for a character, or a pattern at its limit
    return;
  }
  try {
    const std::string decoded = tokenizer.decode(ids);
    check(!zinc::files::first_invalid_utf8(std::string_view(decoded)));
  } catch (const zinc::DataError&) {  // a special token of the template outside the vocabulary
  }
  zinc::text::StreamingDecoder stream(tokenizer);
  for (const int32_t id : ids) {
    if (id >= tokenizer.vocabulary_size()) continue;
    check(!zinc::files::first_invalid_utf8(std::string_view(stream.push(id))));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::unique_ptr<zinc::text::JsonTokenizer> tokenizer;
  try {
    tokenizer = zinc::text::JsonTokenizer::parse(zinc::files::json::parse(text, "input"), "input");
  } catch (const zinc::DataError&) {
    return 0;
  } catch (const zinc::ConfigError&) {
    return 0;
  }
  for (const char* sample :
       {"", "the  heaven and\n\n the 'earth' 123", "caf\xC3\xA9 \xE4\xB8\xAD!", "\xFF\xF0\x9F",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}) {
    check_text(*tokenizer, sample);
  }
  check_text(*tokenizer, text.substr(0, 200));
  return 0;
}
