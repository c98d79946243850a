// core/device.h: where a view's bytes live and where work on them runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc {

enum class DeviceKind : uint8_t { cpu, cuda };

// A meta device has the shapes and byte counts of the real one and no memory: kernels do nothing
// on it, reading a value gives a finite stand-in. The planner runs the real engine on it.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int16_t index = 0;
  bool meta = false;

  bool is_cpu() const { return kind == DeviceKind::cpu; }
  bool is_cuda() const { return kind == DeviceKind::cuda; }
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{};

// "cpu", "cuda:1", "meta(cuda:1)".
std::string to_string(const Device& device);
// Reads "cpu", "cuda" and "cuda:<i>"; throws InvalidArgument otherwise.
Device parse_device(std::string_view text);

// Kinds of memory, fastest first. A tier is a property of the allocation: a kernel that is given
// a view of a tier it may not compute on throws. On CPU ranks `device` is an arena of its own.
enum class Tier : uint8_t { device, pinned_host, nvme };
inline constexpr int kNumTiers = 3;

// The purpose of an allocation. The allocator accounts by (tier, label).
enum class Label : uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  workspace,
  communication,
  staging,
};
inline constexpr int kNumLabels = 7;

std::string_view name_of(Tier tier);
std::string_view name_of(Label label);
inline std::string to_string(Tier tier) { return std::string(name_of(tier)); }
inline std::string to_string(Label label) { return std::string(name_of(label)); }

}  // namespace zinc
