// kernels/wgmma_use.h: whether our own kernels for compute capability 9.0 run where they can.
#pragma once

#include <cstdint>
#include <string_view>

namespace zinc::kernels {

enum class WgmmaUse : uint8_t {
  by_table,  // where a line of a measured table says that wgmma is faster
  never,
  always,
};
constexpr std::string_view name_of(WgmmaUse use) {
  if (use == WgmmaUse::by_table) return "table";
  return use == WgmmaUse::never ? "never" : "always";
}

}  // namespace zinc::kernels
