// text/stop_strings.h: texts that end an answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace zinc::text {

class StopStrings {
 public:
  // `tokenizer` must outlive this. Throws ConfigError for an empty string.
  StopStrings(const Tokenizer& tokenizer, std::vector<std::string> strings);

  bool empty() const { return strings_.empty(); }
  // True if the last token completes a stop string: for GenerateOptions::ends.
  bool end(std::span<const int32_t> tokens) const;
  // The text up to the first stop string.
  std::string before(std::string_view text) const;
  // How many bytes at the text's end may be the beginning of one.
  size_t doubtful(std::string_view text) const;

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> strings_;
  size_t longest_ = 0;
};

// An answer as it is generated: characters as soon as they are complete and cannot belong to a stop
// string; nothing from a stop string on.
class AnswerStream {
 public:
  // `stops` must outlive this. `goes_on`: see StreamingDecoder.
  AnswerStream(const Tokenizer& tokenizer, const StopStrings& stops, bool goes_on)
      : decoder_(tokenizer, goes_on), stops_(&stops) {}
  std::string push(int32_t token) { return taken(decoder_.push(token), false); }
  std::string finish() { return taken(decoder_.finish(), true); }

 private:
  std::string taken(const std::string& more, bool is_end);

  StreamingDecoder decoder_;
  const StopStrings* stops_;
  std::string held_;
  bool ended_ = false;
};

}  // namespace zinc::text
