// kernels/cpu/row_ids.h: row numbers (token ids) as the kernels that gather and scatter rows use
// them.
#pragma once

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
// Throws InvalidArgument that names the first id outside [0, rows).
void require_rows(std::string_view op, std::string_view name, const ConstView& ids, int64_t rows);

// The places of all ids, sorted by row and then by place, in `workspace`. Ids must lie in
// [0, rows). Radix sort: linear in n, the same for every thread count.
std::span<const RowPlace> order_by_row(const ConstView& ids, int64_t rows, const View& workspace);
// The part of `order` with first <= row < last.
std::span<const RowPlace> places_of_rows(std::span<const RowPlace> order, int64_t first,
                                         int64_t last);

}  // namespace cpu
}  // namespace zinc::kernels
