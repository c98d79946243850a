#include <libaio.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <vector>

#include "core/error.h"
#include "offload/block_queue.h"

namespace zinc::offload {
namespace {

class AioQueue final : public BlockQueue {
 public:
  explicit AioQueue(int depth) {
    const int result = io_setup(depth, &context_);
    if (result != 0) {
      throw IoError("io_setup", str("(", depth, " requests)"), -1, -result,
                    "lower aio.queue_depth or aio.intra_op_parallelism, or raise fs.aio-max-nr");
    }
    blocks_.resize(static_cast<size_t>(depth));
    events_.resize(blocks_.size());
    for (iocb& block : blocks_) free_.push_back(&block);
  }
  // The kernel waits for requests in flight.
  ~AioQueue() override { io_destroy(context_); }
  AioQueue(const AioQueue&) = delete;
  AioQueue& operator=(const AioQueue&) = delete;

  int64_t submit(std::span<BlockIo* const> ios) override {
    batch_.clear();
    for (BlockIo* io : ios.first(std::min(ios.size(), free_.size()))) {
      iocb* block = free_[free_.size() - 1 - batch_.size()];
      const auto bytes = static_cast<size_t>(io->bytes);
      if (io->kind == IoKind::read) {
        io_prep_pread(block, io->fd, io->data, bytes, io->offset);
      } else {
        io_prep_pwrite(block, io->fd, io->data, bytes, io->offset);
      }
      block->data = io;
      batch_.push_back(block);
    }
    if (batch_.empty()) return -EAGAIN;
    const int taken = io_submit(context_, static_cast<long>(batch_.size()), batch_.data());
    if (taken > 0) free_.resize(free_.size() - static_cast<size_t>(taken));
    return taken;
  }

  int64_t reap(int64_t at_least, std::span<BlockCompletion> out,
               std::chrono::milliseconds timeout) override {
    timespec time{.tv_sec = timeout.count() / 1000, .tv_nsec = timeout.count() % 1000 * 1000000};
    const auto most = static_cast<int64_t>(std::min(out.size(), events_.size()));
    const int count = io_getevents(context_, std::min(at_least, most), most, events_.data(), &time);
    for (int i = 0; i < count; ++i) {
      const io_event& event = events_[static_cast<size_t>(i)];
      // The kernel's field is unsigned, its values are not.
      out[static_cast<size_t>(i)] = {.io = static_cast<BlockIo*>(event.data),
                                     .result = static_cast<int64_t>(event.res)};
      free_.push_back(event.obj);
    }
    return count;
  }

 private:
  io_context_t context_ = nullptr;
  std::vector<iocb> blocks_;
  std::vector<iocb*> free_;
  std::vector<iocb*> batch_;
  std::vector<io_event> events_;
};

}  // namespace

bool has_aio() { return true; }

std::unique_ptr<BlockQueue> make_aio_queue(int depth) {
  require(depth >= 1, "make_aio_queue: the depth must be positive, not ", depth);
  return std::make_unique<AioQueue>(depth);
}

}  // namespace zinc::offload
