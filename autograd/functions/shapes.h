// autograd/functions/shapes.h: other shapes of tensors, made of ops. Any dtype unless stated;
// negative dimensions count from the end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include "autograd/dims.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// [begin, end) of one dimension; negative bounds count from its end, bounds beyond it stop there.
struct Slice {
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
};
using Index = std::variant<int64_t, Slice>;

// at(x, {1, Slice{0, 5}}) takes element 1 of the first dimension, which disappears, and elements 0
// to 4 of the second; further dimensions stay whole. Shares x's memory where the result lies in one
// piece or keeps all dimensions; otherwise a copy. An index that is out of range is an
// InvalidArgument.
Tensor at(const Tensor& x, std::span<const Index> places);
inline Tensor at(const Tensor& x, std::initializer_list<Index> places) {
  return at(x, std::span<const Index>(places.begin(), places.size()));
}

// Parts of one shape and dtype, along a new dimension.
Tensor stack(std::span<const Tensor> parts, int dim = 0);
inline Tensor stack(const std::vector<Tensor>& parts, int dim = 0) {
  return stack(std::span<const Tensor>(parts), dim);
}
// x is contiguous for these; the result shares its memory.
Tensor unsqueeze(const Tensor& x, int dim);  // an extent of 1 before dimension `dim`
Tensor squeeze(const Tensor& x, int dim);    // without dimension `dim`, whose extent is 1
Tensor flatten(const Tensor& x, int first = 0, int last = -1);  // dimensions first to last as one
// `before` and `after` elements of `value` at the ends of one dimension. Floats.
Tensor pad(const Tensor& x, int dim, int64_t before, int64_t after, double value = 0.0);
// The elements of one dimension in reverse. A copy.
Tensor flip(const Tensor& x, int dim);

// --- new tensors, without gradients
// begin, begin + step, ... as long as below `end` (above, for a negative step).
Tensor arange(int64_t begin, int64_t end, int64_t step = 1, DType dtype = DType::i64);
inline Tensor arange(int64_t end, DType dtype = DType::i64) { return arange(0, end, 1, dtype); }
// [..., classes]: 1 where the class is the id, else 0; an id outside [0, classes) gives zeros.
// ids: i32 | i64, contiguous.
Tensor one_hot(const Tensor& ids, int64_t classes, DType dtype = DType::f32);
// A mask [rows, cols], u8: 1 where col <= row + diagonal (tril), col >= row + diagonal (triu).
Tensor tril_mask(int64_t rows, int64_t cols, int64_t diagonal = 0);
Tensor triu_mask(int64_t rows, int64_t cols, int64_t diagonal = 0);

}  // namespace zinc::autograd
