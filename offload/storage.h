// offload/storage.h: asynchronous reads and writes of files.
//
// A transfer is cut into blocks of block_size. `threads` workers share the blocks; each has a queue
// of queue_depth blocks in flight. The length and the error of every block are checked:
//
//   the system took or transferred only a part  the rest is resumed
//   it refused for now (EAGAIN, EINTR)          tried again, a bounded number of times
//   a read failed with EIO                      read once more
//   a write failed                              an error: the system may have dropped its pages
//
// Note [Memory of transfers]
// The memory of a transfer belongs to the caller and stays untouched until the transfer is over.
// IoHandle's destructor waits for that. So memory that outlives the handle is safe, with one
// exception.
//
// If the disk does not answer within the deadline, the destructor gives up, and so does the
// storage. Nothing is given to the disk any more. Every later transfer fails with ETIMEDOUT. The
// disk may still write to the memory of transfers that were under way, those on which a system call
// hangs included. The process should end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "offload/block_queue.h"
#include "offload/file.h"

namespace zinc::offload {

struct StorageOptions {
  int64_t block_size = 1 << 20;  // bytes, a multiple of 4096
  int queue_depth = 8;           // blocks in flight per thread
  int threads = 1;
  bool single_submit = false;  // one block per call of the system
  bool overlap_events = true;  // false: submit a queue full, wait for all of it, repeat
  // A wait throws if no block of the storage came back for this long.
  std::chrono::milliseconds deadline = std::chrono::minutes(2);
};

// Whether the threads that wait for the disk also compute the CRC-32C of a transfer.
enum class Checksum : uint8_t { none, crc32c };

class IoHandle {
 public:
  class Operation;

  IoHandle() = default;  // is over
  explicit IoHandle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  IoHandle(IoHandle&&) noexcept = default;
  IoHandle& operator=(IoHandle&& other) noexcept;  // waits for what it held
  ~IoHandle();  // waits, at most for the deadline; drops an error

  // False for a handle that was default-constructed or moved from.
  explicit operator bool() const { return operation_ != nullptr; }
  bool query() const;  // true once the transfer is over, even with an error
  // When the transfer was over, as TraceRecorder::now_ns(); 0 until then.
  int64_t over_ns() const;
  // Waits until the transfer is over. Throws IoError with file, offset of the block, errno (0 if
  // the file ended), and the free space if that is the cause. After the deadline throws ETIMEDOUT
  // with the transfer still under way.
  void wait();
  // After wait(): the CRC of all bytes, if the transfer was started with Checksum::crc32c; else 0.
  uint32_t crc32c() const;

 private:
  std::shared_ptr<Operation> operation_;
};

// Thread-safe. Handles may outlive the storage: the destructor waits for all transfers. If the
// storage was given up, a separate thread finishes them.
class Storage {
 public:
  // Makes one queue per worker; called by the constructor.
  using QueueFactory = std::function<std::unique_ptr<BlockQueue>(const StorageOptions&)>;

  Storage(const StorageOptions& options, const QueueFactory& make_queue);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // `file` must live until the transfer is over. Throws InvalidArgument if the alignment of a
  // direct file is not kept. Transfers have no order, except that a transfer comes after those that
  // were waited for before it was started.
  IoHandle read(const File& file, int64_t offset, std::span<std::byte> data,
                Checksum checksum = Checksum::none);
  IoHandle write(const File& file, int64_t offset, std::span<const std::byte> data,
                 Checksum checksum = Checksum::none);

  // How blocks reach the system: "libaio", "thread pool". If another way was wanted, with the
  // reason: "thread pool, because libaio ...".
  const std::string& way() const { return way_; }

 private:
  friend std::unique_ptr<Storage> make_aio_storage(const StorageOptions& options);
  friend std::unique_ptr<Storage> make_storage(const StorageOptions& options);
  class Worker;
  struct Shared;
  IoHandle start(IoKind kind, const File& file, int64_t offset, std::byte* data, int64_t bytes,
                 Checksum checksum);

  std::unique_ptr<Shared> shared_;
  std::string way_ = "thread pool";
};

// libaio. Throws InvalidArgument in a build without it.
std::unique_ptr<Storage> make_aio_storage(const StorageOptions& options);
// A pool of threads * queue_depth threads, at most kMostPosixThreads.
inline constexpr int kMostPosixThreads = 16;
std::unique_ptr<Storage> make_posix_storage(const StorageOptions& options);
// libaio if the build has it and the system has room for it, otherwise the thread pool.
std::unique_ptr<Storage> make_storage(const StorageOptions& options);

}  // namespace zinc::offload
