// offload/swap_space.h: bytes that a run keeps on NVMe, and gets back as it left them.
//
// One unnamed file per space, reserved at start: two runs on one directory never meet, no write
// runs out of space, and nothing is left when the process ends, however it ends.
//
// Note [Swap integrity]
// For every extent the space keeps in memory how often it was written and the CRC-32C of what was
// written last. A read compares before any byte is used, so that flipped bits are found as well as
// a write that the disk lost, left half done or put in another place. A read that does not agree is
// repeated once; then it is an IoError that names file, offset and both sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/trace.h"
#include "offload/storage.h"
#include "offload/swap_clock.h"

namespace zinc::offload {

struct SwapOptions {
  std::string directory;
  std::vector<int64_t> extent_bytes;  // > 0, by extent
  bool verify = true;                 // false: no CRC is made or compared
  Unnamed naming = Unnamed::automatic;
  // Null: nothing is recorded. Transfers stand on these lanes, waits for them on lane 0.
  TraceRecorder* trace = nullptr;
  // Null: nothing is timed. Must outlive the space.
  SwapClock* clock = nullptr;
};

inline constexpr int kReadLane = 16;
inline constexpr int kWriteLane = 17;

class SwapSpace {
  // Whether a transfer of an extent is under way. Its own, as a transfer may outlive the space.
  struct Use {
    bool busy = false;
    bool hung = false;  // it was waited for in vain
  };
  // The transfer's hold on its extent.
  class Hold {
   public:
    Hold() = default;
    explicit Hold(std::shared_ptr<Use> use) : use_(std::move(use)) { use_->busy = true; }
    Hold(Hold&&) = default;
    Hold& operator=(Hold&& other) noexcept {
      Hold taken(std::move(other));
      use_.swap(taken.use_);
      return *this;
    }
    ~Hold() {
      if (use_ != nullptr) *use_ = {};
    }
    void mark_hung() const { use_->hung = true; }

   private:
    std::shared_ptr<Use> use_;
  };

 public:
  // What is under way between one extent and memory. Destruction waits, as an IoHandle's does.
  class Transfer {
   public:
    Transfer() = default;
    bool query() const { return handle_.query(); }
    // Nothing was started, or wait() has come to an end, well or not: the memory may be reused.
    bool is_over() const { return !handle_; }
    // Throws IoError; a read's bytes may be used after it only. A write that failed, or that nobody
    // waited for, leaves its extent without a value.
    void wait();

   private:
    friend class SwapSpace;
    SwapSpace* space_ = nullptr;
    IoKind kind_ = IoKind::read;
    int extent_ = 0;
    std::span<std::byte> data_;
    int64_t begin_ns_ = 0;
    std::string name_;
    Hold hold_;
    IoHandle handle_;  // goes first
  };

  // Opens and reserves the file. `storage` must outlive the space. Throws IoError.
  SwapSpace(Storage& storage, const SwapOptions& options);

  // `data`: the whole extent, rounded up to kIoAlignment, at a multiple of that; untouched until
  // the transfer is over. One transfer of an extent at a time, and no read before a write was
  // waited for: anything else is an InternalError; but where the transfer under way has hung, an
  // IoError (ETIMEDOUT). One thread.
  // `name` is for the trace.
  Transfer write(int extent, std::span<const std::byte> data, std::string_view name = {});
  Transfer read(int extent, std::span<std::byte> data, std::string_view name = {});

  // Where an extent's value lies, whose write was waited for.
  struct Stored {
    int64_t offset = 0;
    int64_t bytes = 0;
    uint32_t crc = 0;
  };
  Stored stored(int extent) const;
  // Reads and compares it at once, on any thread; the extent must not be written meanwhile. Not
  // timed, counted or traced. `data`: as read() takes it. Throws IoError.
  void read_beside(const Stored& stored, std::span<std::byte> data) const;

  int num_extents() const { return static_cast<int>(extents_.size()); }
  int64_t bytes_of(int extent) const;  // rounded up
  int64_t bytes() const { return bytes_; }
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_written() const { return bytes_written_; }
  const File& file() const { return file_; }
  bool verifies() const { return verify_; }

 private:
  struct Extent {
    int64_t offset = 0;
    int64_t bytes = 0;
    uint64_t generation = 0;  // writes that were waited for
    uint32_t crc = 0;
    std::shared_ptr<Use> use = std::make_shared<Use>();
    bool lost = true;  // nothing was written yet, or the last write failed
  };
  Extent& extent_at(int extent);
  // The extent, which must be free for a transfer of so many bytes.
  Extent& free_extent(IoKind kind, int extent, size_t bytes);
  // `found`: the CRC of what was read.
  void check(const Extent& extent, std::span<std::byte> data, uint32_t found);
  Checksum checksum() const { return verify_ ? Checksum::crc32c : Checksum::none; }
  void record(const Transfer& transfer, int64_t wait_begin_ns);

  Storage& storage_;
  const bool verify_;
  TraceRecorder* const trace_;
  SwapClock* const clock_;
  int64_t lane_end_ns_[2] = {0, 0};  // of the trace: reads, writes
  std::vector<Extent> extents_;
  int64_t bytes_ = 0;
  int64_t bytes_read_ = 0;
  int64_t bytes_written_ = 0;
  File file_;
};

}  // namespace zinc::offload
