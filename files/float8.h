// files/float8.h: reads float values that a file holds in 8 bits (core/float8.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "core/float8.h"
#include "core/view.h"

namespace zinc::files {

// Parses the names of safetensors ("F8_E4M3") and PyTorch ("float8_e4m3fn").
std::optional<Fp8> float8_named(std::string_view type);

// read_converted() for stored bytes: `read_bytes(first, raw)` fills raw with elements [first, first
// + raw.size()). out: floats. Infinities become NaN. A factor beside such a tensor ("weight_scale")
// is a separate tensor and is not applied here.
void read_float8(Fp8 stored, View out,
                 const std::function<void(int64_t first, std::span<std::byte> raw)>& read_bytes);

}  // namespace zinc::files
