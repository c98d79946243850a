// offload/storage_worker.h: one thread of a storage. It cuts its parts into blocks, keeps its queue
// full, and judges completions.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "offload/operation.h"

namespace zinc::offload {

class Storage::Worker {
 public:
  // A run of bytes of one transfer.
  struct Transfer {
    std::shared_ptr<IoHandle::Operation> operation;
    std::byte* data = nullptr;
    int64_t bytes = 0;
    int64_t offset = 0;
  };

  Worker(const StorageOptions& options, std::unique_ptr<BlockQueue> queue,
         std::shared_ptr<Progress> progress);
  // Ends a worker after all its parts are finished. If the storage was given up and the worker's
  // thread hangs in the system, the worker is left to that thread.
  static void end(std::unique_ptr<Worker> worker);
  ~Worker();

  void give(Transfer part);

 private:
  // A block under way. `io`: the rest of the block.
  struct Slot {
    BlockIo io;
    std::shared_ptr<IoHandle::Operation> operation;
    // The whole block.
    std::byte* data = nullptr;
    int64_t bytes = 0;
    int64_t offset = 0;
    int refusals = 0;  // in a row, without a byte transferred
    bool reread = false;
  };

  void run();
  void leave();       // the last call on the thread
  bool take_parts();  // waits for work where there is none; false: the worker ends
  void cut_blocks();
  void drop_failed();  // drops the blocks of a failed transfer that are left
  void submit_ready();
  void reap();
  void judge(const BlockCompletion& completion);
  bool add_checksum(const Slot& slot);
  void resume(Slot& slot, int64_t transferred);
  void retry(Slot& slot, int error);
  void release(Slot& slot);
  void fail(Slot& slot, int error, const std::string& hint);
  void give_up(int error);

  static Slot& slot_of(BlockIo* io) { return *reinterpret_cast<Slot*>(io); }

  const StorageOptions options_;
  std::unique_ptr<BlockQueue> queue_;
  const std::shared_ptr<Progress> progress_;

  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<Transfer> inbox_;
  bool stop_ = false;
  std::condition_variable has_ended_;
  bool ended_ = false;
  bool left_alone_ = false;  // the thread deletes the worker

  // Used by the thread alone.
  std::deque<Transfer> parts_;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;
  std::deque<BlockIo*> ready_;  // blocks to be submitted
  std::vector<BlockIo*> batch_;
  std::vector<BlockCompletion> completions_;
  int64_t in_flight_ = 0;
  int submit_refusals_ = 0;  // in a row, with nothing in flight
  int broken_ = 0;           // errno that ended the queue

  std::thread thread_;
};

}  // namespace zinc::offload
