// tests/core/memory_sources.h: decorators of a MemorySource that watch it or make it fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.h"

namespace zinc {

// The calls that an observed source got; outlives the allocator that owns the source.
struct SourceLog {
  struct Segment {
    std::byte* base;
    int64_t bytes;
    bool released;
  };
  std::vector<Segment> segments;  // in the order of acquisition
  int num_acquires = 0;           // failed ones too
  std::function<void(void* data, int64_t bytes)> on_release;

  // "segment:offset" of an address, the same for equal placements in two sources.
  std::string place_of(const void* data) const {
    const auto* address = static_cast<const std::byte*>(data);
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& segment = segments[i];
      if (!segment.released && address >= segment.base && address < segment.base + segment.bytes) {
        return std::to_string(i) + ":" + std::to_string(address - segment.base);
      }
    }
    return "outside";
  }
  int64_t held_bytes() const {
    int64_t sum = 0;
    for (const Segment& segment : segments) sum += segment.released ? 0 : segment.bytes;
    return sum;
  }
};

class ObservedSource final : public MemorySource {
 public:
  ObservedSource(std::unique_ptr<MemorySource> inner, std::shared_ptr<SourceLog> log)
      : inner_(std::move(inner)), log_(std::move(log)) {}

  void* acquire(Tier tier, int64_t bytes) override {
    ++log_->num_acquires;
    void* const data = inner_->acquire(tier, bytes);
    if (data != nullptr) log_->segments.push_back({static_cast<std::byte*>(data), bytes, false});
    return data;
  }
  void release(Tier tier, void* data, int64_t bytes) noexcept override {
    if (log_->on_release) log_->on_release(data, bytes);
    for (auto& segment : log_->segments) {
      if (segment.base == data && segment.bytes == bytes && !segment.released) {
        segment.released = true;
        inner_->release(tier, data, bytes);
        return;
      }
    }
    log_->segments.push_back({nullptr, -1, false});  // shows in held_bytes(): released twice
  }
  void poison(Tier tier, void* data, int64_t bytes, StreamRef stream) override {
    inner_->poison(tier, data, bytes, stream);
  }

 private:
  std::unique_ptr<MemorySource> inner_;
  std::shared_ptr<SourceLog> log_;
};

// Fails the acquires for which `fails(n, bytes held before it, bytes)` is true; n counts from 1.
class FailingSource final : public MemorySource {
 public:
  using Rule = std::function<bool(int n, int64_t held_bytes, int64_t bytes)>;
  FailingSource(std::unique_ptr<MemorySource> inner, Rule fails)
      : inner_(std::move(inner)), fails_(std::move(fails)) {}

  static Rule at(int n) {
    return [n](int count, int64_t, int64_t) { return count == n; };
  }
  static Rule beyond(int64_t capacity_bytes) {
    return [capacity_bytes](int, int64_t held, int64_t bytes) {
      return held + bytes > capacity_bytes;
    };
  }

  void* acquire(Tier tier, int64_t bytes) override {
    if (fails_(++num_acquires_, held_bytes_, bytes)) return nullptr;
    void* const data = inner_->acquire(tier, bytes);
    if (data != nullptr) held_bytes_ += bytes;
    return data;
  }
  void release(Tier tier, void* data, int64_t bytes) noexcept override {
    held_bytes_ -= bytes;
    inner_->release(tier, data, bytes);
  }
  void poison(Tier tier, void* data, int64_t bytes, StreamRef stream) override {
    inner_->poison(tier, data, bytes, stream);
  }

 private:
  std::unique_ptr<MemorySource> inner_;
  Rule fails_;
  int num_acquires_ = 0;
  int64_t held_bytes_ = 0;
};

}  // namespace zinc
