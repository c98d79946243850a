#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "offload/block_queue.h"

namespace zinc::offload {
namespace {

class PosixQueue final : public BlockQueue {
 public:
  int64_t submit(std::span<BlockIo* const> ios) override {
    waiting_.insert(waiting_.end(), ios.begin(), ios.end());
    return static_cast<int64_t>(ios.size());
  }

  int64_t reap(int64_t at_least, std::span<BlockCompletion> out,
               std::chrono::milliseconds) override {
    const auto count =
        std::min({std::max(static_cast<size_t>(at_least), size_t{1}), waiting_.size(), out.size()});
    for (size_t i = 0; i < count; ++i) {
      out[i] = {.io = waiting_.front(), .result = run(*waiting_.front())};
      waiting_.pop_front();
    }
    return static_cast<int64_t>(count);
  }

 private:
  static int64_t run(const BlockIo& io) {
    const auto bytes = static_cast<size_t>(io.bytes);
    const ssize_t result = io.kind == IoKind::read ? ::pread(io.fd, io.data, bytes, io.offset)
                                                   : ::pwrite(io.fd, io.data, bytes, io.offset);
    return result >= 0 ? result : -errno;
  }

  std::deque<BlockIo*> waiting_;
};

}  // namespace

std::unique_ptr<BlockQueue> make_posix_queue() { return std::make_unique<PosixQueue>(); }

}  // namespace zinc::offload
