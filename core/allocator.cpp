#include "core/allocator.h"

#include <fmt/format.h>

#include <utility>

#include "core/caching_allocator.h"
#include "core/error.h"

namespace zinc {

void Block::reset() noexcept {
  if (data_ == nullptr) return;
  allocator_->do_free(handle_);
  data_ = nullptr;
  bytes_ = 0;
  handle_ = 0;
  allocator_.reset();
}

void Block::swap(Block& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(handle_, other.handle_);
  std::swap(tier_, other.tier_);
  std::swap(label_, other.label_);
}

std::shared_ptr<Allocator> Allocator::create(std::unique_ptr<MemorySource> source,
                                             AllocatorOptions options) {
  require(source != nullptr, "allocator: needs a memory source");
  return std::make_shared<CachingAllocator>(std::move(source), std::move(options));
}

Block Allocator::allocate(int64_t bytes, Tier tier, Label label, StreamRef home) {
  require(bytes >= 0, "allocate: a block must not have a negative size: ", bytes);
  require(tier != Tier::nvme,
          "allocate: memory has no tier nvme; take space from an offload::Storage");
  Block block;
  block.allocator_ = shared_from_this();
  const Allocation allocation = do_allocate(bytes, tier, label, home);
  block.data_ = allocation.data;
  block.bytes_ = bytes;
  block.handle_ = allocation.handle;
  block.tier_ = tier;
  block.label_ = label;
  return block;
}

std::string to_string(const MemoryReport& report) {
  constexpr double kMiB = 1 << 20;
  std::string table =
      fmt::format("{:<12} {:<14} {:>12} {:>12}\n", "tier", "label", "live MiB", "peak MiB");
  const auto add_row = [&](Tier tier, std::string_view label, const MemoryFigures& figures) {
    table += fmt::format("{:<12} {:<14} {:>12.2f} {:>12.2f}\n", name_of(tier), label,
                         static_cast<double>(figures.live) / kMiB,
                         static_cast<double>(figures.peak) / kMiB);
  };
  for (int t = 0; t < kNumTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    const MemoryFigures& reserved = report.reserved[static_cast<size_t>(t)];
    if (report.at(tier).peak == 0 && reserved.peak == 0) continue;
    for (int l = 0; l < kNumLabels; ++l) {
      const MemoryFigures& figures = report.at(tier, static_cast<Label>(l));
      if (figures.peak != 0) add_row(tier, name_of(static_cast<Label>(l)), figures);
    }
    add_row(tier, "total", report.at(tier));
    add_row(tier, "reserved", reserved);
  }
  return table;
}

}  // namespace zinc
