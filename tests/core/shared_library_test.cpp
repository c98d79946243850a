#include "core/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zinc {
namespace shared_library_test {

using testing::AllOf;
using testing::HasSubstr;

double (*cosine)(double) = nullptr;

TEST(SharedLibrary, FunctionsOfAFileThatIsThere_CanBeCalled) {
  SharedLibrary math({.file = "libm.so.6", .what = "the C library"});
  math.find(cosine, "cos");
  EXPECT_EQ(math.missing(), "");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST(SharedLibrary, MissingFunction_IsNamedWithTheCure) {
  SharedLibrary math(
      {.file = "libm.so.6", .what = "the C library", .newer = "update it to 99 or later"});
  math.find(cosine, "zinc_first");
  EXPECT_EQ(cosine, nullptr);
  math.find(cosine, "zinc_second");
  EXPECT_EQ(math.missing(), "libm.so.6 has no zinc_first: update it to 99 or later");
}

TEST(SharedLibrary, MissingFile_IsNamedWithTheCure) {
  SharedLibrary library({.file = "libzinc_absent.so.7", .what = "Absent 7", .cure = "install it"});
  library.find(cosine, "cos");
  EXPECT_EQ(cosine, nullptr);
  EXPECT_THAT(library.missing(), AllOf(HasSubstr("Absent 7 is not found (libzinc_absent.so.7"),
                                       HasSubstr("): install it")));
}

}  // namespace shared_library_test
}  // namespace zinc
