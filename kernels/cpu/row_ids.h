// kernels/cpu/row_ids.h: row numbers (token ids) as the kernels that gather and scatter rows use
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/view.h"

namespace zinc::kernels {

// Bytes of workspace for order_by_row of n ids.
int64_t row_order_workspace_bytes(int64_t n);

namespace cpu {

// One id with its place; ordered by row, then by place.
struct RowPlace {
  uint32_t row;
  uint32_t place;
};

int64_t id_at(const ConstView& ids, int64_t i);
// Throws InvalidArgument that names the first id outside [0, rows). `allows_absent`: kAbsentRow
// too.
void require_rows(std::string_view op, std::string_view name, const ConstView& ids, int64_t rows,
                  bool allows_absent = false);

// The places of all ids, sorted by row and then by place, in `workspace`. Ids must lie in
// [0, rows); those below 0 are sorted behind all rows. Radix sort: linear in n, the same for every
// thread count.
std::span<const RowPlace> order_by_row(const ConstView& ids, int64_t rows, const View& workspace);
// The part of `order` with first <= row < last.
std::span<const RowPlace> places_of_rows(std::span<const RowPlace> order, int64_t first,
                                         int64_t last);

// Rows lie anywhere in a table, so the hardware foresees none of them: an op asks for the row that
// it reads this many rows later.
inline int64_t rows_ahead(int64_t row_bytes) {
  return std::clamp<int64_t>((int64_t{8} << 10) / (row_bytes + 1), 2, 8);
}

inline void prefetch_row(const std::byte* row, int64_t bytes) {
  constexpr int64_t kLineBytes = 64;
  for (int64_t b = 0; b < bytes; b += kLineBytes) __builtin_prefetch(row + b, 0, 2);
  asm volatile("");  // GCC drops calls of functions that only prefetch, as without effect
}

}  // namespace cpu
}  // namespace zinc::kernels
