// tests/structure/tree_rules.h: the rules of the source tree, each a function from files to
// problems.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/structure/source_tree.h"

namespace zinc::structure {

// Layer -> layers it may include, itself left out.
using LayerTable = std::map<std::string, std::set<std::string>, std::less<>>;
const LayerTable& layer_table();
// The same table as the build states it: the ZINC_SEES_<layer> lines of cmake/Layers.cmake.
LayerTable parse_cmake_layers(std::string_view text);

// By folder: the folders of its layer that it may include, from docs/architecture.md, sections "The
// folders of <layer>": {"zero/run", {"zero/layout", ...}}. "zero" is the folder of the layer
// itself. A row may also say "all above" or "all of these".
LayerTable parse_inner_table(std::string_view page);

// "layer": includes point down only, and from the root of the tree.
std::vector<Problem> check_layers(const std::vector<SourceFile>& files);
// "inner": the folders of a layer that has such a section include each other as it says, and all
// that it says is needed. Not in check_tree(), which sees no pages.
std::vector<Problem> check_inner(const std::vector<SourceFile>& files, const LayerTable& table);
// "door": third-party and system headers, each where its table says.
std::vector<Problem> check_doors(const std::vector<SourceFile>& files);
// "call": calls that a library does not make (print, exit, read the environment, ...).
std::vector<Problem> check_calls(const std::vector<SourceFile>& files);
// "own_header": a source beside a header of its name includes it first, which shows that the header
// compiles alone.
std::vector<Problem> check_own_headers(const std::vector<SourceFile>& files);
// "test_namespace": names of <name>_test.cpp lie in a namespace <name>_test, so that several test
// files can be compiled as one.
std::vector<Problem> check_test_namespaces(const std::vector<SourceFile>& files);
// "kernel": every kernels/<op>.h has its dispatcher, CPU file, test and bench.
std::vector<Problem> check_kernels(const std::vector<SourceFile>& files);
// "folder": no folder outside tests/ of more than kMaxConcepts concepts: a header with its sources
// (x.h, x.cpp, x_mpi.cpp) is one, and so is a source without a header. Lists of likes are
// exceptions.
std::vector<Problem> check_folders(const std::vector<SourceFile>& files);
// "export": zinc.h has a using-declaration of every function and type that a header of
// autograd/ops/ or autograd/functions/ declares.
std::vector<Problem> check_exports(const std::vector<SourceFile>& files);
// "name": file names that say nothing; headers without #pragma once.
std::vector<Problem> check_names(const std::vector<SourceFile>& files);

inline constexpr int kMaxConcepts = 25;

// One accepted deviation: "rule path reason in words".
struct Exception {
  std::string rule;
  std::string path;
  std::string reason;
};
// Lines of exceptions.txt; '#' begins a comment. Throws std::runtime_error without a reason.
std::vector<Exception> parse_exceptions(std::string_view text);

// All rules. An exception removes the problems of its rule and path; one that removes nothing is
// itself a problem, of rule "exception".
std::vector<Problem> check_tree(const std::vector<SourceFile>& files,
                                const std::vector<Exception>& exceptions);

}  // namespace zinc::structure
