#include "files/safetensors/reader.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/error.h"
#include "files/convert.h"
#include "files/float8.h"

namespace zinc::files {
SafetensorsFile SafetensorsFile::open(const std::string& path) {
  InputFile file = InputFile::open(path);
  std::array<std::byte, 8> first{};
  const auto available = static_cast<size_t>(std::min<int64_t>(8, file.size()));
  file.read(0, std::span(first).first(available));
  const int64_t length =
      safetensors_header_length(std::span(first).first(available), file.size(), path);
  std::string text(static_cast<size_t>(length), '\0');
  file.read(8, std::as_writable_bytes(std::span(text)));
  SafetensorsHeader header = parse_safetensors_header(std::move(text), file.size(), path);
  return SafetensorsFile(std::move(file), std::move(header));
}

void SafetensorsFile::read(const TensorEntry& entry, int64_t begin, View out) const {
  require(out.device() == kCpu && out.is_contiguous(),
          "safetensors: read into contiguous host memory, not ", out);
  const int64_t count = out.numel();
  require(begin >= 0 && count <= entry.shape.numel() - begin, "safetensors: elements [", begin,
          ", ", begin + count, ") of ", entry.name, " ", entry.shape);
  if (count == 0) return;
  const std::optional<Fp8> float8 = float8_named(entry.type);
  if (float8 && is_float(out.dtype())) {
    read_float8(*float8, out, [&](int64_t first, std::span<std::byte> raw) {
      file_.read(entry.begin + begin + first, raw);
    });
    return;
  }
  if (!entry.dtype || !can_convert(*entry.dtype, out.dtype())) {
    throw DataError(str(path(), ": tensor \"", entry.name, "\" is ", entry.type,
                        ", which cannot be read as ", out.dtype()));
  }
  const int64_t size = size_of(*entry.dtype);
  read_converted(*entry.dtype, out, [&](int64_t first, View raw) {
    file_.read(entry.begin + (begin + first) * size,
               {static_cast<std::byte*>(raw.data()), static_cast<size_t>(raw.bytes())});
  });
}

}  // namespace zinc::files
