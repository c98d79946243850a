#include "train/files/convert.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace zinc::train {

void convert_elements(ConstView in, View out) {
  bug_check(in.numel() == out.numel(), "convert: ", in, " to ", out);
  if (in.dtype() == out.dtype()) {
    std::memcpy(out.data(), in.data(), static_cast<size_t>(in.bytes()));
    return;
  }
  require(is_float(in.dtype()) && is_float(out.dtype()), "cannot convert ", in.dtype(), " to ",
          out.dtype());
  const auto count = static_cast<size_t>(in.numel());
  dispatch_float(in.dtype(), [&]<class From>() {
    dispatch_float(out.dtype(), [&]<class To>() {
      using Through = std::conditional_t<std::is_same_v<To, double>, double, float>;
      const From* source = in.data_as<From>();
      To* target = out.data_as<To>();
      for (size_t i = 0; i < count; ++i) {
        if constexpr (std::is_same_v<From, double>) {
          target[i] = static_cast<To>(static_cast<Through>(source[i]));
        } else {
          target[i] = static_cast<To>(static_cast<float>(source[i]));
        }
      }
    });
  });
}

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

}  // namespace zinc::train
