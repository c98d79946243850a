#include "zero/update/weight_update.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::zero {
namespace {

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

}  // namespace

WeightUpdate::WeightUpdate(WeightStore& weights, GatheredWeights& gathered,
                           GradientStore& gradients, Context& context,
                           const WeightUpdateOptions& options)
    : options_(options),
      weights_(weights),
      gathered_(gathered),
      gradients_(gradients),
      context_(context),
      places_(options.order.size()),
      next_publish_(options.order.size()),
      next_join_(options.order.size()),
      published_(options.order.size()) {
  for (size_t place = 0; place < options_.order.size(); ++place) {
    places_[options_.order[place]] = place;
  }
  make_drivers();
}

void WeightUpdate::make_drivers() {
  const std::vector<UpdatedRange>& slices = weights_.slices();
  const Tier tier = tier_of_most(slices);
  const TileOptions tiles{
      .order = options_.order,
      .states = options_.states,
      .tile_numel = (options_.tile_numel + kNormChunk - 1) / kNormChunk * kNormChunk};
  device_ = std::make_unique<DeviceTileUpdate>(
      weights_, computed(false, slices, options_.on_device), context_, tiles.tile_numel);
  if (tier == Tier::device) {
    drivers_.push_back(std::make_unique<DeviceTiles>(gradients_, slices, *device_, tiles));
    return;
  }
  const bool is_split = std::ranges::any_of(
      slices, [](const UpdatedRange& slice) { return slice.tier == Tier::device; });
  if (is_split) {
    drivers_.push_back(std::make_unique<DevicePart>(gradients_, slices, *device_, tiles));
  }
  if (options_.on_device) {
    drivers_.push_back(
        std::make_unique<StreamedTiles>(gradients_, slices, context_, *device_, tiles));
    return;
  }
  host_ = std::make_unique<HostTileUpdate>(weights_, computed(true, slices, false), context_,
                                           tiles.tile_numel);
  if (tier == Tier::nvme) {
    drivers_.push_back(
        std::make_unique<SwappedTiles>(gradients_, slices, context_, *host_, options_.swap));
  } else {
    drivers_.push_back(std::make_unique<HostTiles>(gradients_, slices, context_, *host_, tiles));
  }
}

WeightUpdate::~WeightUpdate() {
  // An abandoned update still uses memory that is freed next.
  try {
    for (const auto& driver : drivers_) driver->abandon();
  } catch (...) {
    // The stream has failed. Its next use reports the error.
  }
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
    if (kind != Kind::during_backward) gathered_.expect_updates(kind == Kind::skipped);
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
    for (const auto& driver : drivers_) driver->update(group);
  });
}

void WeightUpdate::publish_until(size_t end) {
  for (; next_publish_ < std::min(end, options_.order.size()); ++next_publish_) {
    const int group = options_.order[next_publish_];
    std::vector<Event>& events = published_[next_publish_];
    for (const auto& driver : drivers_) {
      if (!is_under_way_) break;
      for (Event& event : driver->finish(group)) events.push_back(std::move(event));
    }
    events.push_back(gathered_.publish(group, events));
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
      gradients_.discard_away(options_.order[next_join_]);
    }
    end_where_done();
  });
}

void WeightUpdate::advance() {
  guarded([&] {
    if (!is_under_way_) return;
    for (const auto& driver : drivers_) driver->advance();
  });
}

void WeightUpdate::end_step() {
  if (next_join_ < options_.order.size()) return gradients_.discard_on_device();
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
      gradients_.discard_away(options_.order[place]);
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
  for (const auto& driver : drivers_) driver->settle_gradients();
}

// The last driver first: the CPU gets its factor before the device gets work.
void WeightUpdate::begin_tiles(bool during_backward) {
  for (auto driver = drivers_.rbegin(); driver != drivers_.rend(); ++driver) {
    (*driver)->begin(*args_, during_backward);
  }
}

void WeightUpdate::end_tiles() {
  for (const auto& driver : drivers_) driver->end();
}

}  // namespace zinc::zero
