#include "core/build_info.h"

#include <algorithm>
#include <string_view>

#include <gtest/gtest.h>

namespace zinc {
namespace build_info_test {

TEST(BuildInfo, NamesVersionCompilerAndFlags) {
  const BuildInfo info = build_info();
  EXPECT_EQ(std::ranges::count(info.version, '.'), 2);
  EXPECT_FALSE(info.compiler.empty());
  EXPECT_NE(info.flags.find("-O"), std::string_view::npos) << info.flags;
}

TEST(BuildInfo, RevisionIsTwelveDigitsOrUnknown) {
  std::string_view revision = build_info().git_revision;
  if (revision == "unknown") return;
  if (revision.ends_with("-dirty")) revision.remove_suffix(6);
  EXPECT_EQ(revision.size(), 12u);
  EXPECT_EQ(revision.find_first_not_of("0123456789abcdef"), std::string_view::npos) << revision;
}

TEST(BuildInfo, EveryDependencyHasAPackageAndEveryFoundOneAVersion) {
  const BuildInfo info = build_info();
  ASSERT_GE(info.dependencies.size(), 5u);
  for (const BuildDependency& dependency : info.dependencies) {
    EXPECT_FALSE(dependency.package.empty()) << dependency.name;
    EXPECT_EQ(dependency.found, !dependency.version.empty()) << dependency.name;
  }
  const auto fmt = std::ranges::find(info.dependencies, "fmt", &BuildDependency::name);
  ASSERT_NE(fmt, info.dependencies.end());
  EXPECT_TRUE(fmt->found);
}

}  // namespace build_info_test
}  // namespace zinc
