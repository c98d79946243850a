#include "zero/update/weight_update.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"

namespace zinc::zero {
namespace {

bool is_narrow(const UpdatedRange& slice) { return is_16bit_float(slice.model_dtype); }

Tier tier_of_most(const std::vector<UpdatedRange>& slices) {
  const auto away = std::ranges::find_if(
      slices, [](const UpdatedRange& slice) { return slice.tier != Tier::device; });
  return away == slices.end() ? Tier::device : away->tier;
}

// The slices whose update is computed on the host, or on the device.
std::vector<UpdatedRange> computed(bool on_host, const std::vector<UpdatedRange>& slices,
                                   bool all_on_device) {
  std::vector<UpdatedRange> found;
  std::ranges::copy_if(slices, std::back_inserter(found), [&](const UpdatedRange& slice) {
    return (slice.tier != Tier::device && !all_on_device) == on_host;
  });
  return found;
}

// Elements [begin, begin + numel) of a view [n], or an absent view.
template <class AnyView>
AnyView part_of(const AnyView& view, int64_t begin, int64_t numel) {
  return view ? view.narrow(0, begin, numel) : view;
}

// The update of one part of `range`, cut out of the update of all of it.
optim::Update part_of(const optim::Update& whole, Range range, const UpdateRules::RuledRange& of) {
  const int64_t begin = of.range.begin - range.begin;
  optim::Update part = whole;
  part.site = of.site;
  part.first_element = of.first_element;
  part.places = of.places;
  part.scalars = of.scalars;
  part.weights = part_of(whole.weights, begin, of.range.size());
  part.gradient = part_of(whole.gradient, begin, of.range.size());
  part.model_weights = part_of(whole.model_weights, begin, of.range.size());
  for (View& state : part.states) state = part_of(state, begin, of.range.size());
  return part;
}

}  // namespace

UpdatedWeights::UpdatedWeights(WeightStore& weights, const std::vector<UpdatedRange>& slices,
                               Context& context, Tier tier, int64_t tile_numel)
    : weights_(weights),
      context_(context),
      tier_(tier),
      stream_(tier == Tier::device ? context.compute() : host_stream(context)) {
  int64_t bytes = 0;
  for (const UpdatedRange& slice : slices) {
    const bool stays = slice.model_tier == Tier::device && tier == Tier::device;
    if (!is_narrow(slice) || stays) continue;
    bytes = std::max(bytes, std::min(tile_numel, slice.range.size()) * size_of(slice.model_dtype));
  }
  if (bytes == 0) return;
  for (Block& block : blocks_) block = context.allocate(bytes, Label::staging, tier);
}

View UpdatedWeights::buffer(const UpdatedRange& slice, int64_t numel) {
  next_ = 1 - next_;
  stream_->wait(sent_[next_]);
  return {blocks_[next_].data(), slice.model_dtype, Shape{numel}, context_.device(), tier_};
}

Event UpdatedWeights::send(const ConstView& values, const UpdatedRange& slice, Range range) {
  if (slice.model_tier == Tier::nvme) {
    weights_.take_updated(slice.group, range, values, stream_);
    return lanes_[2] = sent_[next_] = stream_->record();
  }
  const bool to_device = slice.model_tier == Tier::device;
  const StreamRef stream = context_.stream(to_device ? StreamRole::copy_in : StreamRole::copy_out);
  order(stream_, stream);
  transfer(values, slice.model_weights.narrow(0, range.begin - slice.range.begin, range.size()),
           stream);
  return lanes_[to_device ? 0 : 1] = sent_[next_] = stream->record();
}

std::vector<Event> UpdatedWeights::sent() const {
  std::vector<Event> events;
  for (const Event& event : lanes_) {
    if (event.state() != nullptr) events.push_back(event);
  }
  return events;
}

void UpdatedWeights::finish() {
  order(stream_, context_.compute());
  order(context_.stream(StreamRole::copy_in), context_.compute());
  order(context_.stream(StreamRole::copy_out), context_.compute());
  lanes_ = {};
}

WeightUpdate::WeightUpdate(WeightStore& weights, GradientStore& gradients, Context& context,
                           const WeightUpdateOptions& options)
    : options_(options),
      weights_(weights),
      gradients_(gradients),
      context_(context),
      slices_(weights.slices()),
      places_(options.order.size()),
      tier_(tier_of_most(slices_)),
      tile_numel_((options.tile_numel + kNormChunk - 1) / kNormChunk * kNormChunk),
      device_(weights, computed(false, slices_, options.on_device), context, Tier::device,
              tile_numel_),
      next_publish_(options.order.size()),
      next_join_(options.order.size()),
      published_(options.order.size()) {
  for (size_t place = 0; place < options_.order.size(); ++place) {
    places_[options_.order[place]] = place;
  }
  if (tier_ == Tier::device) return;
  if (options_.on_device) {
    make_rooms();
    return;
  }
  host_.emplace(weights, computed(true, slices_, false), context, Tier::pinned_host, tile_numel_);
  never_waits_ = host_->stream() != context.compute() &&
                 std::ranges::none_of(slices_, [](const UpdatedRange& slice) {
                   return slice.model_tier == Tier::nvme;
                 });
  if (!context.device().is_cpu()) {
    host_factor_block_ = context.allocate(size_of(DType::f32), Label::staging, Tier::pinned_host);
  }
  if (tier_ != Tier::nvme) return;
  swapped_ = std::make_unique<SwappedTiles>(
      gradients, slices_, context, options_.swap,
      [this](const UpdatedRange& slice, Range tile, const optim::Update& update) {
        return compute(slice, tile, update);
      });
}

WeightUpdate::~WeightUpdate() {
  // An abandoned update still uses memory that is freed next.
  if (!on_host()) return;
  try {
    host_->finish();
  } catch (...) {
    // The stream has failed. Its next use reports the error.
  }
}

void WeightUpdate::make_rooms() {
  int64_t bytes = 0;
  for (const UpdatedRange& slice : slices_) {
    if (slice.tier == Tier::device) continue;
    // Weights, states, and a gradient that is at most as wide as weights.
    const DType wide = slice.weights.dtype();
    const int64_t each =
        2 * size_of(wide) + options_.states.count * size_of(options_.states.dtype(wide));
    bytes = std::max(bytes, std::min(tile_numel_, slice.range.size()) * each);
  }
  for (Room& room : rooms_) room.memory = context_.allocate(bytes, Label::staging);
}

template <class Work>
void WeightUpdate::guarded(const Work& work) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (!args_) return;
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void WeightUpdate::begin(const StepArguments& args, Kind kind) {
  finish();
  args_.emplace(args);
  guarded([&] {
    next_publish_ = 0;
    next_join_ = 0;
    // During backward passes still use the old weights.
    if (kind != Kind::during_backward) weights_.expect_updates(kind == Kind::skipped);
    is_under_way_ = kind == Kind::in_step || kind == Kind::during_backward;
    if (is_under_way_) begin_tiles(kind == Kind::during_backward);
  });
}

void WeightUpdate::update_all() {
  begin_tiles(false);
  end_tiles();
}

void WeightUpdate::update(int group) {
  guarded([&] {
    // A later forward pass of the step runs the same ops. The group may have new gradients then.
    if (!is_under_way_ || places_[group] < next_publish_) return;
    if (swapped_ != nullptr) return swapped_->update(group);
    ready_.push_back(group);
    issue_ready();
  });
}

void WeightUpdate::publish_until(size_t end) {
  for (; next_publish_ < std::min(end, options_.order.size()); ++next_publish_) {
    const int group = options_.order[next_publish_];
    std::vector<Event>& events = published_[next_publish_];
    if (is_under_way_) events = finish_group(group);
    events.push_back(weights_.publish(group, events));
  }
}

void WeightUpdate::publish(int group) {
  guarded([&] { publish_until(places_[group] + 1); });
}

void WeightUpdate::join(int group) {
  guarded([&] {
    for (const size_t place = places_[group]; next_join_ <= place; ++next_join_) {
      publish_until(next_join_ + 1);
      for (const Event& event : published_[next_join_]) context_.compute()->wait(event);
      published_[next_join_].clear();
      gradients_.discard_host(options_.order[next_join_]);
    }
    end_where_done();
  });
}

void WeightUpdate::advance() {
  guarded([&] {
    if (is_under_way_) issue_ready();
  });
}

void WeightUpdate::end_step() {
  if (next_join_ < options_.order.size()) return gradients_.discard_all_but_host();
  finish_own();
  gradients_.discard();
}

void WeightUpdate::finish_own() {
  guarded([&] {
    if (std::exchange(is_under_way_, false)) {
      end_tiles();
      weights_.settle_updates();
    }
    // From next_join_ on, gradients are not needed any more. Groups before it may already have new
    // ones.
    for (size_t place = next_join_; place < options_.order.size(); ++place) {
      gradients_.discard_host(options_.order[place]);
    }
    end_where_done();
  });
}

void WeightUpdate::end_where_done() {
  if (!is_under_way_ && next_join_ == options_.order.size()) args_.reset();
}

void WeightUpdate::finish() {
  if (!options_.order.empty()) join(options_.order.back());
  finish_own();
}

void WeightUpdate::settle_gradients() {
  if (swapped_ != nullptr) swapped_->settle_gradients();
}

void WeightUpdate::begin_tiles(bool during_backward) {
  bug_check(!during_backward || on_host(), "an update on the device runs in the step");
  is_updated_.assign(slices_.size(), false);
  ready_.clear();
  if (on_host()) take_factor();
  if (swapped_ != nullptr) swapped_->begin();
  if (swapped_ != nullptr && !during_backward) order(context_.compute(), host_->stream());
  // The gradients are ready for work on the compute stream, which may still use the rooms.
  if (options_.on_device) order(context_.compute(), context_.stream(StreamRole::copy_in));
  is_device_part_left_ = tier_ == Tier::pinned_host;
  if (!during_backward) update_device_part();
}

// The factor in memory that the CPU reads. On a GPU its stream runs all later work after the work
// that was issued to the compute stream.
void WeightUpdate::take_factor() {
  host_factor_ = args_->factor;
  if (!host_factor_block_) return;
  const View copy(host_factor_block_.data(), DType::f32, args_->factor.shape(), context_.device(),
                  Tier::pinned_host);
  order(context_.compute(), host_->stream());
  transfer(args_->factor, copy, host_->stream());
  host_factor_ = host_memory(copy);
}

void WeightUpdate::issue_ready() {
  if (swapped_ != nullptr) return swapped_->advance();
  while (!ready_.empty() && (never_waits_ || gradients_.has_arrived(ready_.front()))) {
    if (on_host()) gradients_.await(ready_.front(), host_->stream());
    update_group(ready_.front());
    ready_.pop_front();
  }
}

std::vector<Event> WeightUpdate::finish_group(int group) {
  if (swapped_ != nullptr) {
    swapped_->finish(group);
  } else {
    update_device_part();
    if (on_host()) gradients_.await(group, host_->stream());
    std::erase(ready_, group);
    update_group(group);
  }
  return (on_host() ? *host_ : device_).sent();
}

void WeightUpdate::end_tiles() {
  // The compute stream has waited for the gradients.
  if (on_host()) order(context_.compute(), host_->stream());
  if (swapped_ != nullptr) {
    swapped_->end();
  } else {
    update_device_part();
    for (const int group : options_.order) update_group(group);
  }
  (on_host() ? *host_ : device_).finish();
}

void WeightUpdate::update_device_part() {
  if (!std::exchange(is_device_part_left_, false)) return;
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (slices_[i].tier == Tier::device) update_slice(i);
  }
  device_.finish();
}

