#include "train/safetensors/reader.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "train/safetensors/convert.h"

namespace zinc::train {
namespace {

constexpr int64_t kReadChunkBytes = int64_t{1} << 20;

std::span<std::byte> bytes_of(View view) {
  return {static_cast<std::byte*>(view.data()), static_cast<size_t>(view.bytes())};
}

}  // namespace

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
  if (!entry.dtype ||
      (*entry.dtype != out.dtype() && !(is_float(*entry.dtype) && is_float(out.dtype())))) {
    throw DataError(concat(path(), ": tensor \"", entry.name, "\" is ", entry.type,
                           ", which cannot be read as ", out.dtype()));
  }
  const DType stored = *entry.dtype;
  const int64_t first_byte = entry.begin + begin * size_of(stored);
  if (stored == out.dtype()) {
    file_.read(first_byte, bytes_of(out));
    return;
  }
  const int64_t chunk = std::min(count, kReadChunkBytes / size_of(stored));
  std::vector<std::byte> buffer(static_cast<size_t>(chunk * size_of(stored)));
  for (int64_t done = 0; done < count; done += chunk) {
    const int64_t n = std::min(chunk, count - done);
    const View raw(buffer.data(), stored, Shape{n});
    file_.read(first_byte + done * size_of(stored), bytes_of(raw));
    convert_elements(raw, View(static_cast<std::byte*>(out.data()) + done * size_of(out.dtype()),
                               out.dtype(), Shape{n}));
  }
}

}  // namespace zinc::train
