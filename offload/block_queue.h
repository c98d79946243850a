// offload/block_queue.h: block requests to the operating system, many in flight at once.
//
// Storage cuts, checks and resumes transfers. A queue makes the system calls, reports what the
// system says, and judges nothing. So a test's decorator can play every answer of a system. One
// thread uses a queue.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace zinc::offload {

enum class IoKind : uint8_t { read, write };

// A request. It must not move, nor its memory, from submit() to its completion.
struct BlockIo {
  IoKind kind = IoKind::read;
  int fd = -1;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;  // bytes, in the file
};

struct BlockCompletion {
  BlockIo* io = nullptr;
  int64_t result = 0;  // bytes transferred, perhaps fewer than asked; or -errno
};

class BlockQueue {
 public:
  virtual ~BlockQueue() = default;  // waits for requests in flight

  // Starts the first requests of `ios`. Returns how many it took, or -errno if it took none.
  virtual int64_t submit(std::span<BlockIo* const> ios) = 0;
  // Waits for `at_least` completions or until the timeout. Returns the number of completions in
  // `out`, or -errno.
  virtual int64_t reap(int64_t at_least, std::span<BlockCompletion> out,
                       std::chrono::milliseconds timeout) = 0;
};

// Requests run one after the other in reap(): any file system, no asynchronous calls.
std::unique_ptr<BlockQueue> make_posix_queue();

// False in a build without libaio.
bool has_aio();
// libaio with room for `depth` requests in flight. Throws IoError if the system has no room for
// them (fs.aio-max-nr), InvalidArgument without libaio.
std::unique_ptr<BlockQueue> make_aio_queue(int depth);

}  // namespace zinc::offload
