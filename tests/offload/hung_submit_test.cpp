// A system that hangs while it takes a request.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/offload/faulty_queue.h"
#include "tests/offload/swap_folder.h"

namespace zinc::offload {
namespace hung_submit_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int64_t kBlock = 4096;
// How long a call hangs that nobody releases: so long a test that fails takes, and no longer.
constexpr seconds kHang{10};

// A call of the system that hangs until release() or for kHang, and then takes nothing.
class Hang {
 public:
  int64_t stay() {
    entered_ = true;
    const auto end = steady_clock::now() + kHang;
    while (!released_ && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    return -EIO;
  }
  void wait_until_entered() const {
    while (!entered_) std::this_thread::yield();
  }
  void release() { released_ = true; }

 private:
  std::atomic<bool> entered_{false};
  std::atomic<bool> released_{false};
};

// The first worker hangs at its first request, the others work.
std::unique_ptr<Storage> make_hanging_storage(const StorageOptions& options,
                                              const std::shared_ptr<Hang>& hang) {
  int made = 0;
  return make_faulty_storage(
      options,
      [&made, hang] {
        if (made++ > 0) return Faults{};
        return Faults{.admit = [hang](int64_t) { return hang->stay(); }};
      },
      true);
}

// Handle, file, memory and storage go while the call hangs, as an exception unwinds them.
TEST(HungSubmit, IsGivenUpAfterTheDeadline) {
  const SwapFolder folder;
  const auto hang = std::make_shared<Hang>();
  const auto begin = steady_clock::now();
  {
    const AlignedBytes bytes(kBlock);
    const auto storage =
        make_hanging_storage({.block_size = kBlock, .deadline = milliseconds(50)}, hang);
    const File file = open_unnamed(folder.path());
    reserve(file, kBlock);
    IoHandle handle = storage->write(file, 0, bytes.span());
    EXPECT_EQ(io_error_of([&] { handle.wait(); }).error_number(), ETIMEDOUT);
    hang->wait_until_entered();
  }
  EXPECT_LT(steady_clock::now() - begin, kHang);
  hang->release();
  // The thread that was left alone ends, and its queue with it.
  while (hang.use_count() > 1) std::this_thread::sleep_for(milliseconds(1));
}

TEST(HungSubmit, HoldsUpNoOtherWorker) {
  const SwapFolder folder;
  const auto hang = std::make_shared<Hang>();
  const File file = open_unnamed(folder.path());
  reserve(file, 2 * kBlock);
  const AlignedBytes bytes(kBlock);
  const AlignedBytes written(kBlock);
  const AlignedBytes found(kBlock, 0);
  written.fill_from(5);
  const auto storage = make_hanging_storage({.block_size = kBlock, .threads = 2}, hang);
  // Transfers of one block take turns with the workers.
  const auto begin = steady_clock::now();
  IoHandle hung = storage->write(file, 0, bytes.span());
  hang->wait_until_entered();
  storage->write(file, kBlock, written.span()).wait();
  hang->release();
  EXPECT_LT(steady_clock::now() - begin, kHang);
  EXPECT_EQ(io_error_of([&] { hung.wait(); }).error_number(), EIO);
  make_posix_storage({})->read(file, kBlock, found.span()).wait();
  EXPECT_TRUE(written == found);
}

}  // namespace hung_submit_test
}  // namespace zinc::offload
