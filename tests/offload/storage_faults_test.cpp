#include "offload/storage.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "tests/offload/faulty_queue.h"
#include "tests/offload/storage_shapes.h"
#include "tests/offload/swap_folder.h"

namespace zinc::offload {
namespace storage_faults_test {

using Kind = Fate::Kind;

struct Outcome {
  bool right = false;
  int write_error = -1;  // -1: none
  int read_error = -1;
  int64_t offset = -1;
  std::string message;
};

Outcome run_with(const Faults& faults, const Shape& shape = kShapes[1], bool aio = true) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  reserve(file, kBytes);
  const auto storage = make_faulty_storage(
      options_of(shape), [&] { return faults; }, aio);
  const AlignedBytes written(kBytes), found(kBytes, 0);
  written.fill_from(11);
  Outcome outcome;
  const auto attempt = [&](int& slot, IoHandle handle) {
    try {
      handle.wait();
    } catch (const IoError& error) {
      slot = error.error_number();
      outcome.offset = error.offset();
      outcome.message = error.what();
    }
  };
  attempt(outcome.write_error, storage->write(file, 0, written.span()));
  attempt(outcome.read_error, storage->read(file, 0, found.span()));
  outcome.right = written == found;
  return outcome;
}

void expect_right(const Outcome& outcome) {
  EXPECT_TRUE(outcome.right);
  EXPECT_EQ(outcome.write_error, -1) << outcome.message;
  EXPECT_EQ(outcome.read_error, -1) << outcome.message;
}

TEST(StorageFaults, PartialSubmitsAreContinued) {
  for (const int64_t taken : {1, 3}) {
    int64_t calls = 0;
    expect_right(run_with({.admit = [&](int64_t count) {
      ++calls;
      return std::min(count, taken);
    }}));
    EXPECT_GE(calls, 2 * 64 / taken);
  }
}

TEST(StorageFaults, RefusalsForNowAreRepeated) {
  for (const int64_t error : {EAGAIN, EINTR}) {
    int64_t calls = 0;
    expect_right(run_with(
        {.admit = [&](int64_t count) -> int64_t { return ++calls % 3 == 0 ? -error : count; }}));
    EXPECT_GE(calls, 3);
  }
  int64_t reaps = 0;
  expect_right(run_with({.interrupt = [&] { return ++reaps % 2 == 0 ? -EINTR : 0; }}));
  EXPECT_GE(reaps, 4);
}

TEST(StorageFaults, ARefusalForEverIsAnError) {
  const Outcome outcome =
      run_with({.admit = [](int64_t) -> int64_t { return -EAGAIN; }}, {64, 1, false, true});
  EXPECT_FALSE(outcome.right);
  EXPECT_EQ(outcome.write_error, EAGAIN);
  EXPECT_NE(outcome.message.find("fs.aio-max-nr"), std::string::npos) << outcome.message;
}

TEST(StorageFaults, ShortTransfersAreResumed) {
  for (const bool aio : {false, true}) {
    for (const int64_t part : {0, 1, 511, 4095}) {
      const SwapFolder folder;
      const File file = open_unnamed(folder.path());
      // The first answer at every place is short: a page of a larger block, else not even that.
      std::set<std::pair<IoKind, int64_t>> places;
      const auto storage = make_faulty_storage(
          options_of(kShapes[1], 4 * kBlock),
          [&] {
            return Faults{.fate = [&](const BlockIo& io) -> Fate {
              if (!places.emplace(io.kind, io.offset).second) return {};
              if (io.bytes > kBlock) return {Kind::shorten, kBlock};
              return {Kind::answer, file.is_direct() ? part : 0};
            }};
          },
          aio);
      expect_round_trip(*storage, file);
      EXPECT_EQ(places.size(), 2u * 64);
    }
  }
}

TEST(StorageFaults, EverythingOneSectorShort_EndsInAnError) {
  const Outcome outcome = run_with({.fate = [](const BlockIo&) -> Fate {
    return {Kind::answer, 512};  // never a page
  }});
  EXPECT_FALSE(outcome.right);
  EXPECT_EQ(outcome.write_error, ENOSPC);
  EXPECT_EQ(outcome.read_error, 0);
}

TEST(StorageFaults, ErrorsOfTheFirstMiddleAndLastBlockAreNamed) {
  for (const int64_t block : {0, 31, 63}) {
    for (const int error : {EIO, ENOSPC, EDQUOT, EINVAL}) {
      for (const Shape& shape : kShapes) {
        const Outcome outcome =
            run_with({.fate = [&](const BlockIo& io) -> Fate {
                       if (io.kind == IoKind::write && io.offset == block * kBlock) {
                         return {Kind::answer, -error};
                       }
                       return {};
                     }},
                     shape);
        EXPECT_EQ(outcome.write_error, error);
        EXPECT_EQ(outcome.offset, block * kBlock);
        const bool full = error == ENOSPC || error == EDQUOT;
        EXPECT_EQ(outcome.message.find("MiB free of") != std::string::npos, full)
            << outcome.message;
      }
    }
  }
}

TEST(StorageFaults, AReadIsTriedTwiceAndAWriteOnce) {
  for (const int failures : {1, 2}) {
    int left = failures;
    int reads = 0;
    const Outcome outcome = run_with({.fate = [&](const BlockIo& io) -> Fate {
      if (io.kind != IoKind::read || io.offset != 5 * kBlock) return {};
      ++reads;
      return left-- > 0 ? Fate{Kind::answer, -EIO} : Fate{};
    }});
    EXPECT_EQ(reads, 2);
    EXPECT_EQ(outcome.read_error, failures == 1 ? -1 : EIO);
    EXPECT_EQ(outcome.right, failures == 1);
  }
  int writes = 0;
  const Outcome outcome = run_with({.fate = [&](const BlockIo& io) -> Fate {
    if (io.kind != IoKind::write || io.offset != 5 * kBlock) return {};
    ++writes;
    return {Kind::answer, -EIO};
  }});
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(outcome.write_error, EIO);
}

TEST(StorageFaults, AHungDiskIsNamedAfterTheDeadline) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  reserve(file, kBytes);
  std::atomic<bool> released = false;
  StorageOptions options = options_of(kShapes[1]);
  options.deadline = std::chrono::milliseconds(50);
  const AlignedBytes bytes(kBytes);
  const auto storage = make_hung_storage(options, released);
  IoHandle handle = storage->write(file, 0, bytes.span());
  const IoError error = io_error_of([&] { handle.wait(); });
  EXPECT_EQ(error.error_number(), ETIMEDOUT);
  EXPECT_EQ(error.path(), file.path());
  EXPECT_FALSE(handle.query());  // the memory is still in use
  released = true;
  EXPECT_EQ(io_error_of([&] {
              while (!handle.query()) {
              }
              handle.wait();
            }).error_number(),
            EIO);
}

