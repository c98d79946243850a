// zinc_this_tree [ROOT]: the rules on a whole tree. Prints each problem as "path:line: rule: text".
// Exit status 1 if there is one, 65 if ROOT is no tree of zinc.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/structure/page_rules.h"
#include "tests/structure/tree_rules.h"

namespace zinc::structure {
namespace {

constexpr size_t kLeast = 20;  // sources, and pages: a tree with fewer is not zinc's

std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<Problem> problems_below(const std::filesystem::path& root) {
  const std::vector<SourceFile> files = load_tree(root);
  const std::vector<Page> pages = load_pages(root);
  if (files.size() < kLeast || pages.size() < kLeast) {
    throw std::runtime_error("too few sources or pages below " + root.string());
  }
  const auto exceptions = parse_exceptions(text_of(root / "tests/structure/exceptions.txt"));
  std::vector<Problem> all = check_tree(files, exceptions);
  const LayerTable inner = parse_inner_table(text_of(root / "docs/architecture.md"));
  if (inner.size() < 5) throw std::runtime_error("no table of zero's folders in architecture.md");
  for (auto& found : {check_inner(files, inner), check_pages(pages)}) {
    all.insert(all.end(), found.begin(), found.end());
  }
  if (parse_cmake_layers(text_of(root / "cmake/Layers.cmake")) != layer_table()) {
    all.push_back({"layer", "cmake/Layers.cmake", 1,
                   "links other layers than tests/structure/include_rules.cpp allows"});
  }
  return all;
}

}  // namespace
}  // namespace zinc::structure

int main(int count, char** words) {
  try {
    const auto problems = zinc::structure::problems_below(count > 1 ? words[1] : ".");
    for (const auto& problem : problems) {
      std::printf("%s\n", zinc::structure::to_string(problem).c_str());
    }
    return problems.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zinc_this_tree: %s\n", error.what());
    return 65;
  }
}
