#include "offload/swap_space.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <random>

#include "tests/offload/faulty_queue.h"
#include "tests/offload/swap_folder.h"

namespace zinc::offload {
namespace swap_space_test {

constexpr int64_t kPage = 4096;
using Kind = Fate::Kind;

SwapOptions options_in(const SwapFolder& folder, std::vector<int64_t> extents) {
  return {.directory = folder.path(), .extent_bytes = std::move(extents)};
}

// Bytes of the space's file by a descriptor that is not direct.
class BackingFile {
 public:
  explicit BackingFile(const SwapSpace& space)
      : fd_(::open(("/proc/self/fd/" + std::to_string(space.file().fd())).c_str(), O_RDWR)) {}
  ~BackingFile() { ::close(fd_); }
  BackingFile(const BackingFile&) = delete;
  BackingFile& operator=(const BackingFile&) = delete;
  void flip(int64_t bit) const {
    std::byte byte{};
    ASSERT_EQ(::pread(fd_, &byte, 1, bit / 8), 1);
    byte ^= static_cast<std::byte>(1 << (bit % 8));
    ASSERT_EQ(::pwrite(fd_, &byte, 1, bit / 8), 1);
    ASSERT_EQ(::fdatasync(fd_), 0);
  }

 private:
  int fd_;
};

TEST(SwapSpace, GivesBackEveryExtent) {
  const SwapFolder folder;
  const auto storage = make_storage({.block_size = kPage});
  SwapSpace space(*storage, options_in(folder, {1, kPage, 5 * kPage + 1, 100}));
  EXPECT_EQ(space.bytes_of(0), kPage);
  EXPECT_EQ(space.bytes_of(2), 6 * kPage);
  EXPECT_EQ(space.bytes(), 9 * kPage);
  for (uint64_t round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      const AlignedBytes bytes(space.bytes_of(i));
      bytes.fill_from(round * 10 + static_cast<uint64_t>(i));
      space.write(i, bytes.span()).wait();
    }
    for (int i = 3; i >= 0; --i) {
      const AlignedBytes bytes(space.bytes_of(i)), found(space.bytes_of(i));
      bytes.fill_from(round * 10 + static_cast<uint64_t>(i));
      space.read(i, found.span()).wait();
      EXPECT_TRUE(bytes == found) << i;
    }
  }
  EXPECT_EQ(space.bytes_written(), 3 * 9 * kPage);
  EXPECT_EQ(space.bytes_read(), 3 * 9 * kPage);
}

TEST(SwapClock, CountsWhatIsUnderWayOnceAndWhatIsWaitedFor) {
  SwapClock clock;
  clock.add(100, 200, 150);  // waited for 50
  clock.add(150, 260, 210);  // 60 more under way, 50 more waited for
  clock.add(180, 190, 300);  // beside others, and over before anyone waited
  EXPECT_EQ(clock.busy_ns(), 160);
  EXPECT_EQ(clock.stall_ns(), 100);
  clock.add(1000, 1001, 2000);
  EXPECT_EQ(clock.busy_ns(), 161);
}

TEST(SwapSpace, IsTimedFromTheStartOfATransferToItsEnd) {
  const SwapFolder folder;
  const auto storage = make_storage({});
  SwapClock clock;
  SwapOptions options = options_in(folder, {1 << 20});
  options.clock = &clock;
  SwapSpace space(*storage, options);
  const AlignedBytes bytes(1 << 20);
  const int64_t before = TraceRecorder::now_ns();
  space.write(0, bytes.span()).wait();
  space.read(0, bytes.span()).wait();
  const int64_t all = TraceRecorder::now_ns() - before;
  EXPECT_GT(clock.busy_ns(), 0);
  EXPECT_LE(clock.busy_ns(), all);
  EXPECT_LE(clock.stall_ns(), clock.busy_ns());
}

TEST(SwapSpace, HasNoNameAndIsPrivate) {
  const SwapFolder folder;
  const auto storage = make_storage({});
  for (const Unnamed naming : {Unnamed::automatic, Unnamed::by_unlink}) {
    SwapOptions options = options_in(folder, {10 * kPage});
    options.naming = naming;
    SwapSpace space(*storage, options);
    EXPECT_TRUE(folder.is_empty());
    struct stat about {};
    ASSERT_EQ(::fstat(space.file().fd(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777u, 0600u);
    EXPECT_EQ(about.st_nlink, 0u);
    EXPECT_GE(about.st_blocks * 512, 10 * kPage);  // reserved
    const AlignedBytes bytes(10 * kPage), found(10 * kPage);
    bytes.fill_from(1);
    space.write(0, bytes.span()).wait();
    space.read(0, found.span()).wait();
    EXPECT_TRUE(bytes == found);
  }
}

TEST(SwapSpace, ABitThatFlipsOnDiskIsFoundBeforeTheBytesAreUsed) {
  const SwapFolder folder;
  const auto storage = make_storage({.block_size = kPage});
  SwapSpace space(*storage, options_in(folder, {3 * kPage, 2 * kPage}));
  const AlignedBytes bytes(2 * kPage), found(2 * kPage);
  bytes.fill_from(1);
  space.write(1, bytes.span()).wait();
  const BackingFile file(space);
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    const auto bit = static_cast<int64_t>(random() % (2 * kPage * 8)) + 3 * kPage * 8;
    file.flip(bit);
    const IoError error = io_error_of([&] { space.read(1, found.span()).wait(); });
    EXPECT_EQ(error.offset(), 3 * kPage);
    EXPECT_NE(std::string(error.what()).find("CRC-32C"), std::string::npos) << error.what();
    const auto read_beside = [&] { space.read_beside(space.stored(1), found.span()); };
    EXPECT_EQ(io_error_of(read_beside).offset(), 3 * kPage);
    file.flip(bit);
    space.read(1, found.span()).wait();
    EXPECT_TRUE(bytes == found);
    found.fill_from(2);
    read_beside();
    EXPECT_TRUE(bytes == found);
  }
}

TEST(SwapSpace, WithoutVerification_AFlippedBitPasses) {
  const SwapFolder folder;
  const auto storage = make_storage({});
  SwapOptions options = options_in(folder, {kPage});
  options.verify = false;
  SwapSpace space(*storage, options);
  const AlignedBytes bytes(kPage), found(kPage);
  bytes.fill_from(1);
  space.write(0, bytes.span()).wait();
  BackingFile(space).flip(9);
  space.read(0, found.span()).wait();
  EXPECT_FALSE(bytes == found);
}

// One fault at the n-th block of a kind.
std::unique_ptr<Storage> storage_with(Fate fate, IoKind kind, int nth) {
  auto seen = std::make_shared<std::atomic<int>>(0);
  return make_faulty_storage(
      {.block_size = kPage},
      [=] {
        return Faults{.fate = [=](const BlockIo& io) -> Fate {
          return io.kind == kind && ++*seen == nth ? fate : Fate{};
        }};
      },
      true);
}

TEST(SwapSpace, ALostWriteIsFound) {
  const SwapFolder folder;
  // Blocks 1-3 are the first write, the second's middle block keeps its old bytes.
  const auto storage = storage_with({Kind::lose}, IoKind::write, 5);
  SwapSpace space(*storage, options_in(folder, {3 * kPage}));
  const AlignedBytes bytes(3 * kPage);
  for (const uint64_t seed : {1, 2}) {
    bytes.fill_from(seed);
    space.write(0, bytes.span()).wait();
  }
  const IoError error = io_error_of([&] { space.read(0, bytes.span()).wait(); });
  EXPECT_NE(std::string(error.what()).find("write number 2"), std::string::npos) << error.what();
}

TEST(SwapSpace, AWriteToAnotherPlaceIsFoundThere) {
  const SwapFolder folder;
  const auto storage = storage_with({Kind::misdirect, -kPage}, IoKind::write, 3);
  SwapSpace space(*storage, options_in(folder, {kPage, kPage}));
  const AlignedBytes first(kPage), second(kPage);
  first.fill_from(1);
  second.fill_from(2);
  space.write(0, first.span()).wait();
  space.write(1, second.span()).wait();
  second.fill_from(3);
  space.write(1, second.span()).wait();  // goes to extent 0
  EXPECT_EQ(io_error_of([&] { space.read(0, first.span()).wait(); }).offset(), 0);
  EXPECT_EQ(io_error_of([&] { space.read(1, first.span()).wait(); }).offset(), kPage);
}

TEST(SwapSpace, ABitThatFlipsOnTheWayIsReadAgain) {
  const SwapFolder folder;
  const auto storage = storage_with({Kind::flip_bit, 12345}, IoKind::read, 2);
  SwapSpace space(*storage, options_in(folder, {3 * kPage}));
  const AlignedBytes bytes(3 * kPage), found(3 * kPage);
  bytes.fill_from(1);
  space.write(0, bytes.span()).wait();
  space.read(0, found.span()).wait();
  EXPECT_TRUE(bytes == found);
  EXPECT_EQ(space.bytes_read(), 3 * kPage);
}

TEST(SwapSpace, AFailedWriteLeavesNoValue) {
  const SwapFolder folder;
  const auto storage = storage_with({Kind::answer, -EIO}, IoKind::write, 2);
  SwapSpace space(*storage, options_in(folder, {kPage}));
  const AlignedBytes bytes(kPage), found(kPage);
  EXPECT_THROW(space.read(0, found.span()), InternalError);  // never written
  space.write(0, bytes.span()).wait();
  EXPECT_EQ(io_error_of([&] { space.write(0, bytes.span()).wait(); }).error_number(), EIO);
  EXPECT_THROW(space.read(0, found.span()), InternalError);
  bytes.fill_from(4);
  space.write(0, bytes.span()).wait();
  space.read(0, found.span()).wait();
  EXPECT_TRUE(bytes == found);
}

TEST(SwapSpace, TwoTransfersOfOneExtentAtOnceAreRefused) {
  const SwapFolder folder;
  const auto storage = make_storage({});
  SwapSpace space(*storage, options_in(folder, {kPage, kPage}));
  const AlignedBytes bytes(kPage);
  auto transfer = space.write(0, bytes.span());
  EXPECT_THROW(space.read(0, bytes.span()), InternalError);
  EXPECT_THROW(space.write(0, bytes.span()), InternalError);
  space.write(1, bytes.span()).wait();
  transfer.wait();
  space.read(0, bytes.span()).wait();
}

TEST(SwapSpace, AValueMayBeShorterThanItsExtent) {
  const SwapFolder folder;
  const auto storage = make_storage({});
  SwapSpace space(*storage, options_in(folder, {3 * kPage}));
  AlignedBytes bytes(3 * kPage), found(3 * kPage);
  for (const size_t pages : {2, 3, 1}) {
    bytes.fill_from(static_cast<int>(pages));
    space.write(0, bytes.span().first(pages * kPage)).wait();
    space.read(0, found.span().first(pages * kPage)).wait();
    EXPECT_TRUE(
        std::ranges::equal(found.span().first(pages * kPage), bytes.span().first(pages * kPage)));
    EXPECT_EQ(space.stored(0).bytes, static_cast<int64_t>(pages) * kPage);
  }
  EXPECT_EQ(space.bytes_written(), 6 * kPage);
  EXPECT_THROW(space.read(0, found.span()), InternalError);
  EXPECT_THROW(space.write(0, bytes.span().first(100)), InternalError);
}

// The handle is destroyed while the disk answers, so the extent is as free as after a failed write.
TEST(SwapSpace, ATransferThatNobodyWaitedFor_FreesItsExtent) {
  const SwapFolder folder;
  const auto storage = make_storage({.block_size = kPage});
  SwapSpace space(*storage, options_in(folder, {kPage}));
  const AlignedBytes bytes(kPage);
  static_cast<void>(space.write(0, bytes.span()));
  space.write(0, bytes.span()).wait();
  static_cast<void>(space.read(0, bytes.span()));
  space.read(0, bytes.span()).wait();
}

TEST(SwapSpace, AnExtentWhoseTransferHangs_SaysSo) {
  const SwapFolder folder;
  std::atomic<bool> released = false;
  StorageOptions options{.block_size = kPage};
  options.deadline = std::chrono::milliseconds(50);
  const auto storage = make_hung_storage(options, released);
  SwapSpace space(*storage, options_in(folder, {kPage}));
  const AlignedBytes bytes(kPage);
  const AlignedBytes others(kPage);
  SwapSpace::Transfer hung = space.write(0, bytes.span());
  EXPECT_EQ(io_error_of([&] { hung.wait(); }).error_number(), ETIMEDOUT);
  EXPECT_FALSE(hung.is_over());
  const IoError error = io_error_of([&] { static_cast<void>(space.write(0, others.span())); });
  EXPECT_EQ(error.error_number(), ETIMEDOUT);
  EXPECT_EQ(error.path(), space.file().path());
  released = true;
  while (!hung.query()) {
  }
  EXPECT_EQ(io_error_of([&] { hung.wait(); }).error_number(), EIO);
  EXPECT_TRUE(hung.is_over());
  EXPECT_EQ(io_error_of([&] { space.write(0, bytes.span()).wait(); }).error_number(), EIO);
}

TEST(SwapSpace, TooLittleSpaceIsNamedAtStart) {
  const SwapFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "may not mount";
  }
  const auto storage = make_storage({});
  const IoError error = io_error_of([&] {
    SwapSpace(*storage, options_in(folder, {1 << 19, 1 << 20}));
  });
  EXPECT_EQ(error.error_number(), ENOSPC);
  EXPECT_NE(std::string(error.what()).find("1572864 bytes of swap are needed; 1.0 MiB free"),
            std::string::npos)
      << error.what();
  ::umount2(folder.path().c_str(), MNT_DETACH);
}

TEST(SwapSpace, DirectoriesThatCannotBeUsedAreNamed) {
  const SwapFolder folder;
  const auto storage = make_storage({});
  const auto error_in = [&](const std::string& directory) {
    return io_error_of(
        [&] { SwapSpace(*storage, {.directory = directory, .extent_bytes = {kPage}}); });
  };
  const IoError missing = error_in(folder.path() + "/none");
  EXPECT_EQ(missing.error_number(), ENOENT);
  EXPECT_EQ(missing.path(), folder.path() + "/none");
  EXPECT_NE(std::string(missing.what()).find("nvme_path"), std::string::npos);
  { const File file = open_named(folder.path() + "/file"); }
  EXPECT_EQ(error_in(folder.path() + "/file").error_number(), ENOTDIR);
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", MS_RDONLY, "size=1m") == 0) {
    const IoError read_only = error_in(folder.path());
    ::umount2(folder.path().c_str(), MNT_DETACH);
    EXPECT_EQ(read_only.error_number(), EROFS);
    EXPECT_NE(std::string(read_only.what()).find("may write"), std::string::npos);
  }
}

