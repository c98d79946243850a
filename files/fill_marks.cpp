#include "files/fill_marks.h"

#include "core/error.h"

namespace zinc::files {

std::string fill_marks(std::string_view text,
                       const std::vector<std::pair<std::string_view, std::string_view>>& marks) {
  std::string filled;
  for (const auto& [mark, value] : marks) {
    const size_t at = text.find(mark);
    bug_check(at != std::string_view::npos, "fill_marks: the text has no ", mark, " here");
    filled.append(text.substr(0, at)).append(value);
    text.remove_prefix(at + mark.size());
  }
  return filled.append(text);
}

}  // namespace zinc::files