void WeightUpdate::update_group(int group) {
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (slices_[i].group == group && slices_[i].tier == tier_) update_slice(i);
  }
}

void WeightUpdate::update_slice(size_t index) {
  if (is_updated_[index]) return;
  is_updated_[index] = true;
  const UpdatedRange& slice = slices_[index];
  const bool stays = slice.tier == Tier::device && slice.model_tier == Tier::device;
  const int64_t most = stays ? slice.range.size() : tile_numel_;
  for (int64_t begin = slice.range.begin; begin < slice.range.end; begin += most) {
    update_tile(slice, {begin, std::min(begin + most, slice.range.end)});
  }
}

void WeightUpdate::update_tile(const UpdatedRange& slice, Range tile) {
  const auto part = [&](const View& view) {
    return view.narrow(0, tile.begin - slice.range.begin, tile.size());
  };
  optim::Update update{.weights = part(slice.weights),
                       .gradient = gradients_.gradient(slice.part(tile))};
  for (size_t i = 0; i < static_cast<size_t>(options_.states.count); ++i) {
    update.states[i] = part(slice.states[i]);
  }
  if (slice.tier != Tier::device && options_.on_device) {
    update_in_room(slice, tile, update);
  } else {
    compute(slice, tile, update);
  }
}

// While a tile is updated, the next one comes in and the one before leaves.
void WeightUpdate::update_in_room(const UpdatedRange& slice, Range tile,
                                  const optim::Update& in_host) {
  next_room_ = 1 - next_room_;
  Room& room = rooms_[next_room_];
  std::byte* place = static_cast<std::byte*>(room.memory.data());
  const StreamRef in = context_.stream(StreamRole::copy_in);
  in->wait(room.left);
  const auto bring = [&](const ConstView& values) {
    const View there(place, values.dtype(), values.shape(), context_.device());
    place += values.bytes();
    transfer(values, there, in);
    return there;
  };
  const auto num_states = static_cast<size_t>(options_.states.count);
  optim::Update update{.weights = bring(in_host.weights)};
  for (size_t i = 0; i < num_states; ++i) update.states[i] = bring(in_host.states[i]);
  update.gradient = bring(in_host.gradient);
  order(in, context_.compute());
  compute(slice, tile, update);

  const StreamRef out = context_.stream(StreamRole::copy_out);
  order(context_.compute(), out);
  transfer(update.weights, in_host.weights, out);
  for (size_t i = 0; i < num_states; ++i) transfer(update.states[i], in_host.states[i], out);
  room.left = out->record();
}

