// core/tensor_slice.h: a part of a tensor along one dimension, as each of the ranks that share a
// layer holds one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/shape.h"
#include "core/view.h"

namespace zinc {

// Rows (or columns, ...) of a whole tensor: pieces of one dimension, one behind the other. A packed
// weight of queries, keys and values has three pieces, most others one.
struct TensorSlice {
  struct Piece {
    int64_t begin = 0;  // in the whole
    int64_t count = 0;
  };

  Shape whole;
  int dim = 0;
  std::vector<int64_t> sections;  // sizes of the dimension's sections, each sliced by itself
  int64_t index = 0, count = 1;   // this slice is number `index` of `count`
  std::vector<Piece> pieces;      // one of each section

  // Part `index` of `count` of every section of the dimension. Where `count` does not divide a
  // section, some parts, the first among them, have one more. A part of `count` consists of whole
  // parts of any multiple of `count`. `sections`: sizes that add up to the dimension.
  static TensorSlice of(const Shape& whole, int dim, const std::vector<int64_t>& sections,
                        int64_t index, int64_t count) {
    TensorSlice slice{whole, dim, sections, index, count, {}};
    int64_t at = 0;
    for (const int64_t size : sections) {
      const int64_t least = size / count, more = size % count;
      const auto begin_of = [&](int64_t part) {
        return part * least + (part * more + count - 1) / count;
      };
      slice.pieces.push_back({at + begin_of(index), begin_of(index + 1) - begin_of(index)});
      at += size;
    }
    require(at == whole.dim(dim), "slice: sections of ", at, " for the shape ", whole,
            " along dimension ", dim);
    return slice;
  }

  // Another of the slices that make up the whole.
  TensorSlice at(int64_t other) const { return of(whole, dim, sections, other, count); }

  Shape shape() const {
    int64_t extent = 0;
    for (const Piece& piece : pieces) extent += piece.count;
    Shape local = whole;
    local.set(dim, extent);
    return local;
  }

  // Elements [begin, end) of the slice, flat row-major, as runs that are contiguous in slice and
  // whole: visit(first element in the slice, first element in the whole, how many).
  template <class Visit>
  void for_each_run(int64_t begin, int64_t end, const Visit& visit) const {
    int64_t inner = 1;  // elements behind one index of the dimension
    for (int d = dim + 1; d < whole.rank(); ++d) inner *= whole[d];
    int64_t extent = 0;
    for (const Piece& piece : pieces) extent += piece.count;
    const int64_t row = extent * inner;
    for (int64_t at = begin; at < end;) {
      const int64_t outer = at / row;
      int64_t place = at % row;
      int64_t first = 0;  // first element of the piece in the slice's row
      for (const Piece& piece : pieces) {
        const int64_t length = piece.count * inner;
        if (place < first + length) {
          const int64_t in_piece = place - first;
          const int64_t count = std::min(length - in_piece, end - at);
          visit(at, (outer * whole[dim] + piece.begin) * inner + in_piece, count);
          at += count;
          break;
        }
        first += length;
      }
    }
  }

  // Elements [begin, end) of the whole, as runs that one of its slices has: visit(index of the
  // slice, first element in it, first in the whole, how many).
  template <class Visit>
  static void for_each_run_of_whole(const std::vector<TensorSlice>& slices, int64_t begin,
                                    int64_t end, const Visit& visit) {
    const TensorSlice& any = slices.front();
    int64_t inner = 1;
    for (int d = any.dim + 1; d < any.whole.rank(); ++d) inner *= any.whole[d];
    const int64_t row = any.whole[any.dim] * inner;
    for (int64_t at = begin; at < end;) {
      const int64_t outer = at / row, place = at % row;
      const int64_t index = place / inner;
      int64_t done = 0;
      for (size_t i = 0; i < slices.size() && done == 0; ++i) {
        const int64_t extent = slices[i].shape()[any.dim];
        slices[i].for_each_piece([&](int64_t first, const Piece& piece) {
          if (index < piece.begin || index >= piece.begin + piece.count) return;
          const int64_t left = (piece.begin + piece.count) * inner - place;
          done = std::min(left, end - at);
          visit(i, (outer * extent + first - piece.begin) * inner + place, at, done);
        });
      }
      require(done > 0, "slice: no slice has element ", at, " of the whole");
      at += done;
    }
  }

  // visit(first index in the slice's dimension, piece), piece by piece.
  template <class Visit>
  void for_each_piece(const Visit& visit) const {
    int64_t at = 0;
    for (const Piece& piece : pieces) {
      visit(at, piece);
      at += piece.count;
    }
  }

  friend bool operator==(const TensorSlice& a, const TensorSlice& b) {
    return a.whole == b.whole && a.dim == b.dim && a.sections == b.sections && a.index == b.index &&
           a.count == b.count;
  }
};

// Fills `out`, [n], with flat elements [begin, begin + n) of the slice. The caller's `read` reads
// the whole: read(first element in the whole, part of `out`).
template <class Read>
void read_slice(const std::optional<TensorSlice>& slice, int64_t begin, const View& out,
                const Read& read) {
  if (!slice) return read(begin, out);
  slice->for_each_run(begin, begin + out.numel(), [&](int64_t at, int64_t in_whole, int64_t count) {
    read(in_whole, out.narrow(0, at - begin, count));
  });
}

}  // namespace zinc
