// core/allocator.h: the only source of memory, library workspaces included.
//
// A caching allocator with a tier and a label on every block. Accounting follows the order in which
// allocate and free are called, never the order in which queued work completes, so the figures of
// two runs of one program are equal, and equal to those of the program's run on a meta device ("the
// plan is the peak"). One allocator serves one rank and is called from the thread that issues work.
//
// Note [Stream order of memory]
// A block belongs to its home stream. free() takes effect at the current end of that stream's
// queue: the bytes may be handed out again at once for work on the same stream; before they are
// handed out for another stream, that stream waits for an event that was recorded at the free.
// Whoever used the block on another stream makes the home stream wait for that work before the
// block is freed. The host is such a user too: the host touches a block only between a wait for the
// home stream and the next work that is issued to it. A home stream may die before its blocks: its
// work is done then.
//
// Note [Placement of blocks]
// Where a block lies is a function of the sequence of calls alone, given relative to segments.
// Sizes are rounded up to kBlockAlignment (kIoAlignment, see below); 0 bytes count as 1.
//   segments  up to kSmallBlockBytes a block lies in a small segment of kSegmentBytes, else in a
//             large one of kLargeSegmentBytes or, for a block above a quarter of that, of the
//             block's size rounded up to kSegmentBytes
//   order     best fit among free ranges of the home stream; best fit among those of another one;
//             the smallest run of neighbouring free ranges of any streams; a new segment. Ties go
//             to the older segment, then to the lower offset
//   free      a range merges with its free neighbours of the same home stream
// Segments stay with the allocator until release_cached() or until the source is exhausted: a
// training step that repeats takes no page fault after the first one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/device.h"
#include "core/stream.h"

namespace zinc {

// Every block's address and reserved size are multiples of this many bytes.
inline constexpr int64_t kBlockAlignment = 256;
// Blocks of the tier pinned_host, and blocks over kSmallBlockBytes of every tier, start at a
// multiple of this many bytes and have the room up to the next multiple to themselves, so that
// O_DIRECT takes them.
inline constexpr int64_t kIoAlignment = 4096;

inline constexpr int64_t kSmallBlockBytes = int64_t{1} << 20;
inline constexpr int64_t kSegmentBytes = int64_t{2} << 20;
inline constexpr int64_t kLargeSegmentBytes = int64_t{32} << 20;

class Allocator;

// Owns one allocation; move-only. Destruction frees it (and never throws).
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    Block taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Block() { reset(); }

  void* data() const { return data_; }      // never null for a live block, also with 0 bytes
  int64_t bytes() const { return bytes_; }  // as requested, not rounded
  Tier tier() const { return tier_; }
  Label label() const { return label_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset() noexcept;
  void swap(Block& other) noexcept;

 private:
  friend class Allocator;
  std::shared_ptr<Allocator> allocator_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t handle_ = 0;
  Tier tier_ = Tier::device;
  Label label_ = Label::workspace;
};

struct MemoryFigures {
  // Bytes in blocks that are handed out, each rounded up to kBlockAlignment (0 bytes as 1).
  int64_t live = 0;
  int64_t peak = 0;  // largest value of `live` since the last reset_peaks()
};

// The bytes that an allocator handed out, by tier and label. The peak of a total is not the sum of
// the labels' peaks.
struct MemoryReport {
  std::array<std::array<MemoryFigures, kNumLabels>, kNumTiers> by_label;
  std::array<MemoryFigures, kNumTiers> total;
  std::array<MemoryFigures, kNumTiers> reserved;  // taken from the system: live plus cached

  const MemoryFigures& at(Tier tier, Label label) const {
    return by_label[static_cast<size_t>(tier)][static_cast<size_t>(label)];
  }
  const MemoryFigures& at(Tier tier) const { return total[static_cast<size_t>(tier)]; }
};

// A table of tiers and labels in MiB, for error messages and reports.
std::string to_string(const MemoryReport& report);

// The source of an allocator's segments. Implementations: host memory, CUDA, meta (addresses
// without memory), and decorators that fail on purpose in tests.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // `bytes` > 0. An address that is a multiple of kIoAlignment; null when there is no memory left.
  virtual void* acquire(Tier tier, int64_t bytes) = 0;
  virtual void release(Tier tier, void* data, int64_t bytes) noexcept = 0;
  // Sets the bytes to 0xff (NaN in every float format) in the order of `stream`.
  virtual void poison(Tier tier, void* data, int64_t bytes, StreamRef stream) = 0;
};

// Host memory for both tiers, zeroed when it is new; from kSegmentBytes on at multiples of that and
// with huge pages where the system has them. Not locked: offload locks the segments it transfers.
std::unique_ptr<MemorySource> make_host_memory_source();
// Addresses that no two live segments share and that fault when they are read or written.
std::unique_ptr<MemorySource> make_meta_memory_source();

struct AllocatorOptions {
  // Bytes per tier that may be live; absent: no limit of zinc's own.
  std::array<std::optional<int64_t>, kNumTiers> limits{};
  // Fill blocks with a NaN pattern when they are handed out and when they are freed (tests, debug).
  bool poison = false;
  // Called when the live total of a tier is larger than ever since the last reset_peaks(), from
  // within allocate(), with the report as it is then. Must not call the allocator.
  std::function<void(Tier, const MemoryReport&)> on_peak{};
};

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  static std::shared_ptr<Allocator> create(std::unique_ptr<MemorySource> source,
                                           AllocatorOptions options = {});
  virtual ~Allocator() = default;

  // Throws OutOfMemory (with the label table) when the limit or the source is exhausted, and
  // InvalidArgument for negative sizes and the tier nvme, whose bytes offload's storage owns.
  // Before it gives up on an exhausted source it waits for the work that uses cached segments and
  // gives them back. `home` must be alive; it waits for the events of Note [Stream order of
  // memory].
  Block allocate(int64_t bytes, Tier tier, Label label, StreamRef home);
  // Counts bytes that the rank took from storage on the tier nvme, or gave back (negative), so that
  // one report has all tiers.
  virtual void count_storage(Label label, int64_t bytes) = 0;
  virtual MemoryReport report() const = 0;
  virtual void reset_peaks() = 0;
  // Gives segments without live blocks back to the source, after it waited for the work that was
  // issued to their home streams before their blocks were freed.
  virtual void release_cached() noexcept = 0;

 protected:
  struct Allocation {
    void* data;
    uint64_t handle;
  };
  Allocator() = default;
  virtual Allocation do_allocate(int64_t bytes, Tier tier, Label label, StreamRef home) = 0;
  virtual void do_free(uint64_t handle) noexcept = 0;

 private:
  friend class Block;
};

}  // namespace zinc
