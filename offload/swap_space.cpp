#include "offload/swap_space.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/allocator.h"
#include "core/crc32c.h"
#include "core/error.h"

namespace zinc::offload {

SwapSpace::SwapSpace(Storage& storage, const SwapOptions& options)
    : storage_(storage),
      verify_(options.verify),
      trace_(options.trace),
      clock_(options.clock),
      file_(open_unnamed(options.directory, options.naming)) {
  for (const int64_t bytes : options.extent_bytes) {
    require(bytes > 0, "swap space: an extent of ", bytes, " bytes");
    const int64_t rounded = (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
    extents_.push_back({.offset = bytes_, .bytes = rounded});
    bytes_ += rounded;
  }
  reserve(file_, bytes_);
}

SwapSpace::Extent& SwapSpace::extent_at(int extent) {
  bug_check(extent >= 0 && extent < num_extents(), "swap extent ", extent, " of ", num_extents());
  return extents_[static_cast<size_t>(extent)];
}

int64_t SwapSpace::bytes_of(int extent) const {
  return extents_.at(static_cast<size_t>(extent)).bytes;
}

SwapSpace::Extent& SwapSpace::free_extent(IoKind kind, int index, size_t bytes) {
  Extent& extent = extent_at(index);
  const char* what = kind == IoKind::read ? "read" : "write";
  if (extent.use->hung) {
    throw IoError(what, file_.path(), extent.offset, ETIMEDOUT,
                  "an earlier transfer of these bytes has not come back");
  }
  bug_check(!extent.use->busy, "swap extent ", index, ": ", what,
            " while another transfer is under way");
  bug_check(kind == IoKind::write || !extent.lost, "swap extent ", index,
            " is read, but no write of it was completed");
  const auto asked = static_cast<int64_t>(bytes);
  const bool fits = kind == IoKind::read
                        ? asked == extent.held
                        : asked > 0 && asked <= extent.bytes && asked % kIoAlignment == 0;
  bug_check(fits, "swap extent ", index, " of ", extent.bytes, " bytes holds ", extent.held,
            ", and ", bytes, " were asked for: ", what);
  return extent;
}

SwapSpace::Transfer SwapSpace::write(int index, std::span<const std::byte> data,
                                     std::string_view name) {
  Extent& extent = free_extent(IoKind::write, index, data.size());
  Transfer transfer;
  transfer.space_ = this;
  transfer.kind_ = IoKind::write;
  transfer.extent_ = index;
  transfer.bytes_ = std::ssize(data);
  transfer.begin_ns_ = TraceRecorder::now_ns();
  if (trace_ != nullptr) transfer.name_ = name;
  transfer.handle_ = storage_.write(file_, extent.offset, data, checksum());
  transfer.hold_ = Hold(extent.use);
  extent.lost = true;  // until the write is known to have succeeded
  extent.held = transfer.bytes_;
  return transfer;
}

SwapSpace::Transfer SwapSpace::read(int index, std::span<std::byte> data, std::string_view name) {
  Extent& extent = free_extent(IoKind::read, index, data.size());
  Transfer transfer;
  transfer.space_ = this;
  transfer.extent_ = index;
  transfer.bytes_ = std::ssize(data);
  transfer.begin_ns_ = TraceRecorder::now_ns();
  if (trace_ != nullptr) transfer.name_ = name;
  transfer.data_ = data;
  transfer.handle_ = storage_.read(file_, extent.offset, data, checksum());
  transfer.hold_ = Hold(extent.use);
  return transfer;
}

SwapSpace::Stored SwapSpace::stored(int index) const {
  const Extent& extent = extents_.at(static_cast<size_t>(index));
  bug_check(!extent.lost, "swap extent ", index, " is read, but no write of it was completed");
  return {.offset = extent.offset, .bytes = extent.held, .crc = extent.crc};
}

void SwapSpace::read_beside(const Stored& stored, std::span<std::byte> data) const {
  bug_check(static_cast<int64_t>(data.size()) == stored.bytes, "a swap extent has ", stored.bytes,
            " bytes, not ", data.size());
  // A bit that flipped on the way is another one, or none, the second time.
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (size_t done = 0; done < data.size();) {
      const auto at = stored.offset + static_cast<int64_t>(done);
      const ssize_t n = ::pread(file_.fd(), data.data() + done, data.size() - done, at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw IoError("read", file_.path(), at, n < 0 ? errno : 0);
      done += static_cast<size_t>(n);
    }
    if (!verify_ || crc32c(data) == stored.crc) return;
  }
  throw IoError("read", file_.path(), stored.offset, EIO,
                "the bytes are not those that were written");
}

void SwapSpace::Transfer::wait() {
  if (!handle_) return;
  Extent& extent = space_->extent_at(extent_);
  const int64_t wait_begin = TraceRecorder::now_ns();
  try {
    handle_.wait();
    if (space_->trace_ != nullptr) space_->record(*this, wait_begin);
    if (space_->clock_ != nullptr) {
      space_->clock_->add(begin_ns_, handle_.over_ns(), wait_begin);
    }
  } catch (const IoError& error) {
    if (error.error_number() == ETIMEDOUT && !handle_.query()) {
      hold_.mark_hung();
      throw;
    }
    handle_ = {};
    hold_ = {};
    throw;
  }
  const uint32_t crc = handle_.crc32c();
  handle_ = {};
  hold_ = {};
  if (kind_ == IoKind::write) {
    extent.lost = false;
    extent.crc = crc;
    ++extent.generation;
    space_->bytes_written_ += bytes_;
  } else {
    space_->bytes_read_ += bytes_;
    if (space_->verify_) space_->check(extent, data_, crc);
  }
}

void SwapSpace::record(const Transfer& transfer, int64_t wait_begin_ns) {
  const bool read = transfer.kind_ == IoKind::read;
  const int64_t over = transfer.handle_.over_ns();
  // Transfers under way together stand one after the other: slices of a lane do not cross.
  int64_t& lane_end = lane_end_ns_[read ? 0 : 1];
  const int64_t begin = std::min(over, std::max(transfer.begin_ns_, lane_end));
  lane_end = std::max(lane_end, over);
  const uint64_t id = trace_->next_id();
  trace_->record({.kind = read ? TraceKind::swap_in : TraceKind::swap_out,
                  .lane = read ? kReadLane : kWriteLane,
                  .name = transfer.name_,
                  .begin_ns = begin,
                  .end_ns = over,
                  .bytes = transfer.bytes_,
                  .id = id});
  if (over <= wait_begin_ns) return;  // nobody had to wait
  trace_->record({.kind = TraceKind::stall,
                  .name = read ? "wait for a read" : "wait for a write",
                  .begin_ns = wait_begin_ns,
                  .end_ns = over,
                  .waited_for = id});
}

void SwapSpace::check(const Extent& extent, std::span<std::byte> data, uint32_t found) {
  if (found == extent.crc) return;
  IoHandle again = storage_.read(file_, extent.offset, data, checksum());
  again.wait();
  found = again.crc32c();
  if (found == extent.crc) return;
  throw IoError("read", file_.path(), extent.offset, EIO,
                str("the ", data.size(), " bytes there are not those of write number ",
                    extent.generation, ": their CRC-32C is ", found, " instead of ", extent.crc,
                    "; the disk or its driver is at fault, use another nvme_path"));
}

}  // namespace zinc::offload
