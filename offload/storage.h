// offload/storage.h: asynchronous reads and writes of files.
//
// A transfer is cut into blocks of block_size; `threads` workers share them, each with a queue of
// queue_depth blocks in flight. Length and error of every block are looked at: what the system took
// or transferred only in part is resumed, what it refuses for now (EAGAIN, EINTR) is tried again a
// bounded number of times, a read that failed with EIO once more. A write that failed is not
// repeated: the system may have dropped its pages.
//
// Note [Memory of transfers]
// The memory of a transfer belongs to the caller and stays untouched until the transfer is over.
// IoHandle's destructor waits for that, so memory that outlives the handle is safe on every path
// but one: where the disk does not answer within the deadline, the destructor gives up, and the
// storage with it. Nothing is given to the disk any more, every later transfer fails with
// ETIMEDOUT, and the disk may still write to the memory of what was under way, which includes what
// a call of the system hangs on: the process should end.
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
  // A wait throws when no block of the storage came back for this long.
  std::chrono::milliseconds deadline = std::chrono::minutes(2);
};

// Whether a transfer's CRC-32C is made on its way, by the threads that wait for the disk.
enum class Checksum : uint8_t { none, crc32c };

class IoHandle {
 public:
  class Operation;

  IoHandle() = default;  // is over
  explicit IoHandle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  IoHandle(IoHandle&&) noexcept = default;
  IoHandle& operator=(IoHandle&& other) noexcept;  // waits for what it held
  ~IoHandle();  // waits, at most for the deadline; what failed is lost

  // False for one that was default-constructed or moved from.
  explicit operator bool() const { return operation_ != nullptr; }
  bool query() const;  // true once the transfer is over, well or not
  // When it was over, as TraceRecorder::now_ns(); 0 until then.
  int64_t over_ns() const;
  // Waits until the transfer is over. Throws IoError: file, offset of the block, errno (0 where the
  // file ended), and free space where that is the cause; ETIMEDOUT after the deadline, with the
  // transfer still under way.
  void wait();
  // After wait(): of all bytes, where the transfer was started with Checksum::crc32c; else 0.
  uint32_t crc32c() const;

 private:
  std::shared_ptr<Operation> operation_;
};

// Thread-safe. Must outlive no handle: the destructor lets everything finish that was started, or
// leaves it to a thread of its own where the storage was given up.
class Storage {
 public:
  // Makes one queue per worker; called by the constructor.
  using QueueFactory = std::function<std::unique_ptr<BlockQueue>(const StorageOptions&)>;

  Storage(const StorageOptions& options, const QueueFactory& make_queue);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // `file` must live until the transfer is over. Throws InvalidArgument where a direct file's
  // alignment is not kept. Order between transfers: only that a transfer started after another one
  // was waited for comes after it.
  IoHandle read(const File& file, int64_t offset, std::span<std::byte> data,
                Checksum checksum = Checksum::none);
  IoHandle write(const File& file, int64_t offset, std::span<const std::byte> data,
                 Checksum checksum = Checksum::none);

  // How blocks reach the system: "libaio", "thread pool". Where that is not what was wanted, why:
  // "thread pool, because libaio ...".
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
// libaio where the build has it and the system has room for it, else the thread pool.
std::unique_ptr<Storage> make_storage(const StorageOptions& options);

}  // namespace zinc::offload
