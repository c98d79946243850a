#include "files/fill_marks.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace zinc::files {
namespace fill_marks_test {

TEST(FillMarks, WhatIsFilledInIsNotSearched) {
  EXPECT_EQ(fill_marks("a @x@ b @y@ c", {{"@x@", "@y@"}, {"@y@", "2"}}), "a @y@ b 2 c");
  EXPECT_EQ(fill_marks("@x@", {{"@x@", ""}}), "");
  EXPECT_EQ(fill_marks("none", {}), "none");
}

TEST(FillMarks, AMissingMark_IsAnError) {
  EXPECT_THROW(fill_marks("a @y@", {{"@x@", "1"}}), InternalError);
  EXPECT_THROW(fill_marks("@y@ @x@", {{"@x@", "1"}, {"@y@", "2"}}), InternalError);
}

}  // namespace fill_marks_test
}  // namespace zinc::files
