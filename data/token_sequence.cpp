#include "data/token_sequence.h"

#include <cmath>

#include "core/error.h"
#include "files/atomic_file.h"

namespace zinc::data {

TokenSequence TokenSequence::open(const std::vector<std::string>& paths, TokenFormat format,
                                  const text::Tokenizer* tokenizer) {
  if (paths.empty()) throw DataError("no data files were given");
  TokenSequence sequence;
  for (const std::string& path : paths) {
    auto file = std::make_shared<const TokenFile>(TokenFile::open(path, format, tokenizer));
    const TokenFile& first = sequence.parts_.empty() ? *file : *sequence.parts_.front().file;
    if (file->vocabulary_size() != first.vocabulary_size()) {
      throw DataError(str("text and token files cannot be mixed: ", first.path(), " is ",
                          name_of(first.format()), ", ", path, " is ", name_of(file->format())));
    }
    const int64_t count = file->num_tokens();
    sequence.parts_.push_back({.file = std::move(file), .begin = 0, .end = count});
  }
  return sequence;
}

int64_t TokenSequence::num_tokens() const {
  int64_t count = 0;
  for (const FileTokens& part : parts_) count += part.num_tokens();
  return count;
}

int64_t TokenSequence::vocabulary_size() const {
  return parts_.empty() ? 0 : parts_.front().file->vocabulary_size();
}

std::pair<TokenSequence, TokenSequence> TokenSequence::split_tail(double fraction) const {
  require(fraction > 0.0 && fraction < 1.0, "split: the fraction must lie in (0, 1), not ",
          fraction);
  const int64_t total = num_tokens();
  const int64_t tail = std::llround(fraction * static_cast<double>(total));
  if (tail < 1 || tail >= total) {
    throw DataError(
        str(describe(), ": too few tokens to keep a fraction of ", fraction, " for validation"));
  }
  std::pair<TokenSequence, TokenSequence> result;
  int64_t remaining = total - tail;  // tokens that still belong to the first side
  for (const FileTokens& part : parts_) {
    const int64_t taken = std::min(remaining, part.num_tokens());
    const int64_t cut = part.begin + taken;
    if (taken > 0) result.first.parts_.push_back({part.file, part.begin, cut});
    if (cut < part.end) result.second.parts_.push_back({part.file, cut, part.end});
    remaining -= taken;
  }
  return result;
}

std::string TokenSequence::describe() const {
  if (parts_.empty()) return "no data";
  const std::string name = parts_.size() == 1 ? files::file_name(parts_.front().file->path())
                                              : str(parts_.size(), " files");
  return str(name, " (", name_of(parts_.front().file->format()), ", ", num_tokens(), " tokens)");
}

}  // namespace zinc::data
