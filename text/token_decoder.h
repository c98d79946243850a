// text/token_decoder.h: from tokens back to text: the "decoder" of a tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/json/value.h"

namespace zinc::text {

// One step of a decoder.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // Tokens of a whole text, in place.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
  // One token as far as it can be told without its neighbours. `first`: of the text.
  virtual std::string decode_one(std::string token, bool first) const = 0;
};

class TokenDecoder {
 public:
  // `part`: null, or an object: ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip,
  // WordPiece. DataError where it asks for something else.
  static TokenDecoder parse(const files::json::Value* part);

  // Exactly as Hugging Face's tokenizers: bytes that are no UTF-8 become U+FFFD, of each maximal
  // ill-formed part (ByteLevel) or of each byte of a run that is not UTF-8 (ByteFallback).
  std::string decode(std::vector<std::string> tokens) const;
  // The bytes that one token adds to a text. All bytes together are the text that decode() gives,
  // except where they are not UTF-8.
  std::string bytes_of(std::string token, bool first) const;

  bool is_byte_level() const { return byte_level_; }  // and has no other step

 private:
  void add(const files::json::Value& part);
  std::vector<std::unique_ptr<DecoderStep>> steps_;
  bool byte_level_ = false;
};

}  // namespace zinc::text
