#include "core/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string>

#include "core/device.h"

namespace zinc {
namespace error_test {

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Concat, Numbers_ReadBackToTheSameValue) {
  EXPECT_EQ(str(1, ' ', -2, " ", true, " ", 3u), "1 -2 true 3");
  for (const double value : {0.1, 1.0 / 3, 1e300, 5e-324}) {
    EXPECT_EQ(std::strtod(str(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(std::stof(str(0.1f)), 0.1f);
  EXPECT_EQ(str(0.1f), "0.1");
  EXPECT_EQ(str(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
}

TEST(Concat, OwnTypes_TakePartByToString) {
  EXPECT_EQ(str("on ", Device{.kind = DeviceKind::cuda, .index = 2}, " in ", Tier::pinned_host),
            "on cuda:2 in pinned_host");
}

TEST(Require, Fulfilled_DoesNothing) {
  require(true, "never");
  bug_check(true, "never");
}

TEST(Require, Violated_ThrowsTheCallersMistake) {
  EXPECT_THROW(require(false, "x"), InvalidArgument);
  EXPECT_EQ(message_of([] { require(false, "gemm: k must match: ", 3, " vs ", 4); }),
            "gemm: k must match: 3 vs 4");
}

TEST(BugCheck, Violated_SaysThatItIsOurs) {
  EXPECT_THROW(bug_check(false, "x"), InternalError);
  EXPECT_EQ(message_of([] { bug_check(false, "ring is full"); }), "internal error: ring is full");
}

TEST(IoError, Message_NamesOperationFileOffsetAndErrno) {
  const IoError error("write", "/data/a.bin", 4096, ENOSPC, "free space in /data");
  EXPECT_EQ(std::string(error.what()),
            "cannot write '/data/a.bin' at offset 4096: No space left on device (errno 28); free "
            "space in /data");
  EXPECT_EQ(error.path(), "/data/a.bin");
  EXPECT_EQ(error.offset(), 4096);
  EXPECT_EQ(error.error_number(), ENOSPC);
}

TEST(IoError, Message_WithoutOffsetAndWithAShortTransfer) {
  EXPECT_EQ(std::string(IoError("open", "a", -1, ENOENT).what()),
            "cannot open 'a': No such file or directory (errno 2)");
  EXPECT_EQ(std::string(IoError("read", "a", 0, 0).what()),
            "cannot read 'a' at offset 0: short transfer");
}

TEST(Errors, AllOfThem_AreErrors) {
  const auto is_error = [](const std::exception& thrown) {
    return dynamic_cast<const Error*>(&thrown) != nullptr;
  };
  EXPECT_TRUE(is_error(ConfigError("")));
  EXPECT_TRUE(is_error(InvalidArgument("")));
  EXPECT_TRUE(is_error(DataError("")));
  EXPECT_TRUE(is_error(CudaError("")));
  EXPECT_TRUE(is_error(CommError("")));
  EXPECT_TRUE(is_error(IoError("", "", 0, 0)));
  EXPECT_TRUE(is_error(OutOfMemory("", 0, 0)));
  EXPECT_TRUE(is_error(InternalError("")));
}

}  // namespace error_test
}  // namespace zinc
