// offload/swap_extents.h: a swap space whose bytes the allocator counts. On a meta device
// nothing is opened, moved or written; bytes are counted all the same.
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
#include "offload/swap_traffic.h"

namespace zinc::offload {

// The settings that all swap spaces of a run share.
struct SwapSettings {
  std::string directory;
  StorageOptions storage;
  bool verify = true;
  SwapClock* clock = nullptr;  // null: nothing is timed
  std::function<std::unique_ptr<Storage>(const StorageOptions&)> make_storage =
      offload::make_storage;
};

// `bytes`, rounded up to whole pages, the unit of a direct transfer.
int64_t whole_pages(int64_t bytes);

// Called from the issuing thread only, but for read_beside().
class SwapExtents {
 public:
  // Takes swap space for extents of these sizes, each rounded up to whole_pages(). `label`: under
  // which the bytes count on the tier nvme. Throws IoError.
  SwapExtents(const std::vector<int64_t>& extent_bytes, Label label, Context& context,
              const SwapSettings& settings);
  ~SwapExtents();
  SwapExtents(const SwapExtents&) = delete;
  SwapExtents& operator=(const SwapExtents&) = delete;

  int64_t bytes_of(size_t extent) const { return extent_bytes_[extent]; }
  // Starts to read an extent into `memory`, or to write it from there. `memory`: at least
  // bytes_of(extent) bytes of host memory, untouched by other work until the caller has waited for
  // the transfer. `name` is for the trace and messages. See SwapSpace.
  SwapSpace::Transfer start_read(size_t extent, const Block& memory, std::string_view name) {
    return start_read(extent, memory, bytes_of(extent), name);
  }
  SwapSpace::Transfer start_write(size_t extent, const Block& memory, std::string_view name) {
    return start_write(extent, memory, bytes_of(extent), name);
  }
  // The same with a value of fewer bytes, rounded up to whole_pages(). A read asks for as many as
  // the last write gave.
  SwapSpace::Transfer start_read(size_t extent, const Block& memory, int64_t bytes,
                                 std::string_view name);
  SwapSpace::Transfer start_write(size_t extent, const Block& memory, int64_t bytes,
                                  std::string_view name);

  // See SwapSpace::stored() and SwapSpace::read_beside(). Nothing happens on a meta device.
  SwapSpace::Stored stored(size_t extent) const;
  void read_beside(const SwapSpace::Stored& stored, const Block& memory) const;

  // Bytes of the transfers that were waited for; on a meta device, of the transfers that were
  // started.
  SwapTraffic traffic() const;

 private:
  Context& context_;
  const Label label_;
  std::vector<int64_t> extent_bytes_;
  int64_t bytes_ = 0;
  SwapTraffic planned_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<SwapSpace> space_;  // null on a meta device
};

}  // namespace zinc::offload
