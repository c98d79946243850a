#include "data/token_windows.h"

#include <algorithm>

#include "core/error.h"

namespace zinc::data {

TokenWindows::TokenWindows(TokenSequence sequence, const TokenWindowsOptions& options)
    : sequence_(std::move(sequence)), options_(options) {
  const int64_t T = options_.seq_len;
  require(T >= 1, "token windows: seq_len must be positive, not ", T);
  first_window_.push_back(0);
  for (const TokenSequence::FileTokens& part : sequence_.parts()) {
    const int64_t targets = part.num_tokens() - 1;
    const int64_t windows = options_.keep_short ? (targets + T - 1) / T : targets / T;
    first_window_.push_back(first_window_.back() + windows);
  }
  if (num_samples() > 0) return;
  const int64_t needed = options_.keep_short ? 2 : T + 1;
  throw DataError(str(sequence_.describe(), ": too short: a sequence needs ", needed,
                      " tokens in one file",
                      options_.keep_short ? "" : str(" (", T, " inputs and one more target)")));
}

void TokenWindows::read(int64_t index, Sample& sample) const {
  require(0 <= index && index < num_samples(), "token windows: sample ", index, " of ",
          num_samples());
  const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), index);
  const auto part_index = static_cast<size_t>(after - first_window_.begin()) - 1;
  const TokenSequence::FileTokens& part = sequence_.parts()[part_index];
  const int64_t begin = part.begin + (index - first_window_[part_index]) * options_.seq_len;
  const int64_t end = std::min(begin + options_.seq_len + 1, part.end);
  part.file->append_to(sample.tokens, begin, end, options_.vocabulary_size);
  sample.labels.assign(sample.tokens.begin() + 1, sample.tokens.end());
  sample.tokens.pop_back();
}

std::string TokenWindows::describe() const {
  return str(sequence_.describe(), ", ", num_samples(), " sequences of ", options_.seq_len);
}

}  // namespace zinc::data
