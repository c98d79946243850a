// offload/block_queue.h: block requests to the operating system, many in flight at once.
//
// The seam between Storage, which cuts, checks and resumes transfers, and the system's calls. A
// queue reports what the system says and judges nothing; so every answer that a system may give can
// be played by a test's decorator. One thread uses a queue.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace zinc::offload {

enum class IoKind : uint8_t { read, write };

// Must stay where it is, with its memory, from submit() to its completion.
struct BlockIo {
  IoKind kind = IoKind::read;
  int fd = -1;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;  // bytes, in the file
};

struct BlockCompletion {
  BlockIo* io = nullptr;
  int64_t result = 0;  // bytes that were transferred, also fewer than asked; or -errno
};

class BlockQueue {
 public:
  virtual ~BlockQueue() = default;  // waits for what is in flight

  // Starts the first requests of `ios`: how many it took, or -errno when it took none.
  virtual int64_t submit(std::span<BlockIo* const> ios) = 0;
  // Waits until `at_least` completions are there or the time is over: how many are in `out`, or
  // -errno.
  virtual int64_t reap(int64_t at_least, std::span<BlockCompletion> out,
                       std::chrono::milliseconds timeout) = 0;
};

// Requests run one after the other in reap(): any file system, no asynchronous calls.
std::unique_ptr<BlockQueue> make_posix_queue();

// False in a build without libaio.
bool has_aio();
// libaio with room for `depth` requests in flight. Throws IoError where the system has no room for
// it (fs.aio-max-nr), InvalidArgument without libaio.
std::unique_ptr<BlockQueue> make_aio_queue(int depth);

}  // namespace zinc::offload
