// zero/tiers/swap_extents.h: a swap space as the engine uses it: counted by the allocator, and on a
// meta device nothing but counted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "offload/storage.h"
#include "offload/swap_space.h"
#include "zero/engine_config.h"
#include "zero/tiers/swap_traffic.h"

namespace zinc::zero {

struct SwapSettings {
  std::string directory;
  offload::StorageOptions storage;
  bool verify = true;
  offload::SwapClock* clock = nullptr;  // null: nothing is timed
  std::function<std::unique_ptr<offload::Storage>(const offload::StorageOptions&)> make_storage =
      offload::make_storage;
};
SwapSettings swap_settings(const EngineConfig& config, const OffloadConfig& offload,
                           offload::SwapClock* clock);

// Rounded up to what a direct transfer takes.
int64_t whole_pages(int64_t bytes);

// One thread: that which issues work.
class SwapExtents {
 public:
  // Takes the space: extents of these bytes, each rounded up to whole_pages(). `label`: what is
  // counted on the tier nvme. Throws IoError.
  SwapExtents(const std::vector<int64_t>& extent_bytes, Label label, Context& context,
              const SwapSettings& settings);
  ~SwapExtents();
  SwapExtents(const SwapExtents&) = delete;
  SwapExtents& operator=(const SwapExtents&) = delete;

  int64_t bytes_of(size_t extent) const { return extent_bytes_[extent]; }
  // An extent from and to host memory of at least bytes_of(extent) that no other work touches
  // meanwhile; the transfer is waited for by the caller. See offload::SwapSpace.
  offload::SwapSpace::Transfer start_read(size_t extent, const Block& memory,
                                          std::string_view name);
  offload::SwapSpace::Transfer start_write(size_t extent, const Block& memory,
                                           std::string_view name);

  // SwapSpace::stored() and read_beside(); on a meta device nothing.
  offload::SwapSpace::Stored stored(size_t extent) const;
  void read_beside(const offload::SwapSpace::Stored& stored, const Block& memory) const;

  // Of transfers that were waited for; on a meta device of those that were started.
  SwapTraffic traffic() const;

 private:
  Context& context_;
  const Label label_;
  std::vector<int64_t> extent_bytes_;
  int64_t bytes_ = 0;
  SwapTraffic planned_;
  std::unique_ptr<offload::Storage> storage_;
  std::unique_ptr<offload::SwapSpace> space_;  // null on a meta device
};

}  // namespace zinc::zero
