// data/token_windows.h: language-modelling samples cut from a token sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/token_sequence.h"

namespace zinc::data {

struct TokenWindowsOptions {
  int64_t seq_len = 0;  // T
  // The model's vocabulary; 0: not checked. A token outside it is a DataError when its window is
  // read.
  int64_t vocabulary_size = 0;
  // True: adds the shorter window at the end of each part, so that every token but the first of a
  // part is a target (evaluation). False: windows of exactly T.
  bool keep_short = false;
};

// Window w of a part covers the part's tokens [w T, w T + T]. The first T of these T + 1 tokens are
// inputs, the last T are labels. Windows of one part share no target. Windows of two parts share no
// token.
class TokenWindows final : public Dataset {
 public:
  // DataError where the sequence is too short for one window.
  TokenWindows(TokenSequence sequence, const TokenWindowsOptions& options);

  int64_t num_samples() const override { return first_window_.back(); }
  void read(int64_t index, Sample& sample) const override;
  std::string describe() const override;

  const TokenSequence& sequence() const { return sequence_; }

 private:
  TokenSequence sequence_;
  TokenWindowsOptions options_;
  std::vector<int64_t> first_window_;  // of each part, then the number of all windows
};

}  // namespace zinc::data