Event WeightUpdate::compute(const UpdatedRange& slice, Range tile, optim::Update update) {
  const bool in_host = on_host() && slice.tier != Tier::device;
  UpdatedWeights& updated = in_host ? *host_ : device_;
  const bool is_in_place = !in_host && slice.model_tier == Tier::device;
  if (!is_in_place && is_narrow(slice)) {
    update.model_weights = updated.buffer(slice, tile.size());
  } else if (is_in_place && slice.model_weights) {
    update.model_weights =
        slice.model_weights.narrow(0, tile.begin - slice.range.begin, tile.size());
  }
  const View sent = update.model_weights ? update.model_weights : update.weights;
  update.factor = args_->factor;
  update.skip = args_->skip;
  update.step = args_->step;
  bug_check(is_in_place || !update.skip, "a skipped update would send what is in the buffer");
  if (in_host) {
    update.factor = host_factor_;
    update.weights = host_memory(update.weights);
    update.gradient = host_memory(update.gradient);
    update.model_weights = host_memory(update.model_weights);
    for (View& state : update.states) state = host_memory(state);
  }
  args_->rules.gate().wait(slice.group, tile, context_.trace());
  for (const UpdateRules::RuledRange& part : args_->rules.ranges(slice.group, tile)) {
    args_->optimizer.update(part_of(update, tile, part), part.hyper, updated.stream());
  }
  return is_in_place ? Event() : updated.send(sent, slice, tile);
}

}  // namespace zinc::zero
