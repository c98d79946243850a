// text/normalizer.h: changes text before it is cut into pieces: the "normalizer" of a
// tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/json/value.h"

namespace zinc::text {

// One step of a normalizer. Text is well-formed UTF-8 before and after it.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // `of_first`: the number of bytes at the beginning of `text`, and on return of the result, that
  // stand for the first character of the original text.
  virtual std::string apply(std::string_view text, size_t& of_first) const = 0;
};

// A fixed list of steps. Several threads may use it at once.
class Normalizer {
 public:
  // `part`: null, or an object: BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt,
  // Precompiled, Prepend, Replace, Sequence, Strip, StripAccents. DataError where it asks for
  // something else, ConfigError where it needs a library that this build has not.
  static Normalizer parse(const files::json::Value* part);

  bool changes_nothing() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;
  // `of_first`: as NormalizerStep::apply(). 0 where the first character is gone.
  std::string apply(std::string_view text, size_t& of_first) const;

 private:
  void add(const files::json::Value& part);
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace zinc::text
