// autograd/weight_encoding.h: encodes a parameter's values in its block format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/parameter.h"
#include "core/view.h"
#include "kernels/encode.h"

namespace zinc::autograd {

// Reads elements [begin, begin + out.numel()) of a parameter, flat row-major, in out's dtype. out:
// contiguous host memory.
using ReadValues = std::function<void(const Parameter& parameter, int64_t begin, View out)>;

// Works on the host. In nf4 every chunk depends on all values of the parameter, so values are read
// twice.
class WeightEncoder {
 public:
  // `parameter` has a block format. `parameter` and `read` must outlive this. Throws DataError if a
  // value is NaN or infinite.
  WeightEncoder(const Parameter& parameter, const ReadValues& read);
  // Encodes elements [begin, begin + numel) as whole chunks: core/block_format.h. `begin` is the
  // first element of a chunk. Throws DataError as the constructor does.
  std::vector<std::byte> encode(int64_t begin, int64_t numel) const;
  // The same elements encoded and decoded again, to `out`: contiguous host memory in the
  // parameter's dtype.
  void round(int64_t begin, const View& out) const;

 private:
  std::vector<std::byte> read(int64_t begin, int64_t numel) const;

  const Parameter& parameter_;
  const ReadValues& read_;
  kernels::NestedAbsmax nested_;
};

}  // namespace zinc::autograd
