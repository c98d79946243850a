#include "tests/emulator/bulk_copy.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/block.h"
#include "tests/emulator/grid.h"
#include "tests/emulator/include/cuda.h"

namespace zinc::emulator {
namespace {

constexpr size_t kBarrierBytes = 8;
constexpr size_t kBoxAlignment = 128;
constexpr int kNamedBarriers = 16;
constexpr uint32_t kFirstAddress = 1024;  // of dynamic shared memory: static memory lies before it

struct Mbarrier {
  uint32_t count = 0;    // arrivals of a phase
  uint32_t arrived = 0;  // in this one
  int64_t bytes = 0;     // expected, less those that have come
  uint64_t phase = 0;
  bool in_async_proxy = false;
};

struct Copy {
  std::byte* to = nullptr;
  size_t bytes = 0;
};

struct NamedBarrier {
  int threads = 0;
  int arrived = 0;
  uint64_t phase = 0;
};

// One per block.
class BulkUnit {
 public:
  BulkUnit() {
    Block& block = Block::current();
    view_.resize(block.dynamic_bytes(), std::byte{0xff});
    block.check_at_end([this] { check(); });
  }

  Mbarrier& barrier(const uint64_t* at) {
    const auto found = barriers_.find(at);
    if (found == barriers_.end()) throw Fault("an mbarrier is used that is not initialised");
    return found->second;
  }

  void init(uint64_t* at, uint32_t count) {
    require_aligned(at, kBarrierBytes, "mbarrier");
    Block::current().require_shared(at, kBarrierBytes, "mbarrier");
    if (count == 0) throw Fault("an mbarrier without arrivals");
    if (!barriers_.try_emplace(at, Mbarrier{.count = count}).second) {
      throw Fault("an mbarrier is initialised twice");
    }
  }
  void publish_barriers() {
    for (auto& [at, barrier] : barriers_) barrier.in_async_proxy = true;
  }
  void arrive(uint64_t* at, uint32_t bytes) {
    Mbarrier& mine = barrier(at);
    mine.bytes += bytes;
    ++mine.arrived;
    end_phase(mine);
  }

  void copy(void* to, const TensorMap& map, uint64_t* at,
            const std::array<int32_t, TensorMap::kMaxRank>& first) {
    if (!barrier(at).in_async_proxy) {
      throw Fault("a bulk copy names an mbarrier whose initialisation no fence has published");
    }
    require_aligned(to, kBoxAlignment, "bulk copy");
    const Copy copy{static_cast<std::byte*>(to), map.box_bytes()};
    Block& block = Block::current();
    block.require_shared(to, copy.bytes, "a bulk copy writes");
    require_quiet(to, copy.bytes, "a bulk copy writes");
    poison(to, copy.bytes);
    copies_.push_back(copy);
    block.do_later([this, copy, map, at, first] { complete(copy, map, at, first); });
  }

  // Memory that cp.async has poisoned is copied, too.
  __attribute__((no_sanitize_address)) void publish() {
    const auto* from = static_cast<const std::byte*>(Block::current().dynamic_shared());
    for (size_t i = 0; i < view_.size(); ++i) {
      if (!is_written(from + i, 1)) view_[i] = from[i];
    }
  }
  const std::byte* view(const void* address, size_t bytes, const char* what) const {
    const auto* from = static_cast<const std::byte*>(Block::current().dynamic_shared());
    const auto* at = static_cast<const std::byte*>(address);
    if (at < from || at + bytes > from + view_.size()) {
      throw Fault(std::string(what) + " outside dynamic shared memory");
    }
    require_quiet(address, bytes, what);
    return view_.data() + (at - from);
  }

  NamedBarrier& named(int barrier) { return named_.at(static_cast<size_t>(barrier)); }

