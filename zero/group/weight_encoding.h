// zero/group/weight_encoding.h: encodes a parameter's values in its block format: Note [Quantized
// segments].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/encode.h"
#include "zero/group/weight_store.h"

namespace zinc::zero {

// Works on the host. In nf4 every chunk depends on all values of the parameter, so values are read
// twice.
class WeightEncoder {
 public:
  // `parameter` has a block format. `parameter` and `read` must outlive this. Throws DataError if a
  // value is NaN or infinite.
  WeightEncoder(const autograd::Parameter& parameter, const ReadValues& read);
  // Encodes elements [begin, begin + numel) as whole chunks. `begin` is a multiple of kNormChunk.
  // Throws DataError as the constructor does.
  std::vector<std::byte> encode(int64_t begin, int64_t numel) const;
  // The same elements encoded and decoded again, to `out`: contiguous host memory in the
  // parameter's dtype.
  void round(int64_t begin, const View& out) const;

 private:
  std::vector<std::byte> read(int64_t begin, int64_t numel) const;

  const autograd::Parameter& parameter_;
  const ReadValues& read_;
  kernels::NestedAbsmax nested_;
};

}  // namespace zinc::zero
