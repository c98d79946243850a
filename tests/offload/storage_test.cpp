#include "offload/storage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "tests/offload/faulty_queue.h"
#include "tests/offload/swap_folder.h"

namespace zinc::offload {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kBytes = 64 * kBlock;
using Kind = Fate::Kind;

struct Shape {
  int queue_depth;
  int threads;
  bool single_submit;
  bool overlap_events;
};

StorageOptions options_of(const Shape& shape, int64_t block = kBlock) {
  return {.block_size = block,
          .queue_depth = shape.queue_depth,
          .threads = shape.threads,
          .single_submit = shape.single_submit,
          .overlap_events = shape.overlap_events};
}

constexpr std::array kShapes{Shape{1, 1, false, true}, Shape{8, 1, false, true},
                             Shape{8, 1, true, true},  Shape{8, 1, false, false},
                             Shape{4, 3, true, false}, Shape{64, 2, false, true}};

void expect_round_trip(Storage& storage, const File& file, int64_t bytes = kBytes) {
  const AlignedBytes written(bytes), found(bytes, 0);
  written.fill_from(7);
  storage.write(file, 0, written.span()).wait();
  storage.read(file, 0, found.span()).wait();
  EXPECT_TRUE(written == found);
}

TEST(Storage, EveryShapeGivesBackWhatWasWritten) {
  const SwapFolder folder;
  for (const Shape& shape : kShapes) {
    for (const bool aio : {false, true}) {
      if (aio && !has_aio()) continue;
      for (const int64_t block : {kBlock, 3 * kBlock, int64_t{1} << 20}) {
        const File file = open_unnamed(folder.path());
        const auto storage = aio ? make_aio_storage(options_of(shape, block))
                                 : make_posix_storage(options_of(shape, block));
        expect_round_trip(*storage, file, kBytes + kBlock);
      }
    }
  }
}

TEST(Storage, TransfersOfOneFileOverlapInTime) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  const auto storage = make_storage(options_of(kShapes[1]));
  std::vector<AlignedBytes> written, found;
  std::vector<IoHandle> handles;
  for (int i = 0; i < 20; ++i) {
    written.emplace_back(5 * kBlock).fill_from(static_cast<uint64_t>(i));
    found.emplace_back(5 * kBlock);
  }
  const auto place = [](size_t i) { return static_cast<int64_t>(i) * 5 * kBlock; };
  for (size_t i = 0; i < 20; ++i) {
    handles.push_back(storage->write(file, place(i), written[i].span()));
  }
  handles.clear();  // waits
  for (size_t i = 20; i-- > 0;) {
    handles.push_back(storage->read(file, place(i), found[i].span()));
  }
  for (IoHandle& handle : handles) handle.wait();
  for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(written[i] == found[i]) << i;
}

int64_t io_counter(const std::string& name) {
  std::ifstream in("/proc/self/io");
  std::string key;
  for (int64_t value = 0; in >> key >> value;) {
    if (key == name + ":") return value;
  }
  return -1;
}

TEST(Storage, DirectBytesReachTheDisk) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  if (!file.is_direct()) GTEST_SKIP() << "no O_DIRECT in " << folder.path();
  const auto storage = make_storage({.block_size = 1 << 16});
  const int64_t bytes = 4 << 20;
  reserve(file, bytes);
  const int64_t written = io_counter("write_bytes");
  const int64_t read = io_counter("read_bytes");
  expect_round_trip(*storage, file, bytes);
  EXPECT_GE(io_counter("write_bytes") - written, bytes);
  EXPECT_GE(io_counter("read_bytes") - read, bytes);
}

TEST(Storage, UnalignedTransfersAreRefusedByName) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  if (!file.is_direct()) GTEST_SKIP() << "no O_DIRECT in " << folder.path();
  const auto storage = make_storage({});
  const AlignedBytes bytes(2 * kBlock);
  EXPECT_THROW(storage->write(file, 0, bytes.span().subspan(8, kBlock)), InvalidArgument);
  EXPECT_THROW(storage->write(file, 100, bytes.span()), InvalidArgument);
  EXPECT_THROW(storage->read(file, 0, bytes.span().first(1000)), InvalidArgument);
}

TEST(Storage, WithoutODirect_TakesAnySize) {
  const SwapFolder folder;
  const std::string path = folder.path() + "/plain";
  const File direct = open_named(path);
  const File file(::open(path.c_str(), O_RDWR | O_CLOEXEC), path, false);
  const auto storage = make_storage({.block_size = kBlock});
  const AlignedBytes bytes(3 * kBlock), found(3 * kBlock);
  bytes.fill_from(3);
  storage->write(file, 77, bytes.span().subspan(1, 9001)).wait();
  storage->read(file, 77, found.span().first(9001)).wait();
  EXPECT_TRUE(std::ranges::equal(bytes.span().subspan(1, 9001), found.span().first(9001)));
}

