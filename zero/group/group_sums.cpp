#include "zero/group/group_sums.h"

#include <utility>

#include "kernels/fill.h"

namespace zinc::zero {

View GroupSums::whole(const Block& block, DType dtype) const {
  return {block.data(), dtype, Shape{block.bytes() / size_of(dtype)}, reducer_.context().device()};
}

View GroupSums::target(int64_t place) {
  Block& block = written(place);
  const bool is_new = !block;
  if (is_new) block = reducer_.take(group_.trained_numel(), policy().written);
  const View values = whole(block, policy().written);
  if (!is_new) return values;
  std::vector<TensorSlice::Piece> gaps;
  for (const Range& gap : group_.trained_gaps()) gaps.push_back({gap.begin, gap.size()});
  if (gaps.empty()) return values;
  const View all = values.narrow(0, 0, group_.trained_numel());
  kernels::fill({.y = all, .pieces = std::move(gaps)}, reducer_.context().compute());
  return values;
}

void GroupSums::discard() {
  for (Block& block : written_) block.reset();
}

}  // namespace zinc::zero
