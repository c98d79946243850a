#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::text {

StopStrings::StopStrings(const Tokenizer& tokenizer, std::vector<std::string> strings)
    : tokenizer_(&tokenizer), strings_(std::move(strings)) {
  for (const std::string& one : strings_) {
    if (one.empty()) throw ConfigError("a stop string is empty: every text has it at its end");
    longest_ = std::max(longest_, one.size());
  }
}

bool StopStrings::end(std::span<const int32_t> tokens) const {
  if (strings_.empty() || tokens.empty()) return false;
  std::string last;
  tokenizer_->append_bytes(tokens.back(), false, last);
  std::string tail = last;
  for (size_t i = tokens.size() - 1; i > 0 && tail.size() < last.size() + longest_ - 1; --i) {
    std::string bytes;
    tokenizer_->append_bytes(tokens[i - 1], i == 1, bytes);
    tail.insert(0, bytes);
  }
  return std::ranges::any_of(strings_, [&](const std::string& one) {
    // A stop string that ended before the last token has ended the text earlier.
    const size_t place = tail.rfind(one);
    return place != tail.npos && place + one.size() + last.size() > tail.size();
  });
}

std::string StopStrings::before(std::string_view text) const {
  size_t end = text.size();
  for (const std::string& one : strings_) end = std::min(end, text.find(one));
  return std::string(text.substr(0, end));
}

size_t StopStrings::doubtful(std::string_view text) const {
  size_t most = 0;
  for (const std::string& one : strings_) {
    for (size_t count = std::min(one.size() - 1, text.size()); count > most; --count) {
      if (text.ends_with(std::string_view(one).substr(0, count))) most = count;
    }
  }
  return most;
}

std::string AnswerStream::taken(const std::string& more, bool is_end) {
  if (ended_) return {};
  held_ += more;
  std::string text = stops_->before(held_);
  ended_ = text.size() < held_.size();
  const size_t kept = ended_ || is_end ? 0 : stops_->doubtful(text);
  held_ = text.substr(text.size() - kept);
  text.resize(text.size() - kept);
  return text;
}

}  // namespace zinc::text
