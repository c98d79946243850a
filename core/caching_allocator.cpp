#include "core/caching_allocator.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc {
namespace {

// No machine holds this much; rounding a size below it cannot overflow.
constexpr int64_t kMaxBlockBytes = int64_t{1} << 60;

constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t accounted_bytes(int64_t bytes) {
  return round_up(std::max<int64_t>(bytes, 1), kBlockAlignment);
}

bool is_small(int64_t bytes) { return bytes <= kSmallBlockBytes; }

uint32_t pool_of(Tier tier, int64_t bytes) {
  return 2 * static_cast<uint32_t>(tier) + (is_small(bytes) ? 0 : 1);
}

int64_t range_bytes(int64_t bytes, Tier tier) {
  const bool io = tier == Tier::pinned_host || !is_small(bytes);
  return round_up(std::max<int64_t>(bytes, 1), io ? kIoAlignment : kBlockAlignment);
}

int64_t segment_bytes(int64_t size) {
  if (is_small(size)) return kSegmentBytes;
  return size <= kLargeSegmentBytes / 4 ? kLargeSegmentBytes : round_up(size, kSegmentBytes);
}

void raise(MemoryFigures& figures, int64_t bytes) {
  figures.live += bytes;
  figures.peak = std::max(figures.peak, figures.live);
}

// Waits for a dependency's work; an exception of the work is reported where its stream is
// synchronised.
void wait_quietly(const Event& event) noexcept {
  try {
    event.wait();
  } catch (...) {
  }
}

}  // namespace

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source, AllocatorOptions options)
    : source_(std::move(source)), options_(std::move(options)) {}

CachingAllocator::~CachingAllocator() {
  drop_kept();
  release_cached();
}

Allocator::Allocation CachingAllocator::do_allocate(int64_t bytes, Tier tier, Label label,
                                                    StreamRef home_stream) {
  const int64_t accounted = bytes > kMaxBlockBytes ? bytes : accounted_bytes(bytes);
  check_limit(bytes, accounted, tier, label);
  if (bytes > kMaxBlockBytes) {
    throw_out_of_memory(bytes, tier, label, "no machine has this much memory", -1);
  }
  const uint32_t home = home_of(home_stream);
  const uint32_t pool_index = pool_of(tier, bytes);
  Pool& pool = pools_[pool_index];
  const int64_t size = range_bytes(bytes, tier);
  const auto num_homes = static_cast<uint32_t>(homes_.size());

  pool.ranges.reserve(num_homes);
  RangePool::Candidate candidate = pool.ranges.find(size, home);
  if (!candidate) {
    bool grown = grow(pool_index, size, home);
    if (!grown) {
      release_cached();
      grown = grow(pool_index, size, home);
    }
    if (!grown) throw_out_of_memory(bytes, tier, label, "the system has no more memory", -1);
    pool.ranges.reserve(num_homes);
    candidate = pool.ranges.find(size, home);
  }
  pool.taken.resize(pool.ranges.num_ranges() + 1);
  wait_before_reuse(pool, candidate, home);

  const uint32_t range = pool.ranges.take(candidate, size, home);
  pool.taken[range] = {.bytes = accounted, .label = label};
  account(tier, label, accounted);
  if (keeps_) handed_out_[pool_index].push_back(span_of(pool, range));
  const uint64_t handle = uint64_t{range} * kNumPools + pool_index;
  std::byte* const data = pool.bases[pool.ranges.segment_of(range)] + pool.ranges.offset_of(range);
  if (options_.poison) {
    try {
      source_->poison(tier, data, size, home_stream);
    } catch (...) {
      do_free(handle);
      throw;
    }
  }
  return {.data = data, .handle = handle};
}

void CachingAllocator::do_free(uint64_t handle) noexcept {
  const auto pool_index = static_cast<uint32_t>(handle % kNumPools);
  const auto range = static_cast<uint32_t>(handle / kNumPools);
  Pool& pool = pools_[pool_index];
  const Home& home = homes_[pool.ranges.dependency(range).home];
  Event freed;
  bool recorded = true;
  if (!home.lifetime.expired()) {
    try {
      if (options_.poison) {
        source_->poison(tier_of(pool_index),
                        pool.bases[pool.ranges.segment_of(range)] + pool.ranges.offset_of(range),
                        pool.ranges.size_of(range), *home.stream);
      }
      freed = home.stream->record();
    } catch (...) {
      recorded = false;
    }
  }
  const Taken taken = pool.taken[range];
  account(tier_of(pool_index), taken.label, -taken.bytes);
  pool.ranges.give_back(range, std::move(freed), recorded);
}

void CachingAllocator::check_limit(int64_t bytes, int64_t accounted, Tier tier, Label label) const {
  const std::optional<int64_t>& limit = options_.limits[static_cast<size_t>(tier)];
  if (!limit.has_value() || accounted <= *limit - report_.at(tier).live) return;
  throw_out_of_memory(bytes, tier, label, str("the limit is ", *limit, " bytes"), *limit);
}

