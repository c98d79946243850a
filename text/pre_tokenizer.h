// text/pre_tokenizer.h: cuts normalised text into the pieces that a model encodes one by one:
// the "pre_tokenizer" of a tokenizer.json.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "files/json/value.h"
#include "text/function_ref.h"

namespace zinc::text {

struct PreToken {
  std::string_view text;  // not empty; valid during the call that gets it
  size_t of_first;        // bytes at its beginning that stand for the whole text's first character
};
using PreTokenVisit = FunctionRef<void(PreToken)>;

// One step of a pre-tokenizer: a piece becomes several, or other text.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual void split(PreToken piece, PreTokenVisit visit) const = 0;
};

// A fixed list of steps. Several threads may use it at once.
class PreTokenizer {
 public:
  // `part`: null, or an object: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace,
  // Punctuation, Sequence, Split, Whitespace, WhitespaceSplit. DataError where it asks for
  // something else.
  static PreTokenizer parse(const files::json::Value* part);

  void run(PreToken piece, PreTokenVisit visit) const { run_from(0, piece, visit); }
  // The last step is ByteLevel, so that pieces are bytes. They are given as bytes, not as the
  // characters that stand for bytes in a vocabulary.
  bool gives_bytes() const { return gives_bytes_; }

 private:
  void add(const files::json::Value& part);
  void run_from(size_t step, PreToken piece, PreTokenVisit visit) const;

  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
  bool gives_bytes_ = false;
};

}  // namespace zinc::text
