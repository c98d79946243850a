// offload/swap_space.h: bytes that a run keeps on NVMe and gets back unchanged.
//
// A space is one unnamed file, reserved at start. So two runs on one directory never meet, no write
// runs out of space, and nothing is left when the process ends, however it ends.
//
// Note [Swap integrity]
// For every extent the space keeps in memory the number of writes and the CRC-32C of the last
// value. A read compares the CRC before any byte is used. This finds flipped bits, and writes that
// the disk lost, did by half, or put in another place. A read that does not agree is repeated once.
// Then it is an IoError that names file, offset and both sums.
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
  // Null: nothing is recorded. Transfers stand on kReadLane and kWriteLane, waits for them on lane
  // 0.
  TraceRecorder* trace = nullptr;
  // Null: nothing is timed. Must outlive the space.
  SwapClock* clock = nullptr;
};

inline constexpr int kReadLane = 16;
inline constexpr int kWriteLane = 17;

class SwapSpace {
  // Whether a transfer of an extent is under way. A separate object, since a transfer may outlive
  // the space.
  struct Use {
    bool busy = false;
    bool hung = false;  // a wait for the transfer ran into the deadline
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
  // A transfer between one extent and memory. The destructor waits, as that of IoHandle does.
  class Transfer {
   public:
    Transfer() = default;
    bool query() const { return handle_.query(); }
    // True if nothing was started, or wait() has ended the transfer, with or without an error: the
    // memory may be reused. False after a wait() that ran into the deadline, because the disk may
    // still use the memory.
    bool is_over() const { return !handle_; }
    // Waits for the transfer. Throws IoError. Bytes that were read may be used only after wait(). A
    // write that failed, or that was not waited for, leaves its extent without a value.
    void wait();

   private:
    friend class SwapSpace;
    SwapSpace* space_ = nullptr;
    IoKind kind_ = IoKind::read;
    int extent_ = 0;
    int64_t bytes_ = 0;
    std::span<std::byte> data_;  // of a read
    int64_t begin_ns_ = 0;
    std::string name_;
    Hold hold_;
    IoHandle handle_;  // destroyed first: last member
  };

  // Opens and reserves the file. `storage` must outlive the space. Throws IoError.
  SwapSpace(Storage& storage, const SwapOptions& options);

  // `data`: whole multiples of kIoAlignment, aligned to it, at most the extent; untouched until the
  // transfer is over. A read asks for as many bytes as the last write gave. One transfer of an
  // extent at a time; no read before a write was waited for.
  // Anything else is an InternalError, or an IoError (ETIMEDOUT) if the transfer under way has
  // hung. `name` is for the trace. Called from one thread.
  Transfer write(int extent, std::span<const std::byte> data, std::string_view name = {});
  Transfer read(int extent, std::span<std::byte> data, std::string_view name = {});

  // The place of an extent's value in the file. The write of the value must have been waited for.
  struct Stored {
    int64_t offset = 0;
    int64_t bytes = 0;
    uint32_t crc = 0;
  };
  Stored stored(int extent) const;
  // Reads a stored value and compares its CRC, on any thread. The extent must not be written
  // meanwhile. Not timed, counted or traced. `data`: as for read(). Throws IoError.
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
    int64_t held = 0;         // bytes of the last write
    uint64_t generation = 0;  // writes that were waited for
    uint32_t crc = 0;
    std::shared_ptr<Use> use = std::make_shared<Use>();
    bool lost = true;  // nothing was written yet, or the last write failed
  };
  Extent& extent_at(int extent);
  // The extent, checked to be free for a transfer of `bytes` bytes.
  Extent& free_extent(IoKind kind, int extent, size_t bytes);
  // `found`: the CRC of the bytes that were read.
  void check(const Extent& extent, std::span<std::byte> data, uint32_t found);
  Checksum checksum() const { return verify_ ? Checksum::crc32c : Checksum::none; }
  void record(const Transfer& transfer, int64_t wait_begin_ns);

  Storage& storage_;
  const bool verify_;
  TraceRecorder* const trace_;
  SwapClock* const clock_;
  int64_t lane_end_ns_[2] = {0, 0};  // ends of the trace's lanes: reads, writes
  std::vector<Extent> extents_;
  int64_t bytes_ = 0;
  int64_t bytes_read_ = 0;
  int64_t bytes_written_ = 0;
  File file_;
};

}  // namespace zinc::offload
