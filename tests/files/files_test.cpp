#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/error.h"
#include "files/append_file.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "tests/files/scratch_folder.h"

namespace zinc::files {
namespace files_test {

using testing::ElementsAre;
using testing::IsEmpty;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(InputFile, WhatIsNotThereOrNoFile_IsADataError) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto open = [&](std::string_view name) {
    return message_of<DataError>([&] { InputFile::open(folder / name); });
  };
  EXPECT_EQ(open("absent"), "there is no file '" + (folder / "absent") + "'");
  EXPECT_EQ(open("absent/deeper"), "there is no file '" + (folder / "absent/deeper") + "'");
  EXPECT_EQ(open(""), "'" + (folder / "") + "' is a folder, not a regular file");
  EXPECT_EQ(open("pipe"), "'" + (folder / "pipe") + "' is a device, not a regular file");
}

TEST(InputFile, ReadPastTheEnd_NamesThePlace) {
  const ScratchFolder folder;
  const std::string path = folder.write("f", "0123456789");
  const InputFile file = InputFile::open(path);
  std::array<std::byte, 4> out{};
  file.read(3, out);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), 4), "3456");
  EXPECT_EQ(message_of<DataError>([&] { file.read(8, out); }),
            path + ": ends at byte 10, before byte 12");
}

TEST(MappedFile, CutShortWhileInUse_IsADataError) {
  const ScratchFolder folder;
  const std::string path = folder.write("f", "0123456789");
  const MappedFile file = MappedFile::open(path);
  file.require_unchanged();
  ASSERT_EQ(::truncate(path.c_str(), 4), 0);
  EXPECT_EQ(message_of<DataError>([&] { file.require_unchanged(); }),
            path + ": was cut from 10 to 4 bytes while in use");
}

TEST(ReadTextFile, TooLarge_IsRefusedBeforeItIsRead) {
  const ScratchFolder folder;
  const std::string path = folder.write("f", "0123456789");
  EXPECT_EQ(read_text_file(path, 10), "0123456789");
  EXPECT_EQ(message_of<DataError>([&] { read_text_file(path, 9); }),
            path + ": has 10 bytes; at most 9 are allowed here");
}

TEST(AtomicFile, AppearsAtCommitAndNotBefore) {
  const ScratchFolder folder;
  folder.write("f", "old");
  {
    AtomicFile file(folder / "f");
    file.write(4, bytes("text"));
    file.write(0, bytes("new "));
    EXPECT_EQ(read_whole_file(folder / "f"), "old");
    file.commit();
  }
  EXPECT_EQ(read_whole_file(folder / "f"), "new text");
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(AtomicFile, WithoutCommit_LeavesNothing) {
  const ScratchFolder folder;
  {
    AtomicFile file(folder / "f");
    file.write(0, bytes("text"));
    EXPECT_EQ(folder.names().size(), 1U);
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(AtomicFile, NoSpace_FailsAtOnceWithPathAndErrno) {
  const ScratchFolder folder;
  try {
    AtomicFile file(folder / "f", int64_t{1} << 60);
    FAIL() << "reserved more than any disk holds";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), folder / "f");
    // A file system may limit the file before the disk does.
    EXPECT_TRUE(error.error_number() == ENOSPC || error.error_number() == EFBIG)
        << error.error_number();
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

// A disk of 1 MiB. Needs the right to mount one, by being root or in a user namespace.
TEST(AtomicFile, FullDisk_IsNoSpaceAndLeavesNothing) {
  const ScratchFolder folder;
  constexpr int kCannotMount = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      ::_exit(kCannotMount);
    }
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) ::_exit(kCannotMount);
    const auto attempt = [&](auto&& body) {
      try {
        body();
        return false;
      } catch (const IoError& error) {
        return error.error_number() == ENOSPC && error.path() == folder / "f" &&
               folder.names() == std::vector<std::string>{"f"} &&
               read_whole_file(folder / "f") == "old";
      }
    };
    folder.write("f", "old");
    const bool reserved = attempt([&] { AtomicFile file(folder / "f", 2 << 20); });
    const bool written = attempt([&] {
      AtomicFile file(folder / "f");
      const std::string block(2 << 20, 'x');
      file.write(0, bytes(block));
    });
    ::_exit(reserved && written ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotMount) GTEST_SKIP() << "no right to mount a tmpfs";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A write fails half-way, as on a full disk without reservation. It runs in another process,
// because the limit cannot be taken back.
TEST(AtomicFile, WriteFails_TargetStaysAndNothingIsLeft) {
  const ScratchFolder folder;
  folder.write("f", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100'000, .rlim_max = 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(10);
    int result = 1;
    try {
      AtomicFile file(folder / "f");
      const std::string block(64 << 10, 'x');
      file.write(0, bytes(block));
      file.write(64 << 10, bytes(block));
      file.commit();
    } catch (const IoError& error) {
      result =
          error.error_number() == EFBIG && error.path() == folder / "f" && error.offset() == 100'000
              ? 0
              : 2;
    }
    ::_exit(result);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_whole_file(folder / "f"), "old");
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(AtomicFile, FolderIsMissing_NamesTheFile) {
  const ScratchFolder folder;
  EXPECT_EQ(message_of<IoError>([&] { AtomicFile file(folder / "absent/f"); }),
            "cannot create '" + (folder / "absent/f") + "': No such file or directory (errno 2)");
}

TEST(AtomicFolder, AppearsWithItsFilesAtOnce) {
  const ScratchFolder folder;
  {
    AtomicFolder made(folder / "out/");
    write_file_atomically(made.path() + "/f", "text");
    EXPECT_FALSE(folder_exists(folder / "out"));
    made.commit(false);
  }
  EXPECT_THAT(folder.names(), ElementsAre("out"));
  EXPECT_EQ(read_whole_file(folder / "out/f"), "text");
}

TEST(AtomicFolder, ExistingFolder_IsKeptOrReplacedWhole) {
  const ScratchFolder folder;
  folder.write("out/old", "old");
  const auto replace = [&](bool allowed) {
    AtomicFolder made(folder / "out");
    write_file_atomically(made.path() + "/new", "new");
    made.commit(allowed);
  };
  EXPECT_EQ(message_of<IoError>([&] { replace(false); }),
            "cannot create folder '" + (folder / "out") + "': File exists (errno 17)");
  EXPECT_THAT(names_in(folder / "out"), ElementsAre("old"));
  replace(true);
  EXPECT_THAT(names_in(folder / "out"), ElementsAre("new"));
  EXPECT_THAT(folder.names(), ElementsAre("out"));
}

TEST(AppendFile, CreateRefusesAndResumeGoesOn) {
  const ScratchFolder folder;
  const std::string path = folder / "log";
  AppendFile(path, AppendFile::Mode::create).append("one\n");
  EXPECT_EQ(message_of<IoError>([&] { AppendFile(path, AppendFile::Mode::create); }),
            "cannot create '" + path + "': File exists (errno 17)");
  AppendFile again(path, AppendFile::Mode::resume);
  EXPECT_FALSE(again.empty());
  again.append("two\n");
  EXPECT_EQ(read_whole_file(path), "one\ntwo\n");
}

TEST(Paths, SplitAtTheLastSlash) {
  EXPECT_EQ(parent_folder("a/b/c"), "a/b");
  EXPECT_EQ(parent_folder("/c"), "/");
  EXPECT_EQ(parent_folder("c"), ".");
  EXPECT_EQ(file_name("a/b/c"), "c");
  EXPECT_EQ(file_name("c"), "c");
}

}  // namespace files_test
}  // namespace zinc::files