// The process may have been stopped: completions that came meanwhile are seen before the deadline
// is checked.
TEST(StorageFaults, AnAnswerThatCameWhileNobodyWaited_IsNotTooLate) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  reserve(file, kBytes);
  std::atomic<bool> released = false;
  StorageOptions options = options_of(kShapes[1]);
  options.deadline = std::chrono::seconds(1);  // in which the workers may be late
  const AlignedBytes bytes(kBytes);
  const auto storage = make_hung_storage(options, released);
  IoHandle handle = storage->write(file, 0, bytes.span());
  std::this_thread::sleep_for(options.deadline + std::chrono::milliseconds(200));
  released = true;  // the workers see it after the wait has begun
  EXPECT_EQ(io_error_of([&] { handle.wait(); }).error_number(), EIO);
}

// A disk that never answers: handle, file, memory and storage all go, in the order in which an
// exception unwinds them, and what is asked afterwards is refused. Nothing of this waits for ever.
TEST(StorageFaults, ADiskThatNeverAnswersIsGivenUp) {
  for (const bool aio : {true, false}) {
    const SwapFolder folder;
    const auto released = std::make_shared<std::atomic<bool>>(false);
    const auto begin = std::chrono::steady_clock::now();
    {
      StorageOptions options = options_of(kShapes[1]);
      options.deadline = std::chrono::milliseconds(100);
      const AlignedBytes bytes(kBytes);
      const auto storage = make_faulty_storage(
          options,
          [&] {
            return Faults{.fate = [](const BlockIo&) { return Fate{Kind::hang}; },
                          .is_released = [released] { return released->load(); }};
          },
          aio);
      {
        const File file = open_unnamed(folder.path());
        reserve(file, kBytes);
        IoHandle handle = storage->write(file, 0, bytes.span());
        EXPECT_EQ(io_error_of([&] { handle.wait(); }).error_number(), ETIMEDOUT);
        IoHandle forgotten = storage->read(file, 0, bytes.span());
      }
      const File other = open_unnamed(folder.path());
      reserve(other, kBytes);
      IoHandle later = storage->write(other, 0, bytes.span());
      EXPECT_EQ(io_error_of([&] { later.wait(); }).error_number(), ETIMEDOUT);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    *released = true;  // the thread that was left alone ends
  }
}

// An error of the system, such as a lack of room, is reported.
TEST(StorageFaults, AHandleThatGoesWaitsForItsTransfer) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  reserve(file, kBytes);
  std::atomic<bool> released = false;
  std::atomic<bool> gone = false;
  const AlignedBytes bytes(kBytes);
  const auto storage = make_hung_storage(options_of(kShapes[1]), released);
  std::thread user([&] {
    { const IoHandle handle = storage->write(file, 0, bytes.span()); }
    gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(gone);
  released = true;
  user.join();
  EXPECT_TRUE(gone);
}

TEST(StorageFaults, ABrokenQueueEndsEverything) {
  const Outcome outcome = run_with({.interrupt = [] { return -EFAULT; }}, {4, 1, false, true});
  EXPECT_EQ(outcome.write_error, EFAULT);
  EXPECT_EQ(outcome.read_error, EFAULT);
}

// --- real systems that are full

class TmpfsMount {
 public:
  explicit TmpfsMount(const std::string& path, const char* options) : path_(path) {
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, options) == 0;
  }
  ~TmpfsMount() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  TmpfsMount(const TmpfsMount&) = delete;
  TmpfsMount& operator=(const TmpfsMount&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_;
};

TEST(StorageFaults, AFullFileSystemIsNamedWithItsFreeSpace) {
  const SwapFolder folder;
  const TmpfsMount mount(folder.path(), "size=1m");
  if (!mount.mounted()) GTEST_SKIP() << "may not mount";
  for (const bool aio : {false, true}) {
    if (aio && !has_aio()) continue;
    const auto storage = aio ? make_aio_storage({.block_size = 1 << 16})
                             : make_posix_storage({.block_size = 1 << 16});
    const File file = open_unnamed(folder.path());
    const AlignedBytes bytes(2 << 20);
    const IoError error = io_error_of([&] { storage->write(file, 0, bytes.span()).wait(); });
    EXPECT_EQ(error.error_number(), ENOSPC);
    EXPECT_NE(std::string(error.what()).find("MiB free of 1.0 MiB"), std::string::npos)
        << error.what();
  }
}

TEST(StorageFaults, AFileSizeLimitIsAnError) {
  const SwapFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto storage = make_storage({.block_size = 1 << 16});
  const File file = open_unnamed(folder.path());
  const AlignedBytes bytes(2 << 20);
  const IoError error = io_error_of([&] { storage->write(file, 0, bytes.span()).wait(); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  EXPECT_EQ(error.error_number(), EFBIG);
  // Any block beyond the limit: workers take them in turn.
  EXPECT_GE(error.offset(), 1 << 20);
  EXPECT_EQ(error.offset() % (1 << 16), 0);
}

}  // namespace storage_faults_test
}  // namespace zinc::offload
