// core/allocator.h: the only source of memory, library workspaces included.
//
// A caching allocator with a tier and a label on every block. Accounting follows the order in which
// allocate and free are called, never the order in which queued work completes, so the figures of
// two runs of one program are equal, and equal to those of a meta run of it ("the plan is the
// peak"). One allocator serves one rank and is called from the thread that issues work.
//
// Note [Stream order of memory]
// A block belongs to its home stream. free() takes effect at the current end of that stream's
// queue: the bytes may be handed out again at once for work on the same stream. Whoever used the
// block on another stream makes the home stream wait for that work before the block is freed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/device.h"
#include "core/stream.h"

namespace zinc {

// Every block's address and reserved size are multiples of this many bytes.
inline constexpr int64_t kBlockAlignment = 256;

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
  int64_t bytes() const { return bytes_; }  // as requested
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
  int64_t live = 0;  // bytes in blocks that are handed out, each rounded up to kBlockAlignment
  int64_t peak = 0;  // largest value of `live` since the last reset_peaks()
};

// What an allocator handed out, by tier and label; totals have a peak of their own, which is not
// the sum of the labels' peaks.
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

// Where an allocator takes its segments from. Implementations: host memory, CUDA, meta (addresses
// without memory), and decorators that fail on purpose in tests.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Returns null when there is no memory left.
  virtual void* acquire(Tier tier, int64_t bytes) = 0;
  virtual void release(Tier tier, void* data, int64_t bytes) noexcept = 0;
};

std::unique_ptr<MemorySource> make_host_memory_source();
std::unique_ptr<MemorySource> make_meta_memory_source();

struct AllocatorOptions {
  // Bytes per tier that may be live; absent: no limit of zinc's own.
  std::array<std::optional<int64_t>, kNumTiers> limits{};
  // Fill blocks with a NaN pattern when they are handed out and when they are freed (tests, debug).
  bool poison = false;
};

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  static std::shared_ptr<Allocator> create(std::unique_ptr<MemorySource> source,
                                           AllocatorOptions options = {});
  virtual ~Allocator() = default;

  // Throws OutOfMemory (with the label table) when the limit or the source is exhausted, and
  // InvalidArgument for negative sizes.
  Block allocate(int64_t bytes, Tier tier, Label label, StreamRef home);
  virtual MemoryReport report() const = 0;
  virtual void reset_peaks() = 0;
  // Gives cached segments back to the source. Waits for nothing: call it when streams are idle.
  virtual void release_cached() noexcept = 0;

 protected:
  struct Allocation {
    void* data;
    uint64_t handle;
  };
  virtual Allocation do_allocate(int64_t bytes, Tier tier, Label label, StreamRef home) = 0;
  virtual void do_free(uint64_t handle) noexcept = 0;

 private:
  friend class Block;
};

}  // namespace zinc
