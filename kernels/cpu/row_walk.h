// kernels/cpu/row_walk.h: element-wise loops over views of one shape with any outer strides.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/parallel.h"
#include "core/shape.h"
#include "core/view.h"

namespace zinc::kernels::cpu {

// Elements of a thread's turn in an element-wise loop: large against the cost of a turn, small
// against the sizes for which threads pay off.
inline constexpr int64_t kElementGrain = 1 << 14;

// N views of one shape as rows of contiguous elements: dimensions that lie without a gap in all of
// them are merged, so that contiguous views are one row.
template <size_t N>
class RowWalk {
 public:
  // Strides of each view; a stride of 0 repeats it along that dimension.
  RowWalk(const Shape& shape, const std::array<Strides, N>& strides) {
    const int innermost = row_dimension(shape, strides);
    cols_ = innermost < 0 ? 1 : shape[innermost];
    total_ = shape.numel();
    for (size_t v = 0; v < N; ++v) {
      step_[v] = cols_ > 1 && strides[v][static_cast<size_t>(innermost)] == 0 ? 0 : 1;
    }
    for (int i = innermost - 1; i >= 0; --i) {
      const auto d = static_cast<size_t>(i);
      if (shape[i] == 1) continue;
      if (outer_ == 0 && joins(strides, d, cols_, nullptr)) {
        cols_ *= shape[i];
      } else if (outer_ > 0 && joins(strides, d, extent_[last()], &stride_)) {
        extent_[last()] *= shape[i];
      } else {
        extent_[static_cast<size_t>(outer_)] = shape[i];
        for (size_t v = 0; v < N; ++v) stride_[static_cast<size_t>(outer_)][v] = strides[v][d];
        ++outer_;
      }
    }
  }

  int64_t total() const { return total_; }
  int64_t cols() const { return cols_; }
  // The elements of a row are one element of view v.
  bool repeats(size_t v) const { return step_[v] == 0; }

  // Calls body(offsets, n) for runs of n elements that together are the elements [begin, end) in
  // row-major order; offsets[v] is where the run starts in view v, in elements.
  template <class Body>
  void run(int64_t begin, int64_t end, Body&& body) const {
    if (begin >= end) return;
    int64_t row = begin / cols_;
    int64_t col = begin % cols_;
    std::array<int64_t, kMaxRank> index{};
    std::array<int64_t, N> offset{};
    for (size_t d = 0; d < static_cast<size_t>(outer_); ++d) {
      index[d] = row % extent_[d];
      row /= extent_[d];
      for (size_t v = 0; v < N; ++v) offset[v] += index[d] * stride_[d][v];
    }
    while (begin < end) {
      const int64_t n = std::min(cols_ - col, end - begin);
      std::array<int64_t, N> start = offset;
      for (size_t v = 0; v < N; ++v) start[v] += col * step_[v];
      body(start, n);
      begin += n;
      col = 0;
      for (size_t d = 0; d < static_cast<size_t>(outer_); ++d) {
        for (size_t v = 0; v < N; ++v) offset[v] += stride_[d][v];
        if (++index[d] < extent_[d]) break;
        index[d] = 0;
        for (size_t v = 0; v < N; ++v) offset[v] -= extent_[d] * stride_[d][v];
      }
    }
  }

 private:
  using PerView = std::array<int64_t, N>;

  // The dimension along which rows lie: the last with several elements, where every view has them
  // side by side or repeats one; else the last.
  static int row_dimension(const Shape& shape, const std::array<Strides, N>& strides) {
    int d = shape.rank() - 1;
    while (d > 0 && shape[d] == 1) --d;
    for (size_t v = 0; d >= 0 && v < N; ++v) {
      const int64_t stride = strides[v][static_cast<size_t>(d)];
      if (stride != 0 && stride != 1) return shape.rank() - 1;
    }
    return d;
  }
  size_t last() const { return static_cast<size_t>(outer_ - 1); }
  // Dimension d continues what lies inside it: rows of `extent` elements, or of `extent` rows.
  bool joins(const std::array<Strides, N>& strides, size_t d, int64_t extent,
             const std::array<PerView, kMaxRank>* inner) const {
    for (size_t v = 0; v < N; ++v) {
      const int64_t step = inner == nullptr ? step_[v] : (*inner)[last()][v];
      if (strides[v][d] != extent * step) return false;
    }
    return true;
  }

  int64_t total_ = 0;
  int64_t cols_ = 1;
  PerView step_{};  // from one element of a row to the next: 1, or 0 where an element repeats
  int outer_ = 0;   // outer dimensions, innermost first
  std::array<int64_t, kMaxRank> extent_{};
  std::array<PerView, kMaxRank> stride_{};
};

// body(offsets, n) over all elements, in parallel.
template <class Body, class... Views>
void parallel_elements(const Shape& shape, Body&& body, const Views&... views) {
  const RowWalk<sizeof...(Views)> walk(shape, {views.strides()...});
  parallel_for(walk.total(), kElementGrain,
               [&](int64_t begin, int64_t end) { walk.run(begin, end, body); });
}

}  // namespace zinc::kernels::cpu
