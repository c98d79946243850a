#include "zero/update/tile_drivers.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/transfer.h"

namespace zinc::zero {

SliceTiles::SliceTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices, Tier tier,
                       TileUpdate& update, TileOptions options)
    : inputs_(inputs), update_(update), options_(std::move(options)) {
  for (const UpdatedRange& slice : slices) {
    if (slice.tier == tier) slices_.push_back({&slice});
  }
}

void SliceTiles::begin(const StepArguments& args, bool) {
  update_.begin(args);
  for (Slice& slice : slices_) slice.is_updated = false;
}

std::vector<Event> SliceTiles::finish(int group) {
  update_group(group);
  return update_.updated().sent();
}

void SliceTiles::end() {
  update_all();
  update_.updated().finish();
}

void SliceTiles::update_group(int group) {
  for (Slice& slice : slices_) {
    if (slice.of->group == group) update_slice(slice);
  }
}

void SliceTiles::update_all() {
  for (const int group : options_.order) update_group(group);
}

void SliceTiles::update_slice(Slice& of) {
  if (std::exchange(of.is_updated, true)) return;
  const UpdatedRange& slice = *of.of;
  const bool stays = slice.tier == Tier::device && slice.model_tier == Tier::device;
  const int64_t most = stays ? slice.range.size() : options_.tile_numel;
  for (int64_t begin = slice.range.begin; begin < slice.range.end; begin += most) {
    const Range tile{begin, std::min(begin + most, slice.range.end)};
    const auto part = [&](const View& view) {
      return view ? view.narrow(0, tile.begin - slice.range.begin, tile.size()) : view;
    };
    optim::Update update{.weights = part(slice.weights),
                         .gradient = inputs_.gradient(slice.part(tile))};
    for (size_t i = 0; i < slice.states.size(); ++i) {
      if (!slice.states[i]) continue;
      update.states[i] = slice.encodings[i].part(slice.states[i], tile.from(slice.range.begin));
    }
    update_tile(slice, tile, update);
  }
}

void SliceTiles::update_tile(const UpdatedRange& slice, Range tile,
                             const optim::Update& in_memory) {
  update_.compute(slice, tile, in_memory);
}

DeviceTiles::DeviceTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices,
                         TileUpdate& update, TileOptions options)
    : SliceTiles(inputs, slices, Tier::device, update, std::move(options)) {}

DevicePart::DevicePart(TileInputs& inputs, const std::vector<UpdatedRange>& slices,
                       TileUpdate& update, TileOptions options)
    : SliceTiles(inputs, slices, Tier::device, update, std::move(options)) {}

void DevicePart::begin(const StepArguments& args, bool during_backward) {
  SliceTiles::begin(args, during_backward);
  is_left_ = true;
  if (!during_backward) end();
}

std::vector<Event> DevicePart::finish(int) {
  end();
  return {};
}

void DevicePart::end() {
  if (std::exchange(is_left_, false)) SliceTiles::end();
}

HostTiles::HostTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices, Context& context,
                     TileUpdate& update, TileOptions options)
    : SliceTiles(inputs, slices, Tier::pinned_host, update, std::move(options)),
      context_(context),
      never_waits_(update.stream() != context.compute() &&
                   std::ranges::none_of(slices, [](const UpdatedRange& slice) {
                     return slice.model_tier == Tier::nvme;
                   })) {}

void HostTiles::begin(const StepArguments& args, bool during_backward) {
  SliceTiles::begin(args, during_backward);
  ready_.clear();
}

void HostTiles::update(int group) {
  ready_.push_back(group);
  advance();
}

void HostTiles::advance() {
  while (!ready_.empty() && (never_waits_ || inputs().has_arrived(ready_.front()))) {
    inputs().await(ready_.front(), tile_update().stream());
    update_group(ready_.front());
    ready_.pop_front();
  }
}

std::vector<Event> HostTiles::finish(int group) {
  inputs().await(group, tile_update().stream());
  std::erase(ready_, group);
  return SliceTiles::finish(group);
}

void HostTiles::end() {
  // The compute stream has waited for the gradients.
  order(context_.compute(), tile_update().stream());
  SliceTiles::end();
}

StreamedTiles::StreamedTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices,
                             Context& context, TileUpdate& update, TileOptions options)
    : SliceTiles(inputs, slices, Tier::pinned_host, update, std::move(options)), context_(context) {
  int64_t bytes = 0;
  for (const UpdatedRange& slice : slices) {
    if (slice.tier == Tier::device) continue;
    // A gradient is at most as wide as master weights.
    int64_t each = size_of(slice.model_dtype == DType::f64 ? DType::f64 : DType::f32);
    if (slice.weights) each += size_of(slice.weights.dtype());
    const int64_t numel = std::min(this->options().tile_numel, slice.range.size());
    int64_t of_states = 0;
    for (size_t i = 0; i < slice.states.size(); ++i) {
      if (slice.states[i]) of_states += slice.encodings[i].bytes_of(numel);
    }
    bytes = std::max(bytes, numel * each + of_states);
  }
  for (Room& room : rooms_) room.memory = context.allocate(bytes, Label::staging);
}

void StreamedTiles::begin(const StepArguments& args, bool during_backward) {
  SliceTiles::begin(args, during_backward);
  bug_check(!during_backward, "an update on the device runs in the step");
  // The gradients are ready for work on the compute stream, which may still use the rooms.
  order(context_.compute(), context_.stream(StreamRole::copy_in));
}

void StreamedTiles::update_tile(const UpdatedRange& slice, Range tile,
                                const optim::Update& in_memory) {
  next_room_ = 1 - next_room_;
  Room& room = rooms_[next_room_];
  std::byte* place = static_cast<std::byte*>(room.memory.data());
  const StreamRef in = context_.stream(StreamRole::copy_in);
  in->wait(room.left);
  const auto bring = [&](const ConstView& values) {
    if (!values) return View();
    const View there(place, values.dtype(), values.shape(), context_.device());
    place += values.bytes();
    transfer(values, there, in);
    return there;
  };
  optim::Update update{.weights = bring(in_memory.weights)};
  for (size_t i = 0; i < update.states.size(); ++i) update.states[i] = bring(in_memory.states[i]);
  update.gradient = in_memory.gradient;
  if (in_memory.gradient && in_memory.gradient.tier() != Tier::device) {
    update.gradient = bring(in_memory.gradient);
  }
  order(in, context_.compute());
  tile_update().compute(slice, tile, update);

  const StreamRef out = context_.stream(StreamRole::copy_out);
  order(context_.compute(), out);
  const auto send_back = [&](const ConstView& values, const View& to) {
    if (values) transfer(values, to, out);
  };
  if (options().changes_weights) send_back(update.weights, in_memory.weights);
  for (size_t i = 0; i < update.states.size(); ++i) {
    send_back(update.states[i], in_memory.states[i]);
  }
  room.left = out->record();
}

}  // namespace zinc::zero