 private:
  static void end_phase(Mbarrier& mine) {
    if (mine.arrived > mine.count) {
      throw Fault("more arrivals at an mbarrier than the " + std::to_string(mine.count) +
                  " of a phase");
    }
    if (mine.arrived < mine.count || mine.bytes != 0) return;
    mine.arrived = 0;
    ++mine.phase;
    Block::current().changed();
  }
  bool is_written(const std::byte* at, size_t bytes) const {
    return std::ranges::any_of(copies_, [&](const Copy& copy) {
      return at < copy.to + copy.bytes && copy.to < at + bytes;
    });
  }
  void require_quiet(const void* at, size_t bytes, const char* what) const {
    if (is_written(static_cast<const std::byte*>(at), bytes)) {
      throw Fault(std::string(what) + " shared memory that a bulk copy still writes");
    }
  }
  void complete(const Copy& copy, const TensorMap& map, uint64_t* at,
                const std::array<int32_t, TensorMap::kMaxRank>& first) {
    const auto mine = std::ranges::find_if(copies_, [&](const Copy& c) { return c.to == copy.to; });
    copies_.erase(mine);
    lift_poison(copy.to, copy.bytes);
    const auto* base = static_cast<const std::byte*>(Block::current().dynamic_shared());
    const auto element = static_cast<size_t>(map.element_bytes);
    for (size_t i = 0; i < copy.bytes / element; ++i) {
      const std::byte* from = map.address;
      bool inside = true;
      size_t rest = i;
      for (size_t d = 0; d < static_cast<size_t>(map.rank); ++d) {
        const auto extent = static_cast<size_t>(map.box[d]);
        const int64_t index = first[d] + static_cast<int64_t>(rest % extent);
        rest /= extent;
        inside = inside && index >= 0 && index < map.extent[d];
        from += index * map.stride[d];
      }
      const auto place = reinterpret_cast<uintptr_t>(copy.to) + i * element;
      auto* to = copy.to + (swizzled_address(place, map.swizzle_bytes) -
                            reinterpret_cast<uintptr_t>(copy.to));
      if (inside) {
        std::memcpy(to, from, element);
      } else {
        std::memset(to, 0, element);
      }
      if (to >= base && to + element <= base + view_.size()) {
        std::memcpy(view_.data() + (to - base), to, element);
      }
    }
    Mbarrier& waiting = barrier(at);
    waiting.bytes -= static_cast<int64_t>(copy.bytes);
    end_phase(waiting);
  }
  void check() const {
    if (!copies_.empty()) throw Fault("a block ends while bulk copies write its shared memory");
    for (const NamedBarrier& barrier : named_) {
      if (barrier.arrived != 0) {
        throw Fault("a block ends with arrivals at a named barrier that nobody has waited for");
      }
    }
  }

  std::map<const uint64_t*, Mbarrier> barriers_;
  std::vector<Copy> copies_;
  std::vector<std::byte> view_;  // dynamic shared memory in the asynchronous proxy
  std::array<NamedBarrier, kNamedBarriers> named_;
};

BulkUnit& bulk_unit() { return Block::current().unit<BulkUnit>(); }

// Returns the phase that the arrival belongs to.
uint64_t arrive_named(int number, int threads) {
  if (number < 1 || number >= kNamedBarriers) throw Fault("a named barrier has a number 1 to 15");
  if (threads <= 0 || threads % kWarpSize != 0 || threads > Block::current().num_threads()) {
    throw Fault("a named barrier of " + std::to_string(threads) + " threads: whole warps alone");
  }
  NamedBarrier& barrier = bulk_unit().named(number);
  if (barrier.arrived == 0) barrier.threads = threads;
  if (barrier.threads != threads) {
    throw Fault("a named barrier of " + std::to_string(barrier.threads) + " and of " +
                std::to_string(threads) + " threads");
  }
  const uint64_t phase = barrier.phase;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.phase;
    Block::current().changed();
  }
  return phase;
}

}  // namespace

size_t TensorMap::box_bytes() const {
  auto bytes = static_cast<size_t>(element_bytes);
  for (size_t d = 0; d < static_cast<size_t>(rank); ++d) bytes *= static_cast<size_t>(box[d]);
  return bytes;
}

uintptr_t swizzled_address(uintptr_t address, int swizzle_bytes) {
  const uintptr_t mask = static_cast<uintptr_t>(swizzle_bytes) / 16;
  return mask < 2 ? address : address ^ ((address >> 7 & (mask - 1)) << 4);
}