TEST(Storage, AReadBeyondTheEndNamesTheFileAndItsEnd) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  reserve(file, 10 * kBlock);
  for (const bool aio : {false, true}) {
    if (aio && !has_aio()) continue;
    const auto storage = aio ? make_aio_storage({}) : make_posix_storage({});
    const AlignedBytes bytes(20 * kBlock);
    const IoError error = io_error_of([&] { storage->read(file, 0, bytes.span()).wait(); });
    EXPECT_EQ(error.offset(), 10 * kBlock);
    EXPECT_EQ(error.error_number(), 0);
    EXPECT_EQ(error.path(), file.path());
    EXPECT_NE(std::string(error.what()).find("ends"), std::string::npos) << error.what();
  }
}

TEST(Storage, AFileThatIsNotOpenForWritingIsNamed) {
  const SwapFolder folder;
  const std::string path = folder.path() + "/kept";
  { const File made = open_named(path); }
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC), path, false);
  for (const bool aio : {false, true}) {
    if (aio && !has_aio()) continue;
    const auto storage =
        aio ? make_aio_storage({.block_size = kBlock}) : make_posix_storage({.block_size = kBlock});
    const AlignedBytes bytes(kBytes);
    const IoError error = io_error_of([&] { storage->write(file, 0, bytes.span()).wait(); });
    EXPECT_EQ(error.error_number(), EBADF);
    EXPECT_EQ(error.path(), path);
  }
}

// Sizes of submits and of blocks, for a write of 64 pages by way of a queue that ends one request
// after the other.
struct Requests {
  int queues = 0;
  std::vector<int64_t> submits;
  std::set<int64_t> blocks;
};

Requests requests_of(const StorageOptions& options) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  Requests requests;
  const auto storage = make_faulty_storage(
      options,
      [&] {
        ++requests.queues;
        return Faults{.fate = [&](const BlockIo& io) -> Fate {
                        requests.blocks.insert(io.bytes);
                        return {};
                      },
                      .admit =
                          [&](int64_t count) {
                            requests.submits.push_back(count);
                            return count;
                          }};
      },
      false);
  const AlignedBytes bytes(kBytes);
  storage->write(file, 0, bytes.span()).wait();
  return requests;
}

TEST(Storage, EveryOptionShowsInTheRequests) {
  const auto submits = [](int64_t first, size_t rest, int64_t size) {
    std::vector<int64_t> sizes{first};
    sizes.insert(sizes.end(), rest, size);
    return sizes;
  };
  const StorageOptions base = options_of({8, 1, false, true});
  EXPECT_EQ(requests_of(base).submits, submits(8, 56, 1));  // refilled as each one ends
  EXPECT_EQ(requests_of(base).blocks, std::set<int64_t>{kBlock});
  EXPECT_EQ(requests_of(options_of({16, 1, false, true})).submits, submits(16, 48, 1));
  EXPECT_EQ(requests_of(options_of({8, 1, true, true})).submits, submits(1, 63, 1));
  EXPECT_EQ(requests_of(options_of({8, 1, false, false})).submits, submits(8, 7, 8));
  EXPECT_EQ(requests_of(options_of({8, 1, false, true}, 2 * kBlock)).blocks,
            std::set<int64_t>{2 * kBlock});
  EXPECT_EQ(requests_of(options_of({64, 1, false, true})).queues, 1);
  StorageOptions threads = options_of({1, 4, false, true}, 1 << 20);
  EXPECT_EQ(requests_of(threads).queues, 4);
}

// --- what the system may answer

// Runs a write and a read of kBytes; every worker meets the same faults.
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
  const auto storage = make_faulty_storage(
      options,
      [&] {
        return Faults{.fate = [](const BlockIo&) { return Fate{Kind::hang}; },
                      .is_released = [&] { return released.load(); }};
      },
      true);
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

// What the system has no room for is said, not hidden.
TEST(Storage, WithoutRoomForRequests_SaysWhyThreadsAreUsed) {
  if (!has_aio()) GTEST_SKIP() << "no libaio";
  EXPECT_EQ(make_storage({.queue_depth = 4})->way(), "libaio");
  EXPECT_EQ(make_posix_storage({})->way(), "thread pool");
  // More than fs.aio-max-nr, or than the system's own bound.
  const auto storage = make_storage({.queue_depth = 1 << 30, .threads = 1});
  EXPECT_EQ(storage->way().find("thread pool, because "), 0u) << storage->way();
  EXPECT_NE(storage->way().find("fs.aio-max-nr"), std::string::npos) << storage->way();
}

TEST(StorageFaults, AHandleThatGoesWaitsForItsTransfer) {
  const SwapFolder folder;
  const File file = open_unnamed(folder.path());
  reserve(file, kBytes);
  std::atomic<bool> released = false;
  std::atomic<bool> gone = false;
  const AlignedBytes bytes(kBytes);
  const auto storage = make_faulty_storage(
      options_of(kShapes[1]),
      [&] {
        return Faults{.fate = [](const BlockIo&) { return Fate{Kind::hang}; },
                      .is_released = [&] { return released.load(); }};
      },
      true);
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

}  // namespace
}  // namespace zinc::offload
