// The rules on zinc's own tree.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/structure/page_rules.h"
#include "tests/structure/tree_rules.h"

namespace zinc::structure {
namespace this_tree_test {

const std::filesystem::path kRoot = ZINC_SOURCE_DIR;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

class ThisTreeRule : public ::testing::TestWithParam<const char*> {};

TEST_P(ThisTreeRule, Holds) {
  const std::vector<SourceFile> files = load_tree(kRoot);
  ASSERT_GT(files.size(), 20u) << "found too few files below " << kRoot;
  const auto exceptions = parse_exceptions(text_of(kRoot / "tests/structure/exceptions.txt"));
  std::string broken;
  for (const Problem& problem : check_tree(files, exceptions)) {
    if (problem.rule == GetParam()) broken += to_string(problem) + "\n";
  }
  if (!broken.empty()) FAIL() << "rule '" << GetParam() << "':\n" << broken;
}

INSTANTIATE_TEST_SUITE_P(All, ThisTreeRule,
                         ::testing::Values("layer", "door", "call", "kernel", "folder", "export",
                                           "name", "own_header", "test_namespace", "exception"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ThisTree, PagesKeepTheirColumnsAndEndWithQuestions) {
  const std::vector<Page> pages = load_pages(kRoot);
  ASSERT_GT(pages.size(), 20u) << "found too few pages below " << kRoot;
  std::string broken;
  for (const Problem& problem : check_pages(pages)) broken += to_string(problem) + "\n";
  EXPECT_EQ(broken, "");
}

TEST(ThisTree, FoldersOfZeroIncludeEachOtherAsThePageSays) {
  const LayerTable table = parse_inner_table(text_of(kRoot / "docs/architecture.md"));
  ASSERT_GT(table.size(), 5u) << "found no table in docs/architecture.md";
  std::string broken;
  for (const Problem& problem : check_inner(load_tree(kRoot), table)) {
    broken += to_string(problem) + "\n";
  }
  EXPECT_EQ(broken, "");
}

TEST(ThisTree, BuildLinksTheLayersThatMayBeIncluded) {
  EXPECT_EQ(parse_cmake_layers(text_of(kRoot / "cmake/Layers.cmake")), layer_table());
}

}  // namespace this_tree_test
}  // namespace zinc::structure
