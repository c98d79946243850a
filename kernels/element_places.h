// kernels/element_places.h: where the elements of a slice of a parameter lie in the whole
// parameter.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/host_device.h"
#include "core/tensor_slice.h"

namespace zinc::kernels {

// A row of the slice is made of pieces of a row of the whole. Both are flat, in row-major order.
struct ElementPlaces {
  static constexpr int kMostPieces = 4;
  struct Run {
    int64_t end = 0;    // in a row of the slice
    int64_t shift = 0;  // place in the row of the whole less the place in a row of the slice
  };

  int64_t row = 0;        // elements of a row of the slice; 0: nothing is sliced
  int64_t whole_row = 0;  // elements of a row of the whole
  int num_pieces = 0;
  Run pieces[kMostPieces] = {};

  // Throws InvalidArgument where the slice has more than kMostPieces pieces.
  static ElementPlaces of(const TensorSlice& slice) {
    require(slice.pieces.size() <= static_cast<size_t>(kMostPieces), "element places: a slice of ",
            slice.pieces.size(), " pieces; at most ", kMostPieces, " are known");
    int64_t inner = 1;
    for (int d = slice.dim + 1; d < slice.whole.rank(); ++d) inner *= slice.whole[d];
    ElementPlaces places{.whole_row = slice.whole[slice.dim] * inner};
    for (const TensorSlice::Piece& piece : slice.pieces) {
      const int64_t shift = piece.begin * inner - places.row;
      places.row += piece.count * inner;
      places.pieces[places.num_pieces++] = {places.row, shift};
    }
    return places;
  }

  // The place in the whole of an element of the slice. Ascending.
  ZINC_HOST_DEVICE int64_t place(int64_t element) const {
    if (row == 0) return element;
    const int64_t outer = element / row;
    const int64_t in_row = element - outer * row;
    int i = 0;
    while (i + 1 < num_pieces && in_row >= pieces[i].end) ++i;
    return outer * whole_row + in_row + pieces[i].shift;
  }
  // How many of the `most` elements from `element` on lie side by side in the whole.
  int64_t run(int64_t element, int64_t most) const {
    if (row == 0) return most;
    const int64_t in_row = element % row;
    int i = 0;
    while (i + 1 < num_pieces && in_row >= pieces[i].end) ++i;
    const int64_t left = pieces[i].end - in_row;
    return left < most ? left : most;
  }
};

}  // namespace zinc::kernels
