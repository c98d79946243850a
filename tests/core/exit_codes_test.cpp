#include "core/exit_codes.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "core/error.h"

namespace zinc {
namespace exit_codes_test {

template <class Thrown>
Failure failure_of(const Thrown& error) {
  return describe(std::make_exception_ptr(error));
}

TEST(ExitCodes, FollowTheKindOfError) {
  EXPECT_EQ(failure_of(ConfigError("x")).code, 78);
  EXPECT_EQ(failure_of(DataError("x")).code, 65);
  EXPECT_EQ(failure_of(NumericsError("x")).code, 65);
  EXPECT_EQ(failure_of(CommError("x")).code, 72);
  EXPECT_EQ(failure_of(OutOfMemory("x", 2, 1)).code, 71);
  EXPECT_EQ(failure_of(std::bad_alloc()).code, 71);
  EXPECT_EQ(failure_of(InvalidArgument("x")).code, 64);
  EXPECT_EQ(failure_of(InternalError("x")).code, 70);
  EXPECT_EQ(failure_of(std::runtime_error("x")).code, 70);
}

TEST(ExitCodes, OfFilesFollowTheErrno) {
  const auto code = [](int number) { return failure_of(IoError("write", "/a", 0, number)).code; };
  EXPECT_EQ(code(ENOSPC), 74);
  EXPECT_EQ(code(EIO), 74);
  EXPECT_EQ(code(EACCES), 77);
  EXPECT_EQ(code(EROFS), 77);
  EXPECT_EQ(code(EEXIST), 73);
  EXPECT_EQ(code(EWOULDBLOCK), 73);
}

TEST(ExitCodes, TheMessageIsTheErrors) {
  EXPECT_EQ(failure_of(ConfigError("the cure")).message, "the cure");
}

}  // namespace exit_codes_test
}  // namespace zinc