void CachingAllocator::throw_out_of_memory(int64_t bytes, Tier tier, Label label,
                                           std::string_view reason, int64_t limit) const {
  throw OutOfMemory(
      str("out of memory in tier ", tier, ": ", bytes, " bytes were asked for ", label, " and ",
          report_.at(tier).live, " are in use, but ", reason,
          "; a smaller micro-batch, recomputation, a higher ZeRO stage or offload needs less\n",
          to_string(report_)),
      bytes, limit);
}

uint32_t CachingAllocator::home_of(StreamRef stream) {
  const auto is_home = [&](const Home& home) {
    const auto& lifetime = stream->lifetime();
    return home.stream == &*stream && !home.lifetime.owner_before(lifetime) &&
           !lifetime.owner_before(home.lifetime);
  };
  if (last_home_ < homes_.size() && is_home(homes_[last_home_])) return last_home_;
  const auto found = std::find_if(homes_.begin(), homes_.end(), is_home);
  last_home_ = static_cast<uint32_t>(found - homes_.begin());
  if (found == homes_.end()) homes_.push_back({&*stream, stream->lifetime()});
  return last_home_;
}

bool CachingAllocator::grow(uint32_t pool, int64_t size, uint32_t home) {
  const int64_t usual = segment_bytes(size);
  if (acquire_segment(pool, usual, home)) return true;
  const int64_t least = round_up(size, kSegmentBytes);
  return least < usual && acquire_segment(pool, least, home);
}

bool CachingAllocator::acquire_segment(uint32_t pool_index, int64_t bytes, uint32_t home) {
  Pool& pool = pools_[pool_index];
  pool.ranges.reserve(static_cast<uint32_t>(homes_.size()));
  pool.bases.resize(pool.ranges.num_segments() + 1);
  void* const base = source_->acquire(tier_of(pool_index), bytes);
  if (base == nullptr) return false;
  pool.bases[pool.ranges.add_segment(bytes, home)] = static_cast<std::byte*>(base);
  raise(report_.reserved[static_cast<size_t>(tier_of(pool_index))], bytes);
  return true;
}

void CachingAllocator::wait_before_reuse(Pool& pool, const RangePool::Candidate& candidate,
                                         uint32_t home) {
  for (int i = 0; i < candidate.num_ranges; ++i) {
    const RangePool::Dependency& dependency = pool.ranges.dependency(candidate, i);
    if (dependency.home == home) continue;
    const Home& previous = homes_[dependency.home];
    if (previous.lifetime.expired()) continue;
    homes_[home].stream->wait(dependency.recorded ? dependency.freed : previous.stream->record());
  }
}

void CachingAllocator::release_cached() noexcept {
  if (keeps_) return;
  for (uint32_t p = 0; p < kNumPools; ++p) {
    for (uint32_t segment = 0; segment < pools_[p].ranges.num_segments(); ++segment) {
      if (pools_[p].ranges.segment_bytes(segment) > 0 && pools_[p].ranges.is_unused(segment)) {
        release_segment(p, segment);
      }
    }
  }
}

void CachingAllocator::release_segment(uint32_t pool_index, uint32_t segment) noexcept {
  Pool& pool = pools_[pool_index];
  for (uint32_t range = pool.ranges.first_range(segment); range != RangePool::kNone;
       range = pool.ranges.next_range(range)) {
    const RangePool::Dependency& dependency = pool.ranges.dependency(range);
    if (homes_[dependency.home].lifetime.expired()) continue;
    // Without an event there was no memory for one; the segment stays.
    if (!dependency.recorded) return;
    wait_quietly(dependency.freed);
  }
  const int64_t bytes = pool.ranges.segment_bytes(segment);
  pool.ranges.remove_segment(segment);
  source_->release(tier_of(pool_index), pool.bases[segment], bytes);
  report_.reserved[static_cast<size_t>(tier_of(pool_index))].live -= bytes;
}

void CachingAllocator::account(Tier tier, Label label, int64_t bytes) {
  raise(report_.by_label[static_cast<size_t>(tier)][static_cast<size_t>(label)], bytes);
  MemoryFigures& total = report_.total[static_cast<size_t>(tier)];
  const int64_t peak_before = total.peak;
  raise(total, bytes);
  if (options_.on_peak && total.peak > peak_before) options_.on_peak(tier, report_);
}

void CachingAllocator::reset_peaks() {
  const auto reset = [](MemoryFigures& figures) { figures.peak = figures.live; };
  for (auto& labels : report_.by_label) std::for_each(labels.begin(), labels.end(), reset);
  std::for_each(report_.total.begin(), report_.total.end(), reset);
  std::for_each(report_.reserved.begin(), report_.reserved.end(), reset);
}

}  // namespace zinc
