#include "core/glob.h"

#include <gtest/gtest.h>

namespace zinc {
namespace glob_test {

TEST(Glob, MatchesRunsAndSingleCharacters) {
  EXPECT_TRUE(matches_glob("*", ""));
  EXPECT_TRUE(matches_glob("h.*.mlp.*", "h.11.mlp.c_fc.weight"));
  EXPECT_TRUE(matches_glob("*.weight", "a.weight.weight"));
  EXPECT_TRUE(matches_glob("h.?.x", "h.3.x"));
  EXPECT_FALSE(matches_glob("h.?.x", "h.13.x"));
  EXPECT_FALSE(matches_glob("*.bias", "bias"));
  EXPECT_FALSE(matches_glob("", "a"));
}

}  // namespace glob_test
}  // namespace zinc
