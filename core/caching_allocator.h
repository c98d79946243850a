// core/caching_allocator.h: the allocator behind Allocator::create.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/allocator.h"
#include "core/range_pool.h"

namespace zinc {

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(std::unique_ptr<MemorySource> source, AllocatorOptions options);
  ~CachingAllocator() override;

  void count_storage(Label label, int64_t bytes) override { account(Tier::nvme, label, bytes); }
  MemoryReport report() const override { return report_; }
  void reset_peaks() override;
  void release_cached() noexcept override;

  // See core/kept_memory.h. At most one at a time; nothing is given back to the source while one is
  // open.
  void open_kept();
  void close_kept();
  void drop_kept() noexcept;

 private:
  // Small and large segments of the two tiers that are memory.
  static constexpr uint32_t kNumPools = 4;
  struct Taken {
    int64_t bytes = 0;  // as the report counts them
    Label label = Label::workspace;
  };
  struct Pool {
    RangePool ranges;
    std::vector<std::byte*> bases;  // by index of the segment
    std::vector<Taken> taken;       // by index of the range
  };
  // A stream that blocks were allocated for; it may be gone.
  struct Home {
    Stream* stream = nullptr;
    std::weak_ptr<const void> lifetime;
  };

  Allocation do_allocate(int64_t bytes, Tier tier, Label label, StreamRef home) override;
  void do_free(uint64_t handle) noexcept override;

  static Tier tier_of(uint32_t pool) { return static_cast<Tier>(pool / 2); }
  void check_limit(int64_t bytes, int64_t rounded, Tier tier, Label label) const;
  [[noreturn]] void throw_out_of_memory(int64_t bytes, Tier tier, Label label,
                                        std::string_view reason, int64_t limit) const;
  uint32_t home_of(StreamRef stream);
  // A new segment with room for `size` bytes; false where the source has none.
  bool grow(uint32_t pool, int64_t size, uint32_t home);
  bool acquire_segment(uint32_t pool, int64_t segment_bytes, uint32_t home);
  void wait_before_reuse(Pool& pool, const RangePool::Candidate& candidate, uint32_t home);
  void release_segment(uint32_t pool, uint32_t segment) noexcept;
  void account(Tier tier, Label label, int64_t bytes);
  // Bytes [begin, end) of a segment.
  struct Span {
    uint32_t segment = 0;
    int64_t begin = 0, end = 0;
  };
  Span span_of(const Pool& pool, uint32_t range) const;
  void keep_free_part(uint32_t pool, const Span& span);
  // Takes bytes [begin, end) of a free range, and no other byte; returns the range that then holds
  // them.
  uint32_t take_part(Pool& pool, uint32_t range, int64_t begin, int64_t end);

  std::unique_ptr<MemorySource> source_;
  AllocatorOptions options_;
  std::array<Pool, kNumPools> pools_;
  std::vector<Home> homes_;
  uint32_t last_home_ = 0;
  MemoryReport report_;
  bool keeps_ = false;                                   // an open KeptMemory
  std::array<std::vector<Span>, kNumPools> handed_out_;  // since it was opened
  std::vector<uint64_t> kept_;                           // handles
};

}  // namespace zinc