void init_mbarrier(uint64_t* barrier, uint32_t count) { bulk_unit().init(barrier, count); }
void fence_mbarrier_init() { bulk_unit().publish_barriers(); }
void arrive_mbarrier(uint64_t* barrier) { bulk_unit().arrive(barrier, 0); }
void arrive_mbarrier_expecting(uint64_t* barrier, uint32_t bytes) {
  bulk_unit().arrive(barrier, bytes);
}

void wait_mbarrier(uint64_t* barrier, uint32_t parity, std::source_location where) {
  const Mbarrier& mine = bulk_unit().barrier(barrier);
  Block::current().wait_until("an mbarrier", where,
                              [&mine, parity] { return mine.phase % 2 != parity; });
}

void copy_box(void* shared_destination, const TensorMap& map, uint64_t* barrier,
              const std::array<int32_t, TensorMap::kMaxRank>& at) {
  bulk_unit().copy(shared_destination, map, barrier, at);
}

void fence_async_proxy() { bulk_unit().publish(); }

const std::byte* async_view(const void* address, size_t bytes, const char* what) {
  return bulk_unit().view(address, bytes, what);
}

uint32_t shared_address(const void* address) {
  const auto* base = static_cast<const std::byte*>(Block::current().dynamic_shared());
  const ptrdiff_t offset = static_cast<const std::byte*>(address) - base;
  if (offset < 0 || offset > static_cast<ptrdiff_t>(Block::current().dynamic_bytes())) {
    throw Fault("an address outside dynamic shared memory");
  }
  return kFirstAddress + static_cast<uint32_t>(offset);
}
const std::byte* shared_pointer(uint32_t address) {
  return static_cast<const std::byte*>(Block::current().dynamic_shared()) + address - kFirstAddress;
}

void sync_named_barrier(int barrier, int threads, std::source_location where) {
  const uint64_t phase = arrive_named(barrier, threads);
  const NamedBarrier& mine = bulk_unit().named(barrier);
  Block::current().wait_until("a named barrier", where,
                              [&mine, phase] { return mine.phase != phase; });
}
void arrive_named_barrier(int barrier, int threads) { arrive_named(barrier, threads); }

}  // namespace zinc::emulator

using namespace zinc::emulator;  // NOLINT: what follows is the other side of a C interface

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank,
                                void* address, const cuuint64_t* extents,
                                const cuuint64_t* strides_bytes, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  constexpr uint64_t kUnit = 16, kMaxBox = 256;
  constexpr uint64_t kMaxExtent = uint64_t{1} << 32, kMaxStride = uint64_t{1} << 40;
  constexpr int kElementBytes = 2;  // of all types that are emulated
  if (rank == 0 || rank > TensorMap::kMaxRank ||
      reinterpret_cast<uintptr_t>(address) % kUnit != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TensorMap made;
  made.address = static_cast<const std::byte*>(address);
  made.rank = static_cast<int>(rank);
  made.element_bytes = kElementBytes;
  made.swizzle_bytes = std::array{0, 32, 64, 128}[static_cast<size_t>(swizzle)];
  for (size_t d = 0; d < rank; ++d) {
    const uint64_t stride = d == 0 ? kElementBytes : strides_bytes[d - 1];
    if (extents[d] == 0 || extents[d] > kMaxExtent || box[d] == 0 || box[d] > kMaxBox ||
        element_strides[d] != 1 || (d > 0 && (stride % kUnit != 0 || stride >= kMaxStride))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    made.extent[d] = static_cast<int64_t>(extents[d]);
    made.stride[d] = static_cast<int64_t>(stride);
    made.box[d] = static_cast<int32_t>(box[d]);
  }
  const int row_bytes = made.box[0] * kElementBytes;
  if (row_bytes % static_cast<int>(kUnit) != 0 ||
      (made.swizzle_bytes != 0 && row_bytes > made.swizzle_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  map->map = made;
  return CUDA_SUCCESS;
}
