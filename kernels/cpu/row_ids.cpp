#include "kernels/cpu/row_ids.h"

#include <algorithm>
#include <array>

#include "kernels/embedding.h"

namespace zinc::kernels {

int64_t row_order_workspace_bytes(int64_t n) {
  return 2 * n * static_cast<int64_t>(sizeof(cpu::RowPlace));
}

namespace cpu {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;

// One stable counting pass by the digit at `shift`.
void sort_by_digit(const RowPlace* in, RowPlace* out, int64_t n, int shift) {
  std::array<int64_t, kDigits> first{};
  const auto digit = [&](const RowPlace& entry) {
    return (entry.row >> shift) & static_cast<uint32_t>(kDigits - 1);
  };
  for (int64_t i = 0; i < n; ++i) ++first[digit(in[i])];
  int64_t sum = 0;
  for (int64_t& count : first) {
    const int64_t mine = count;
    count = sum;
    sum += mine;
  }
  for (int64_t i = 0; i < n; ++i) out[first[digit(in[i])]++] = in[i];
}

}  // namespace

int64_t id_at(const ConstView& ids, int64_t i) {
  return ids.dtype() == DType::i32 ? ids.data_as<int32_t>()[i] : ids.data_as<int64_t>()[i];
}

void require_rows(std::string_view op, std::string_view name, const ConstView& ids, int64_t rows,
                  bool allows_absent) {
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = id_at(ids, i);
    if (allows_absent && id == kAbsentRow) continue;
    require(id >= 0 && id < rows, op, ": ", name, "[", i, "] is ", id, ", outside [0, ", rows, ")");
  }
}

std::span<const RowPlace> order_by_row(const ConstView& ids, int64_t rows, const View& workspace) {
  const int64_t n = ids.numel();
  auto* from = static_cast<RowPlace*>(workspace.data());
  RowPlace* to = from + n;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = id_at(ids, i);
    from[i] = {static_cast<uint32_t>(id < 0 ? rows : id), static_cast<uint32_t>(i)};
  }
  for (int shift = 0; shift < 32 && rows >> shift > 0; shift += kDigitBits) {
    sort_by_digit(from, to, n, shift);
    std::swap(from, to);
  }
  return {from, static_cast<size_t>(n)};
}

std::span<const RowPlace> places_of_rows(std::span<const RowPlace> order, int64_t first,
                                         int64_t last) {
  const auto before = [](const RowPlace& entry, int64_t row) { return int64_t{entry.row} < row; };
  const auto begin = std::lower_bound(order.begin(), order.end(), first, before);
  const auto end = std::lower_bound(begin, order.end(), last, before);
  return {begin, end};
}

}  // namespace cpu
}  // namespace zinc::kernels
