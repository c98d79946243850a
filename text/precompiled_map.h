// text/precompiled_map.h: sentencepiece's compiled table of replacements, as the normalizer
// "Precompiled" of a tokenizer.json holds it.
//
// Layout (sentencepiece, src/normalizer.cc): uint32 size of a trie in bytes, the trie as
// darts-clone writes it (uint32 units, little-endian), then replacements that end in NUL; a trie's
// value is the offset of a replacement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::text {

class PrecompiledMap {
 public:
  // Throws DataError where the table contradicts itself. Whatever it holds, no read leaves it.
  explicit PrecompiledMap(std::string_view table);

  // Replaces grapheme clusters of less than six bytes, then single characters, as Hugging Face's
  // normalizer does: by the shortest key that a cluster begins with.
  std::string apply(std::string_view text) const;

 private:
  std::optional<std::string_view> find(std::string_view text) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

// Bytes of base64 text (RFC 4648); empty where it is none.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace zinc::text
