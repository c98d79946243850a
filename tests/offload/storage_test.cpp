#include "offload/storage.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <thread>

#include "tests/offload/faulty_queue.h"
#include "tests/offload/storage_shapes.h"
#include "tests/offload/swap_folder.h"

namespace zinc::offload {
namespace storage_test {

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
TEST(Storage, WithoutRoomForRequests_SaysWhyThreadsAreUsed) {
  if (!has_aio()) GTEST_SKIP() << "no libaio";
  EXPECT_EQ(make_storage({.queue_depth = 4})->way(), "libaio");
  EXPECT_EQ(make_posix_storage({})->way(), "thread pool");
  // More than fs.aio-max-nr, or than the system's own bound.
  const auto storage = make_storage({.queue_depth = 1 << 30, .threads = 1});
  EXPECT_EQ(storage->way().find("thread pool, because "), 0u) << storage->way();
  EXPECT_NE(storage->way().find("fs.aio-max-nr"), std::string::npos) << storage->way();
}

}  // namespace storage_test
}  // namespace zinc::offload