// A separate file system on a loop device, if the machine allows it.
class LoopMount {
 public:
  LoopMount(const SwapFolder& folder, const std::string& kind, int64_t bytes)
      : path_(folder.path() + "/" + kind) {
    const std::string image = path_ + ".image";
    { const File file = open_named(image); }
    std::filesystem::resize_file(image, static_cast<uint64_t>(bytes));
    std::filesystem::create_directory(path_);
    works_ = std::system(("{ mkfs." + kind + " -q " + image + " && mount -o loop " + image + " " +
                          path_ + "; } >/dev/null 2>&1")
                             .c_str()) == 0;
  }
  ~LoopMount() {
    if (works_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;
  bool works() const { return works_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool works_ = false;
};

TEST(SwapSpace, RealFileSystems_HoldSwapPastThePageCacheOrNameWhatIsMissing) {
  int tried = 0;
  for (const auto& [kind, mib] : {std::pair{"ext4", 32}, std::pair{"xfs", 320}}) {
    const SwapFolder folder;
    const LoopMount disk(folder, kind, int64_t{mib} << 20);
    if (!disk.works()) continue;
    ++tried;
    const auto storage = make_storage({.block_size = 4 * kPage, .threads = 2});
    const auto entries = [&] {
      return std::distance(std::filesystem::directory_iterator(disk.path()), {});
    };
    const auto before = entries();
    {
      SwapSpace space(*storage, {.directory = disk.path(), .extent_bytes = {1 << 20, 3 << 20}});
      EXPECT_TRUE(space.file().is_direct()) << kind;
      for (uint64_t round = 1; round <= 2; ++round) {
        for (int i = 0; i < 2; ++i) {
          const AlignedBytes bytes(space.bytes_of(i)), found(space.bytes_of(i));
          bytes.fill_from(round * 2 + static_cast<uint64_t>(i));
          space.write(i, bytes.span()).wait();
          space.read(i, found.span()).wait();
          EXPECT_TRUE(bytes == found) << kind;
        }
      }
      EXPECT_EQ(entries(), before) << kind;
    }
    const IoError full = io_error_of([&] {
      SwapSpace(*storage, {.directory = disk.path(), .extent_bytes = {int64_t{mib} << 20}});
    });
    EXPECT_EQ(full.error_number(), ENOSPC) << kind;
    EXPECT_NE(std::string(full.what()).find("bytes of swap are needed"), std::string::npos);
  }
  if (tried == 0) GTEST_SKIP() << "may not make or mount file systems";
}

TEST(SwapSpace, TwoRunsInOneDirectoryNeverMeet) {
  const SwapFolder folder;
  const auto storage = make_storage({});
  for (const Unnamed naming : {Unnamed::automatic, Unnamed::by_unlink}) {
    SwapOptions options = options_in(folder, {4 * kPage});
    options.naming = naming;
    SwapSpace one(*storage, options), two(*storage, options);
    const AlignedBytes a(4 * kPage), b(4 * kPage), found(4 * kPage);
    a.fill_from(1);
    b.fill_from(2);
    one.write(0, a.span()).wait();
    two.write(0, b.span()).wait();
    one.read(0, found.span()).wait();
    EXPECT_TRUE(a == found);
    two.read(0, found.span()).wait();
    EXPECT_TRUE(b == found);
  }
}

TEST(SwapSpace, AKilledProcessLeavesNothing) {
  const SwapFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto storage = make_storage({.block_size = kPage});
    SwapSpace space(*storage, options_in(folder, {1 << 20}));
    const AlignedBytes bytes(1 << 20);
    for (;;) {
      space.write(0, bytes.span()).wait();
      if (space.bytes_written() > 3 << 20) {
        auto in_flight = space.write(0, bytes.span());
        ::raise(SIGKILL);
      }
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(folder.is_empty());
}

// The seed draws queue shapes and everything above. The result is right bytes or one named error,
// never wrong bytes, and the run always ends.
class Schedule {
 public:
  explicit Schedule(uint64_t seed) : random_(seed) {
    deadly_ = one_in(3);
    direction_ = one_in(2) ? IoKind::read : IoKind::write;
  }
  StorageOptions options() {
    return {.block_size = kPage * (1 + pick(3)),
            .queue_depth = static_cast<int>(1 + pick(9)),
            .threads = 1,
            .single_submit = one_in(2),
            .overlap_events = one_in(2)};
  }
  bool one_in(int64_t n) { return pick(n) == 0; }
  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  // Runs in the storage's one worker; the test's own picks come from another object.
  Faults faults() {
    return {.fate = [this](const BlockIo& io) { return fate(io); },
            .admit = [this](int64_t count) -> int64_t {
              if (one_in(6)) return one_in(2) ? -EINTR : -EAGAIN;
              return 1 + pick(count);
            },
            .interrupt = [this] { return one_in(6) ? -EINTR : 0; }};
  }

 private:
  Fate fate(const BlockIo& io) {
    if (one_in(8)) return {Kind::shorten, kPage * (1 + pick(3))};
    if (one_in(16)) return {Kind::answer, one_in(2) ? -EINTR : -EAGAIN};
    if (one_in(16)) return {Kind::answer, 1 + pick(512)};
    if (!deadly_ || io.kind != direction_ || !one_in(10)) return {};
    if (one_in(2)) return {Kind::answer, one_in(2) ? -EIO : -ENOSPC};
    if (io.kind == IoKind::read) return {Kind::flip_bit, pick(1 << 20)};
    return one_in(2) ? Fate{Kind::lose} : Fate{Kind::misdirect, kPage * (pick(2) * 2 - 1)};
  }

  std::mt19937_64 random_;
  bool deadly_ = false;
  IoKind direction_ = IoKind::read;
};

struct Tally {
  int right = 0;
  int errors = 0;
};

void run_schedule(uint64_t seed, Tally& tally) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const SwapFolder folder;
  Schedule disk(seed), test(seed + 1'000'000);
  const StorageOptions options = test.options();
  const auto storage = make_faulty_storage(
      options, [&] { return disk.faults(); }, seed % 2 == 0);
  // A page at each end, where misdirected writes may go.
  std::vector<int64_t> extents{kPage};
  for (int i = 0; i < 4; ++i) extents.push_back(kPage * (1 + test.pick(9)));
  extents.push_back(kPage);
  SwapSpace space(*storage, options_in(folder, extents));
  std::vector<uint64_t> content(extents.size(), 0);  // seed of what is there; 0: nothing
  for (uint64_t round = 1; round <= 24; ++round) {
    const auto i = static_cast<int>(1 + test.pick(4));
    uint64_t& held = content[static_cast<size_t>(i)];
    const AlignedBytes bytes(space.bytes_of(i)), found(space.bytes_of(i));
    const bool write = held == 0 || test.one_in(2);
    try {
      if (write) {
        bytes.fill_from(round);
        held = 0;
        space.write(i, bytes.span()).wait();
        held = round;
      } else {
        bytes.fill_from(held);
        space.read(i, found.span()).wait();
        ASSERT_TRUE(bytes == found) << "wrong bytes in extent " << i;
        ++tally.right;
      }
    } catch (const IoError& error) {
      ++tally.errors;
      EXPECT_NE(error.path().find(folder.path()), std::string::npos) << error.what();
      EXPECT_GE(error.offset(), 0) << error.what();
    }
  }
}

TEST(SwapSpace, AnyScheduleOfFaultsGivesRightBytesOrANamedError) {
  Tally tally;
  for (uint64_t seed = 1; seed <= 100; ++seed) run_schedule(seed, tally);
  // The schedules do what they are for.
  EXPECT_GT(tally.right, 500);
  EXPECT_GT(tally.errors, 50);
}

TEST(SwapSpace_Slow, AThousandSchedulesOfFaults) {
  Tally tally;
  for (uint64_t seed = 101; seed <= 1100; ++seed) run_schedule(seed, tally);
  EXPECT_GT(tally.errors, 500);
}

}  // namespace swap_space_test
}  // namespace zinc::offload
