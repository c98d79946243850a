// tests/kernels/encoded_weight.h: a whole weight in a block format.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/block_format.h"
#include "kernels/encode.h"
#include "tests/kernels/host_array.h"

namespace zinc::test {

inline constexpr BlockFormat kFormats[] = {BlockFormat::nf4, BlockFormat::int8};

inline std::vector<float> absmax_of(BlockFormat format, const ConstView& x) {
  const int64_t size = block_numel(format);
  std::vector<float> absmax(static_cast<size_t>((x.numel() + size - 1) / size));
  EXPECT_TRUE(kernels::block_absmax(format, x, absmax));
  return absmax;
}

// A whole weight.
inline HostArray encoded(BlockFormat format, const ConstView& x) {
  HostArray y(Shape{encoded_bytes(format, x.numel())}, DType::u8);
  const kernels::NestedAbsmax nested = kernels::nest(absmax_of(format, x));
  kernels::encode({.x = x, .format = format, .nested = &nested, .y = y.on_host()});
  return y;
}

}  // namespace zinc::test
