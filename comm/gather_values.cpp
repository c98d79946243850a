#include "comm/gather_values.h"

#include <algorithm>

#include "core/error.h"
#include "core/transfer.h"

namespace zinc::comm {
namespace {

// Room for [numel] values on the device.
struct Room {
  Block block;
  View view;
  Room(Context& context, DType dtype, int64_t numel)
      : block(context.allocate(numel * size_of(dtype), Label::workspace)),
        view(block.data(), dtype, Shape{numel}, context.device()) {}
};

}  // namespace

std::vector<double> gather_values(World& world, std::span<const double> values) {
  if (world.size() == 1) return {values.begin(), values.end()};
  Context& context = world.context();
  const auto n = static_cast<int64_t>(values.size());
  const Room mine(context, DType::f64, n);
  const Room all(context, DType::f64, n * world.size());
  upload(values.data(), mine.view, context.compute());
  world.communicator().all_gather({.shard = mine.view, .out = all.view}, context.compute()).wait();
  std::vector<double> gathered;
  if (context.device().meta) {
    // Every rank of a phantom world has this one's values.
    for (int rank = 0; rank < world.size(); ++rank) {
      gathered.insert(gathered.end(), values.begin(), values.end());
    }
    return gathered;
  }
  gathered.resize(static_cast<size_t>(all.view.numel()));
  download(all.view, gathered.data(), context.compute());
  return gathered;
}

std::vector<double> last_values(World& world, std::span<const double> values) {
  const std::vector<double> all = gather_values(world, values);
  return {all.end() - static_cast<int64_t>(values.size()), all.end()};
}

bool any_rank(World& world, bool value) {
  const double mine = value ? 1.0 : 0.0;
  const std::vector<double> all = gather_values(world, {&mine, 1});
  return std::any_of(all.begin(), all.end(), [](double flag) { return flag != 0.0; });
}

void require_all_succeeded(World& world, std::string_view operation,
                           const std::exception_ptr& failure) {
  const double mine = failure != nullptr ? 1.0 : 0.0;
  const std::vector<double> all = gather_values(world, {&mine, 1});
  if (failure != nullptr) std::rethrow_exception(failure);
  const auto first = std::find_if(all.begin(), all.end(), [](double flag) { return flag != 0.0; });
  if (first != all.end()) throw PeerFailed(operation, static_cast<int>(first - all.begin()));
}

std::string share_text(World& world, std::string_view text) {
  const auto mine = static_cast<double>(text.size());
  const auto length = static_cast<int64_t>(gather_values(world, {&mine, 1}).front());
  if (length == 0) return {};
  std::string shared(static_cast<size_t>(length), '\0');
  if (world.is_main()) shared = text;
  Context& context = world.context();
  const Room room(context, DType::u8, length);
  upload(shared.data(), room.view, context.compute());
  world.communicator().broadcast({.inout = room.view, .root = 0}, context.compute()).wait();
  download(room.view, shared.data(), context.compute());
  return shared;
}

}  // namespace zinc::comm
