// zero/group/weight_encoding.h: a parameter's values in its block format, made of values in its own
// dtype: Note [Quantized segments].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/encode.h"
#include "zero/group/weight_store.h"

namespace zinc::zero {

// On the host. In nf4 every chunk depends on all values of the parameter: they are read twice.
class WeightEncoder {
 public:
  // `parameter` has a block format. Throws DataError where a value is NaN or infinite.
  WeightEncoder(const autograd::Parameter& parameter, const ReadValues& read);
  // Elements [begin, begin + numel) in whole chunks; begin: at one.
  std::vector<std::byte> encode(int64_t begin, int64_t numel) const;
  // The same as they are decoded, to contiguous host memory in the parameter's dtype.
  void round(int64_t begin, const View& out) const;

 private:
  std::vector<std::byte> read(int64_t begin, int64_t numel) const;

  const autograd::Parameter& parameter_;
  const ReadValues& read_;
  kernels::NestedAbsmax nested_;
};

}  // namespace zinc::zero
