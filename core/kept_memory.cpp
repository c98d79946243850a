#include "core/kept_memory.h"

#include <algorithm>
#include <utility>

#include "core/caching_allocator.h"
#include "core/error.h"

namespace zinc {

KeptMemory::KeptMemory(Allocator& allocator)
    : allocator_(std::dynamic_pointer_cast<CachingAllocator>(allocator.shared_from_this())) {
  bug_check(allocator_ != nullptr, "only the caching allocator keeps memory");
}
KeptMemory::~KeptMemory() { allocator_->drop_kept(); }
void KeptMemory::open() { allocator_->open_kept(); }
void KeptMemory::close() { allocator_->close_kept(); }

CachingAllocator::Span CachingAllocator::span_of(const Pool& pool, uint32_t range) const {
  const int64_t begin = pool.ranges.offset_of(range);
  return {pool.ranges.segment_of(range), begin, begin + pool.ranges.size_of(range)};
}

void CachingAllocator::open_kept() {
  bug_check(!keeps_, "memory is being kept already");
  keeps_ = true;
  for (const uint64_t handle : kept_) {
    const auto pool = static_cast<size_t>(handle % kNumPools);
    handed_out_[pool].push_back(span_of(pools_[pool], static_cast<uint32_t>(handle / kNumPools)));
  }
  for (const uint64_t handle : std::exchange(kept_, {})) do_free(handle);
}

void CachingAllocator::close_kept() {
  bug_check(keeps_, "no memory is being kept");
  keeps_ = false;
  for (uint32_t p = 0; p < kNumPools; ++p) {
    std::vector<Span> spans = std::exchange(handed_out_[p], {});
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return std::pair(a.segment, a.begin) < std::pair(b.segment, b.begin);
    });
    for (size_t i = 0; i < spans.size();) {
      Span whole = spans[i];
      for (++i;
           i < spans.size() && spans[i].segment == whole.segment && spans[i].begin <= whole.end;
           ++i) {
        whole.end = std::max(whole.end, spans[i].end);
      }
      keep_free_part(p, whole);
    }
  }
}

void CachingAllocator::keep_free_part(uint32_t pool_index, const Span& span) {
  Pool& pool = pools_[pool_index];
  for (uint32_t range = pool.ranges.first_range(span.segment); range != RangePool::kNone;
       range = pool.ranges.next_range(range)) {
    const Span whole = span_of(pool, range);
    const int64_t begin = std::max(whole.begin, span.begin);
    const int64_t end = std::min(whole.end, span.end);
    if (begin >= end || !pool.ranges.is_free(range)) continue;
    if (kept_.size() == kept_.capacity()) kept_.reserve(2 * kept_.size() + 32);
    range = take_part(pool, range, begin, end);
    pool.taken[range] = {.bytes = end - begin, .label = Label::activations};
    account(tier_of(pool_index), Label::activations, end - begin);
    kept_.push_back(uint64_t{range} * kNumPools + pool_index);
  }
}

uint32_t CachingAllocator::take_part(Pool& pool, uint32_t range, int64_t begin, int64_t end) {
  const auto take = [&](uint32_t from, int64_t bytes) {
    pool.ranges.reserve(static_cast<uint32_t>(homes_.size()));
    pool.taken.resize(pool.ranges.num_ranges() + 1);
    return pool.ranges.take({from, 1}, bytes, pool.ranges.dependency(from).home);
  };
  const int64_t before = begin - pool.ranges.offset_of(range);
  if (before == 0) return take(range, end - begin);
  const RangePool::Dependency dependency = pool.ranges.dependency(range);
  const uint32_t front = take(range, before);
  const uint32_t part = take(pool.ranges.next_range(front), end - begin);
  pool.ranges.give_back(front, dependency.freed, dependency.recorded);
  return part;
}

void CachingAllocator::drop_kept() noexcept {
  keeps_ = false;
  for (auto& spans : handed_out_) spans.clear();
  for (const uint64_t handle : kept_) do_free(handle);
  kept_.clear();
}

}  // namespace zinc
