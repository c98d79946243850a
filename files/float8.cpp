#include "files/float8.h"

#include <algorithm>
#include <vector>

#include "core/convert.h"

namespace zinc::files {

std::optional<Fp8> float8_named(std::string_view type) {
  if (type == "F8_E4M3" || type == "float8_e4m3fn") return Fp8::e4m3;
  if (type == "F8_E5M2" || type == "float8_e5m2") return Fp8::e5m2;
  return std::nullopt;
}

void read_float8(Fp8 stored, View out,
                 const std::function<void(int64_t first, std::span<std::byte> raw)>& read_bytes) {
  constexpr int64_t kPiece = int64_t{1} << 18;  // elements
  const int64_t count = out.numel();
  std::vector<std::byte> raw;
  std::vector<float> decoded;
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t n = std::min(kPiece, count - done);
    raw.resize(static_cast<size_t>(n));
    decoded.resize(static_cast<size_t>(n));
    read_bytes(done, raw);
    std::ranges::transform(raw, decoded.begin(), [&](std::byte code) {
      return fp8_value(stored, static_cast<uint8_t>(code));
    });
    convert_elements(ConstView(decoded.data(), DType::f32, Shape{n}, kCpu),
                     View(static_cast<std::byte*>(out.data()) + done * size_of(out.dtype()),
                          out.dtype(), Shape{n}));
  }
}

}  // namespace zinc::files
