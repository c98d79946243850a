#include "tests/structure/page_rules.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace zinc::structure {
namespace {

constexpr std::string_view kQuestions = "## Questions that this page answers";
constexpr std::string_view kGenerated = "docs/config.md";
constexpr std::string_view kIndex = "docs/README.md";

// Counts characters: bytes of UTF-8 that continue a character do not count.
int columns_of(std::string_view line) {
  return static_cast<int>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string_view without_indent(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return line;
}

bool has_link(std::string_view line) {
  return line.find("](") != std::string_view::npos || line.find("://") != std::string_view::npos;
}

void check_columns(const Page& page, std::vector<Problem>& problems) {
  bool in_code = false, in_comment = false;
  for (size_t i = 0; i < page.lines.size(); ++i) {
    const std::string_view line = without_indent(page.lines[i]);
    const bool is_fence = line.starts_with("```");
    if (!in_code && line.starts_with("<!--")) in_comment = true;
    const bool is_text = !in_code && !is_fence && !in_comment && !line.starts_with("|");
    if (is_fence && !in_comment) in_code = !in_code;
    if (line.find("-->") != std::string_view::npos) in_comment = false;
    const int columns = columns_of(page.lines[i]);
    if (!is_text || columns <= kPageColumns || has_link(line)) continue;
    problems.push_back(
        {"page_columns", page.path, static_cast<int>(i) + 1,
         std::to_string(columns) + " columns; " + std::to_string(kPageColumns) + " are the limit"});
  }
}

void check_questions(const Page& page, std::vector<Problem>& problems) {
  const bool is_of_docs = page.path.starts_with("docs/") && page.path != kGenerated;
  if (!is_of_docs) return;
  const int end = static_cast<int>(page.lines.size());
  const auto heading =
      std::ranges::find_if(page.lines.rbegin(), page.lines.rend(),
                           [](const std::string& l) { return l.starts_with("#"); });
  if (heading == page.lines.rend() || *heading != kQuestions) {
    problems.push_back({"page_questions", page.path, end,
                        "ends without its section '" + std::string(kQuestions) + "'"});
    return;
  }
  const auto questions = std::ranges::count_if(
      heading.base(), page.lines.end(), [](const std::string& l) { return l.starts_with("- "); });
  if (questions >= kPageQuestions) return;
  problems.push_back({"page_questions", page.path, end,
                      std::to_string(questions) + " questions with answers; " +
                          std::to_string(kPageQuestions) + " are the least"});
}

bool names(const Page& page, const std::string& link) {
  return std::ranges::any_of(page.lines, [&link](const std::string& line) {
    return line.find("](" + link) != std::string::npos;
  });
}

void check_index(const std::vector<Page>& pages, std::vector<Problem>& problems) {
  const auto index = std::ranges::find(pages, kIndex, &Page::path);
  if (index == pages.end()) return;
  const std::string folder = "docs/";
  for (const Page& page : pages) {
    const bool is_listed = page.path == kIndex || !page.path.starts_with(folder) ||
                           names(*index, page.path.substr(folder.size()));
    const bool leads_there = page.path != "README.md" || names(page, std::string(kIndex));
    if (is_listed && leads_there) continue;
    const Page& without = is_listed ? page : *index;
    problems.push_back({"page_index", without.path, 1,
                        "has no link to " + (is_listed ? std::string(kIndex) : page.path) +
                            ": every page is two links from README.md"});
  }
}

}  // namespace

std::vector<Problem> check_pages(const std::vector<Page>& pages) {
  std::vector<Problem> problems;
  for (const Page& page : pages) {
    check_columns(page, problems);
    check_questions(page, problems);
  }
  check_index(pages, problems);
  return problems;
}

}  // namespace zinc::structure
