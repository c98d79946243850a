// tests/structure/page_rules.h: the rules of the pages that people read.
#pragma once

#include <vector>

#include "tests/structure/source_tree.h"

namespace zinc::structure {

inline constexpr int kPageColumns = 120;
inline constexpr int kPageQuestions = 5;

// "page_columns": a line has at most kPageColumns characters. Lines of tables, of blocks of code
// and of comments, and lines with a link, may have more. "page_questions": a page of docs/ ends
// with the section "Questions that this page answers", a list of kPageQuestions items at least.
// docs/config.md is made by a program, and ends with its table. "page_index": docs/README.md has a
// link to every other page of docs/, and README.md one to docs/README.md.
std::vector<Problem> check_pages(const std::vector<Page>& pages);

}  // namespace zinc::structure
