// A queue in front of another that does to requests what systems and disks may do.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "offload/block_queue.h"
#include "offload/storage.h"

namespace zinc::offload {

struct Fate {
  enum class Kind : uint8_t {
    carry_out,
    answer,     // `value` is the result, nothing is transferred
    shorten,    // only `value` bytes are transferred
    flip_bit,   // a read: bit `value`
    lose,       // a write: reported as done
    misdirect,  // a write: goes to the place `value` bytes away
    hang,       // until the queue's release()
  };
  Kind kind = Kind::carry_out;
  int64_t value = 0;
};

// Functions that are absent do nothing.
struct Faults {
  std::function<Fate(const BlockIo&)> fate;
  std::function<int64_t(int64_t count)> admit;  // how many of `count` are taken, or -errno
  std::function<int64_t()> interrupt;           // -errno of reap(), or 0
  std::function<bool()> is_released;            // for requests that hang
};

class FaultyQueue final : public BlockQueue {
 public:
  FaultyQueue(std::unique_ptr<BlockQueue> inner, Faults faults);

  int64_t submit(std::span<BlockIo* const> ios) override;
  int64_t reap(int64_t at_least, std::span<BlockCompletion> out,
               std::chrono::milliseconds timeout) override;

 private:
  struct Pending {
    BlockIo inner;  // the request that the inner queue gets
    BlockIo* outer = nullptr;
    Fate fate;
  };
  void start(BlockIo* io);
  int64_t collect(int64_t at_least, std::chrono::milliseconds timeout);

  std::unique_ptr<BlockQueue> inner_;
  Faults faults_;
  std::list<Pending> pending_;
  std::vector<BlockCompletion> done_;
  int64_t inside_ = 0;  // requests of the inner queue
};

// Storage over faulty queues; each worker's queue has the faults that `make` gives.
std::unique_ptr<Storage> make_faulty_storage(const StorageOptions& options,
                                             const std::function<Faults()>& make, bool aio);
// A storage where every block hangs until `released`, then ends with EIO.
std::unique_ptr<Storage> make_hung_storage(const StorageOptions& options,
                                           const std::atomic<bool>& released);

}  // namespace zinc::offload
