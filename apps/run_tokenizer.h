// apps/run_tokenizer.h: the tokenizer of a training run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_sequence.h"
#include "text/tokenizer.h"

namespace zinc::apps {

struct RunTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: text is bytes
  std::string folder;   // or a file: hub::read_tokenizer_files(); empty: none
  std::string problem;  // the reason why the tokenizer of --init could not be read; empty: none

  // "zt/tokenizer.json, 8000 tokens", "bytes".
  std::string describe() const;
  // A further line for the head of a run; empty: none. `replaced`: the model's vocabulary became
  // that of the text.
  std::string note(bool replaced, int64_t vocabulary) const;
  // The files that --data or --validation names.
  data::TokenSequence open(const std::vector<std::string>& files) const;
};

// The tokenizer that --tokenizer names, or that is in the folder of --init. The latter is needed
// only for text: if it cannot be read, token files can be trained on all the same.
RunTokenizer find_tokenizer(const std::string& flag, const std::string& init);

// DataError if `data` are text whose tokens, of a vocabulary of `made`, are not the model's. `made`
// 0: the data are no text. A model's vocabulary that is larger than the tokenizer's was padded.
void require_own_tokens(const RunTokenizer& tokenizer, std::string_view data, int64_t made,
                        int64_t vocabulary);

}  // namespace zinc::apps
