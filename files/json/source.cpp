#include "files/json/source.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "core/error.h"

namespace zinc::files::json {
namespace {

constexpr size_t kWindow = 100;  // bytes of a long line that a message shows

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

bool is_plain_word(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

// Walks well-formed JSON up to an offset and keeps the way from the root.
class PathWalker {
 public:
  explicit PathWalker(std::string_view text) : text_(text) {}

  std::string walk(size_t target) {
    while (at_ < text_.size() && at_ <= target) {
      const char c = text_[at_];
      if (c == '"') {
        on_string(target);
      } else if (c == '{' || c == '[') {
        if (at_ == target) break;
        frames_.push_back({.object = c == '{', .key = {}, .index = 0, .in_value = false});
        ++at_;
      } else if (c == '}' || c == ']') {
        if (!frames_.empty()) frames_.pop_back();
        ++at_;
      } else if (c == ',') {
        if (!frames_.empty()) {
          frames_.back().in_value = false;
          ++frames_.back().index;
        }
        ++at_;
      } else if (c == ':') {
        if (!frames_.empty()) frames_.back().in_value = true;
        ++at_;
      } else {
        skip_other(c);
      }
    }
    return text_of_frames();
  }

 private:
  struct Frame {
    bool object;
    std::string key;
    int64_t index;
    bool in_value;
  };

  void on_string(size_t target) {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    const size_t end = std::min(at_, text_.size());
    at_ = end + 1;
    if (!frames_.empty() && frames_.back().object && !frames_.back().in_value && begin <= target) {
      frames_.back().key = text_.substr(begin + 1, end - begin - 1);
    }
  }

  void skip_other(char c) {
    const std::string_view rest = text_.substr(at_);
    if (c == '#' || rest.starts_with("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (rest.starts_with("/*")) {
      const size_t close = text_.find("*/", at_ + 2);
      at_ = close == std::string_view::npos ? text_.size() : close + 2;
    } else {
      ++at_;
    }
  }

  std::string text_of_frames() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (!frame.object) {
        path += str("[", frame.index, "]");
        continue;
      }
      if (frame.key.empty() && !frame.in_value) continue;
      if (!path.empty()) path += '.';
      path += is_plain_word(frame.key) ? frame.key : str("\"", frame.key, "\"");
    }
    return path;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Frame> frames_;
};

// A part of a line, cut at whole code points.
struct Excerpt {
  std::string text;
  size_t caret = 0;  // bytes of text before the place
};

Excerpt cut_line(std::string_view line, size_t place) {
  place = std::min(place, line.size());
  if (line.size() <= kWindow + kWindow / 2) return {std::string(line), place};
  size_t begin = place > kWindow / 2 ? place - kWindow / 2 : 0;
  size_t end = std::min(line.size(), begin + kWindow);
  while (begin > 0 && is_continuation(line[begin])) --begin;
  while (end < line.size() && is_continuation(line[end])) ++end;
  Excerpt excerpt;
  excerpt.text = begin > 0 ? "..." : "";
  excerpt.caret = excerpt.text.size() + place - begin;
  excerpt.text += line.substr(begin, end - begin);
  if (end < line.size()) excerpt.text += "...";
  return excerpt;
}

// Controls would disturb a terminal.
void make_printable(std::string& text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\t') c = ' ';
    if (c == 0x7f) c = ' ';
  }
}

}  // namespace

Position Source::position(uint32_t offset) const {
  const std::string_view before = std::string_view(text_).substr(0, offset);
  const size_t newline = before.rfind('\n');
  const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  return {.line = first_line_ + std::count(before.begin(), before.end(), '\n'),
          .column = 1 + count_code_points(before.substr(line_begin))};
}

std::string Source::path(uint32_t offset) const { return PathWalker(text_).walk(offset); }

std::string Source::describe(Span span, std::string_view message) const {
  const std::string_view text = text_;
  const size_t begin = std::min<size_t>(span.begin, text.size());
  const size_t newline = text.substr(0, begin).rfind('\n');
  const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  const size_t line_end = std::min(text.find('\n', begin), text.size());
  const Position place = position(static_cast<uint32_t>(begin));

  Excerpt excerpt = cut_line(text.substr(line_begin, line_end - line_begin), begin - line_begin);
  make_printable(excerpt.text);
  const std::string number = str(place.line);
  const std::string gutter(std::max<size_t>(number.size(), 5), ' ');
  // Tabs stay tabs under the line, so that the caret stands right whatever their width.
  std::string caret;
  for (const char c : excerpt.text.substr(0, excerpt.caret)) {
    if (!is_continuation(c)) caret += c == '\t' ? '\t' : ' ';
  }
  const size_t shown = std::min<size_t>(span.end > begin ? span.end - begin : 1,
                                        std::max<size_t>(excerpt.text.size() - excerpt.caret, 1));
  const int64_t marks = std::max<int64_t>(
      1, count_code_points(std::string_view(excerpt.text).substr(excerpt.caret, shown)));
  caret += "^" + std::string(static_cast<size_t>(marks - 1), '~');

  return str(name_, ":", place.line, ":", place.column, ": ", message, "\n",
             std::string(gutter.size() - number.size(), ' '), number, " | ", excerpt.text, "\n",
             gutter, " | ", caret);
}

}  // namespace zinc::files::json
