#include "zero/gather_values.h"

#include <algorithm>

#include "core/error.h"
#include "tensor/tensor.h"

namespace zinc::zero {

std::vector<double> gather_values(comm::World& world, std::span<const double> values) {
  if (world.size() == 1) return {values.begin(), values.end()};
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

std::vector<double> last_values(comm::World& world, std::span<const double> values) {
  const std::vector<double> all = gather_values(world, values);
  return {all.end() - static_cast<int64_t>(values.size()), all.end()};
}

bool any_rank(comm::World& world, bool value) {
  const double mine = value ? 1.0 : 0.0;
  const std::vector<double> all = gather_values(world, {&mine, 1});
  return std::any_of(all.begin(), all.end(), [](double flag) { return flag != 0.0; });
}

void require_all_succeeded(comm::World& world, std::string_view operation,
                           const std::exception_ptr& failure) {
  const double mine = failure != nullptr ? 1.0 : 0.0;
  const std::vector<double> all = gather_values(world, {&mine, 1});
  if (failure != nullptr) std::rethrow_exception(failure);
  const auto first = std::find_if(all.begin(), all.end(), [](double flag) { return flag != 0.0; });
  if (first != all.end()) throw PeerFailed(operation, static_cast<int>(first - all.begin()));
}

std::string share_text(comm::World& world, std::string_view text) {
  const auto mine = static_cast<double>(text.size());
  const auto length = static_cast<int64_t>(gather_values(world, {&mine, 1}).front());
  if (length == 0) return {};
  std::vector<int64_t> codes(static_cast<size_t>(length));
  if (world.is_main()) std::copy(text.begin(), text.end(), codes.begin());
  const Tensor shared =
      Tensor::from<int64_t>(std::span<const int64_t>(codes), {length}, DType::i32);
  world.communicator()
      .broadcast({.inout = shared.view(), .root = 0}, world.context().compute())
      .wait();
  codes = shared.to_vector<int64_t>();
  std::string result;
  for (const int64_t code : codes) result.push_back(static_cast<char>(code));
  return result;
}

}  // namespace zinc::zero
