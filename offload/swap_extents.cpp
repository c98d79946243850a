#include "offload/swap_extents.h"

#include <cstddef>
#include <span>

#include "core/error.h"

namespace zinc::offload {

int64_t whole_pages(int64_t bytes) {
  return (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
}

SwapExtents::SwapExtents(const std::vector<int64_t>& extent_bytes, Label label, Context& context,
                         const SwapSettings& settings)
    : context_(context), label_(label) {
  for (const int64_t bytes : extent_bytes) {
    extent_bytes_.push_back(whole_pages(bytes));
    bytes_ += extent_bytes_.back();
  }
  if (!context.device().meta) {
    storage_ = settings.make_storage(settings.storage);
    space_ = std::make_unique<SwapSpace>(*storage_, SwapOptions{.directory = settings.directory,
                                                                .extent_bytes = extent_bytes_,
                                                                .verify = settings.verify,
                                                                .trace = context.trace(),
                                                                .clock = settings.clock});
    bug_check(space_->bytes() == bytes_, "extents do not fill whole pages of swap");
  }
  context_.allocator().count_storage(label_, bytes_);
}

SwapExtents::~SwapExtents() { context_.allocator().count_storage(label_, -bytes_); }

SwapSpace::Transfer SwapExtents::start_read(size_t extent, const Block& memory, int64_t bytes,
                                            std::string_view name) {
  bytes = whole_pages(bytes);
  planned_.bytes_read += bytes;
  if (space_ == nullptr) return {};
  return space_->read(static_cast<int>(extent),
                      {static_cast<std::byte*>(memory.data()), static_cast<size_t>(bytes)}, name);
}

SwapSpace::Transfer SwapExtents::start_write(size_t extent, const Block& memory, int64_t bytes,
                                             std::string_view name) {
  bytes = whole_pages(bytes);
  planned_.bytes_written += bytes;
  if (space_ == nullptr) return {};
  return space_->write(static_cast<int>(extent),
                       {static_cast<const std::byte*>(memory.data()), static_cast<size_t>(bytes)},
                       name);
}

SwapSpace::Stored SwapExtents::stored(size_t extent) const {
  if (space_ == nullptr) return {};
  return space_->stored(static_cast<int>(extent));
}

void SwapExtents::read_beside(const SwapSpace::Stored& stored, const Block& memory) const {
  if (space_ == nullptr) return;
  space_->read_beside(stored,
                      {static_cast<std::byte*>(memory.data()), static_cast<size_t>(stored.bytes)});
}

SwapTraffic SwapExtents::traffic() const {
  if (space_ == nullptr) return planned_;
  SwapTraffic moved;
  moved.bytes_read = space_->bytes_read();
  moved.bytes_written = space_->bytes_written();
  return moved;
}

}  // namespace zinc::offload
