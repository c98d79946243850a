// tests/structure/source_tree.h: the source files as text, with comments and literals taken out.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::structure {

struct SourceFile {
  std::string path;                // relative to the root of the tree
  std::vector<std::string> lines;  // as written
  std::vector<std::string> code;   // the same lines; comments and the inside of literals are gone
};

// One finding; prints as "path:line: rule: text".
struct Problem {
  std::string rule;
  std::string path;
  int line = 1;
  std::string text;
};
std::string to_string(const Problem& problem);

SourceFile parse_source(std::string path, std::string_view text);

// C++ and CUDA files of the layer folders, tests, bench and examples, and a zinc.h in the root,
// sorted by path.
std::vector<SourceFile> load_tree(const std::filesystem::path& root);

// A page that people read.
struct Page {
  std::string path;  // relative to the root of the tree
  std::vector<std::string> lines;
};
Page parse_page(std::string path, std::string_view text);

// The pages of docs/, and the README.md files of the root and of the source folders, sorted by
// path.
std::vector<Page> load_pages(const std::filesystem::path& root);

// The folder a path begins with; empty for a file in the root.
std::string_view top_folder(std::string_view path);

}  // namespace zinc::structure
