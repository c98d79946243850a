#include "files/convert.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/convert.h"

namespace zinc::files {

bool can_convert(DType stored, DType out) {
  return stored == out || (is_float(stored) && is_float(out));
}

void read_converted(DType stored, View out,
                    const std::function<void(int64_t first, View raw)>& read_elements) {
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  const int64_t count = out.numel();
  if (count == 0) return;
  if (stored == out.dtype()) {
    read_elements(0, out);
    return;
  }
  const int64_t piece = std::min(count, kPieceBytes / size_of(stored));
  std::vector<std::byte> buffer(static_cast<size_t>(piece * size_of(stored)));
  for (int64_t done = 0; done < count; done += piece) {
    const int64_t n = std::min(piece, count - done);
    const View raw(buffer.data(), stored, Shape{n});
    read_elements(done, raw);
    convert_elements(raw, View(static_cast<std::byte*>(out.data()) + done * size_of(out.dtype()),
                               out.dtype(), Shape{n}));
  }
}

}  // namespace zinc::files
