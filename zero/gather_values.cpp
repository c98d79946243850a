#include "zero/gather_values.h"

#include <algorithm>

#include "tensor/tensor.h"

namespace zinc::zero {

std::vector<double> gather_values(comm::World& world, std::span<const double> values) {
  const auto n = static_cast<int64_t>(values.size());
  const Tensor mine = Tensor::from<double>(values, {n});
  const Tensor all = Tensor::empty({n * world.size()}, DType::f64, Label::workspace);
  world.communicator()
      .all_gather({.shard = mine.view(), .out = all.view()}, world.context().compute())
      .wait();
  if (world.context().device().meta) {
    // Every rank of a phantom world has this one's values.
    std::vector<double> same;
    for (int rank = 0; rank < world.size(); ++rank) {
      same.insert(same.end(), values.begin(), values.end());
    }
    return same;
  }
  return all.to_vector<double>();
}

bool any_rank(comm::World& world, bool value) {
  const double mine = value ? 1.0 : 0.0;
  const std::vector<double> all = gather_values(world, {&mine, 1});
  return std::any_of(all.begin(), all.end(), [](double flag) { return flag != 0.0; });
}

}  // namespace zinc::zero
