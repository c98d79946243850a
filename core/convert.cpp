#include "core/convert.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "core/error.h"

namespace zinc {

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

}  // namespace zinc
