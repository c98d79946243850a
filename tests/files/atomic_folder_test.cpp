// A folder that takes the place of another, where calls of the file system fail: whatever fails,
// both contents or the new one are there and complete, under the target's name or one that the
// message says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "tests/files/file_system_faults.h"
#include "tests/files/scratch_folder.h"

namespace zinc::files {
namespace atomic_folder_test {

using testing::ElementsAre;
using testing::HasSubstr;

// Calls are counted in the order in which a replacement makes them: the new folder is synced,
// renamed (which a folder that is there refuses), exchanged; else the old one goes aside, the new
// one in, perhaps the old one back; then the names are synced.
constexpr int kNewInPlace = 1, kOldAside = 2, kNewIn = 3, kOldBack = 4;  // calls of rename
constexpr int kSyncNew = 1, kSyncNames = 2;                              // calls of fsync

FileSystemFaults::Fault no_exchange(int error) { return {FileSystemCall::exchange, 1, error}; }

// The folders beside "out", which hold the one file `name`.
std::vector<std::string> beside(const ScratchFolder& folder, const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& entry : folder.names()) {
    if (entry != "out" && names_in(folder / entry) == std::vector<std::string>{name}) {
      found.push_back(folder / entry);
    }
  }
  return found;
}

// Replaces out/old by out/new; the message of the IoError, or "(no error)".
std::string replace_out(const ScratchFolder& folder, std::vector<FileSystemFaults::Fault> faults) {
  folder.write("out/old", "old");
  AtomicFolder made(folder / "out");
  write_file_atomically(made.path() + "/new", "new");
  const FileSystemFaults failing(std::move(faults));
  return message_of<IoError>([&] { made.commit(true); });
}

TEST(ReplacedFolder, WithoutAnExchange_OldGoesAsideAndNewComesIn) {
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    const ScratchFolder folder;
    EXPECT_EQ(replace_out(folder, {no_exchange(error)}), "(no error)");
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("new"));
    EXPECT_THAT(folder.names(), ElementsAre("out")) << "the old one is away";
  }
}

TEST(ReplacedFolder, ThatCannotComeIn_StaysAndIsNamed_AndTheOldOneIsBack) {
  for (const int error : {EIO, ESTALE, ENOSPC}) {
    const ScratchFolder folder;
    const std::string said =
        replace_out(folder, {no_exchange(EINVAL), {FileSystemCall::rename, kNewIn, error}});
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("old"));
    const std::vector<std::string> kept = beside(folder, "new");
    ASSERT_EQ(kept.size(), 1U) << said;
    EXPECT_THAT(said, HasSubstr("cannot replace folder '" + (folder / "out") + "'"));
    EXPECT_THAT(said, HasSubstr("complete, and kept as '" + kept.front() + "'"));
    EXPECT_EQ(read_whole_file(kept.front() + "/new"), "new");
    EXPECT_EQ(folder.names().size(), 2U);
  }
}

TEST(ReplacedFolder, WhereTheOldOneCannotGoAside_StaysAndIsNamed) {
  const ScratchFolder folder;
  const std::string said =
      replace_out(folder, {no_exchange(ENOSYS), {FileSystemCall::rename, kOldAside, EACCES}});
  EXPECT_THAT(names_in(folder / "out"), ElementsAre("old"));
  const std::vector<std::string> kept = beside(folder, "new");
  ASSERT_EQ(kept.size(), 1U) << said;
  EXPECT_THAT(said, HasSubstr("cannot move away folder '" + (folder / "out") + "'"));
  EXPECT_THAT(said, HasSubstr(kept.front()));
}

TEST(ReplacedFolder, WhereNothingCanBeRenamedAnyMore_BothStayAndAreNamed) {
  const ScratchFolder folder;
  const std::string said = replace_out(folder, {no_exchange(EINVAL),
                                                {FileSystemCall::rename, kNewIn, EIO},
                                                {FileSystemCall::rename, kOldBack, EIO}});
  EXPECT_FALSE(folder_exists(folder / "out"));
  const std::vector<std::string> fresh = beside(folder, "new");
  const std::vector<std::string> old = beside(folder, "old");
  ASSERT_EQ(fresh.size(), 1U) << said;
  ASSERT_EQ(old.size(), 1U) << said;
  EXPECT_THAT(said, HasSubstr("complete, and kept as '" + fresh.front() + "'"));
  EXPECT_THAT(said, HasSubstr("the old folder as '" + old.front() + "'"));
}

TEST(ReplacedFolder, ThatWasRefusedItsPlaceOrSync_StaysAndIsNamed) {
  const FileSystemFaults::Fault refusals[] = {{FileSystemCall::rename, kNewInPlace, EACCES},
                                              {FileSystemCall::sync, kSyncNew, EIO}};
  for (const FileSystemFaults::Fault& refusal : refusals) {
    const ScratchFolder folder;
    const std::string said = replace_out(folder, {refusal});
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("old"));
    const std::vector<std::string> kept = beside(folder, "new");
    ASSERT_EQ(kept.size(), 1U) << said;
    EXPECT_THAT(said, HasSubstr("complete, and kept as '" + kept.front() + "'"));
  }
}

// A crash may leave the old content until the names are durable, so it is deleted after that.
TEST(ReplacedFolder, WhoseNamesCannotBeSynced_IsThere_AndTheOldOneStays) {
  for (const bool exchanges : {true, false}) {
    const ScratchFolder folder;
    std::vector<FileSystemFaults::Fault> faults = {{FileSystemCall::sync, kSyncNames, EIO}};
    if (!exchanges) faults.push_back(no_exchange(EINVAL));
    const std::string said = replace_out(folder, faults);
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("new"));
    const std::vector<std::string> kept = beside(folder, "old");
    ASSERT_EQ(kept.size(), 1U) << said;
    EXPECT_THAT(said, HasSubstr("the old one kept as '" + kept.front() + "'"));
  }
}

}  // namespace atomic_folder_test
}  // namespace zinc::files
