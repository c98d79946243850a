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

bool is_whole(const UpdatedRange& slice) { return slice.segment == SegmentKind::whole; }

// Gradients, and the steps of whole parameters.
class StepInputs final : public TileInputs {
 public:
  StepInputs(GradientStore& gradients, const WholePhase* whole)
      : gradients_(gradients), whole_(whole) {}
  ConstView gradient(const OwnedRange& slice) override {
    if (slice.segment == SegmentKind::whole) return whole_->values(slice);
    return gradients_.gradient(slice);
  }
  bool has_arrived(int group) override { return gradients_.has_arrived(group); }
  void await(int group, StreamRef stream) override { gradients_.await(group, stream); }

 private:
  GradientStore& gradients_;
  const WholePhase* const whole_;
};

// Of a round that reads weights and states alone.
class NoInputs final : public TileInputs {
 public:
  ConstView gradient(const OwnedRange&) override { return {}; }
  bool has_arrived(int) override { return true; }
  void await(int, StreamRef) override {}
};

}  // namespace

WeightUpdate::WeightUpdate(WeightStore& weights, GatheredWeights& gathered,
                           GradientStore& gradients, const ShardGroups& groups,
                           comm::Communicator& communicator, Context& context,
                           const WeightUpdateOptions& options)
    : options_(options),
      weights_(weights),
      gathered_(gathered),
      gradients_(gradients),
      groups_(groups),
      communicator_(communicator),
      context_(context),
      places_(options.order.size()),
      next_publish_(options.order.size()),
      next_join_(options.order.size()),
      published_(options.order.size()) {
  for (size_t place = 0; place < options_.order.size(); ++place) {
    places_[options_.order[place]] = place;
  }
  make_directions();
  make_update();
  make_model();
}

void WeightUpdate::make_directions() {
  if (options_.whole_windows.empty()) return;
  const bool host_tiles = !options_.on_device;
  whole_ = std::make_unique<WholePhase>(
      *options_.whole_rule, groups_,
      std::vector<OwnedRange>(weights_.slices().begin(), weights_.slices().end()), communicator_,
      context_,
      WholePhaseOptions{
          .windows = options_.whole_windows, .parts = options_.parts, .host_tiles = host_tiles});
  std::ranges::copy_if(weights_.slices(), std::back_inserter(direct_.slices), is_whole);
  const bool reads_weights = options_.whole_rule->measures().weights;
  for (UpdatedRange& slice : direct_.slices) {
    slice.model_weights = {};
    if (!reads_weights) slice.weights = {};
  }
  const auto take = [&](Tier tier) {
    direct_.processors.push_back(
        std::make_unique<DirectionTiles>(weights_, context_, tier, *whole_));
    return direct_.processors.back().get();
  };
  TileUpdate* const on_device = take(Tier::device);
  const bool has_host = host_tiles && tier_of_most(direct_.slices) != Tier::device;
  SwappedTilesOptions swap = options_.swap;
  // States and master weights of whole parameters are tiles of their own. Without states, master
  // weights stand in for them.
  swap.writes = options_.whole_rule->num_states() > 0;
  swap.is_in_round = [has_states = swap.writes](const Tile& tile) {
    return tile.segment == SegmentKind::whole && tile.planes.has(kMasterPlane) != has_states;
  };
  swap.reads_master = reads_weights;
  make_drivers(direct_, gradients_, on_device, has_host ? take(Tier::pinned_host) : nullptr, swap);
}

void WeightUpdate::make_update() {
  inputs_ = std::make_unique<StepInputs>(gradients_, whole_.get());
  update_.slices = weights_.slices();
  for (UpdatedRange& slice : update_.slices) {
    if (is_whole(slice)) slice.states = {};
  }
  const std::vector<UpdatedRange> on_host = computed(true, update_.slices, options_.on_device);
  auto device = std::make_unique<DeviceTileUpdate>(
      weights_, computed(false, update_.slices, options_.on_device), context_, tile_numel(),
      whole_.get());
  std::unique_ptr<HostTileUpdate> host;
  if (!on_host.empty()) {
    host =
        std::make_unique<HostTileUpdate>(weights_, on_host, context_, tile_numel(), whole_.get());
  }
  SwappedTilesOptions swap = options_.swap;
  swap.is_in_round = [](const Tile& tile) { return tile.planes.has(kMasterPlane); };
  const optim::WholeRule* const rule = options_.whole_rule;
  if (rule != nullptr && (rule->measures().weights || rule->num_states() == 0)) {
    swap.is_read_before = [](const Tile& tile) { return tile.segment == SegmentKind::whole; };
  }
  swap.reads_gradient = [](const Tile& tile) { return tile.segment != SegmentKind::whole; };
  make_drivers(update_, *inputs_, device.get(), host.get(), swap);
  update_.processors.push_back(std::move(device));
  if (host) update_.processors.push_back(std::move(host));
}

void WeightUpdate::make_model() {
  if (!options_.apart) return;
  no_inputs_ = std::make_unique<NoInputs>();
  model_.slices = weights_.slices();
  const auto take = [&](bool on_host) -> TileUpdate* {
    const std::vector<UpdatedRange> slices = computed(on_host, model_.slices, options_.on_device);
    if (slices.empty()) return nullptr;
    const Tier tier = on_host ? Tier::pinned_host : Tier::device;
    model_.processors.push_back(
        std::make_unique<ModelTiles>(weights_, slices, context_, tier, tile_numel()));
    return model_.processors.back().get();
  };
  TileUpdate* const on_device = take(false);
  TileUpdate* const on_host = take(true);
  SwappedTilesOptions swap = options_.swap;
  swap.gradients = nullptr;
  swap.writes = false;
  make_drivers(model_, *no_inputs_, on_device, on_host, swap);
}

int64_t WeightUpdate::tile_numel() const {
  return (options_.tile_numel + kNormChunk - 1) / kNormChunk * kNormChunk;
}

void WeightUpdate::make_drivers(Round& round, TileInputs& inputs, TileUpdate* on_device,
                                TileUpdate* on_host, const SwappedTilesOptions& swap) {
  const std::vector<UpdatedRange>& slices = round.slices;
  const Tier tier = tier_of_most(slices);
  const TileOptions tiles{
      .order = options_.order, .tile_numel = tile_numel(), .changes_weights = &round == &update_};
  const auto add = [&](std::unique_ptr<TileDriver> driver) {
    round.drivers.push_back(std::move(driver));
  };
  const bool has_device = std::ranges::any_of(
      slices, [](const UpdatedRange& slice) { return slice.tier == Tier::device; });
  if (tier == Tier::device || (has_device && whole_ != nullptr)) {
    add(std::make_unique<DeviceTiles>(inputs, slices, *on_device, tiles));
  } else if (has_device) {
    add(std::make_unique<DevicePart>(inputs, slices, *on_device, tiles));
  }
  if (tier == Tier::device) return;
  if (options_.on_device) {
    add(std::make_unique<StreamedTiles>(inputs, slices, context_, *on_device, tiles));
  } else if (tier == Tier::nvme) {
    add(std::make_unique<SwappedTiles>(inputs, slices, context_, *on_host, swap));
  } else {
    add(std::make_unique<HostTiles>(inputs, slices, context_, *on_host, tiles));
  }
}

WeightUpdate::~WeightUpdate() {
  // An abandoned update still uses memory that is freed next.
  try {
    for (const auto& driver : direct_.drivers) driver->abandon();
    for (const auto& driver : update_.drivers) driver->abandon();
    for (const auto& driver : model_.drivers) driver->abandon();
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
    is_skipped_ = kind == Kind::skipped;
    if (is_under_way_) begin_tiles(kind == Kind::during_backward);
  });
}

void WeightUpdate::update_all() {
  begin_tiles(false);
  is_under_way_ = true;
  for (const std::vector<int>& window : options_.whole_windows) {
    for (const int group : window) direct(group);
    transform(window.back());
  }
  is_under_way_ = false;
  end_tiles();
}

void WeightUpdate::direct(int group) {
  guarded([&] {
    if (!is_under_way_) return;
    const std::vector<int>& open = whole_->groups_in_window();
    if (std::ranges::find(open, group) == open.end()) {
      close_window();
      whole_->open(group);
      // Its memory belongs to the compute stream, which may still use what lay there before.
      for (const auto& processor : direct_.processors) {
        order(context_.compute(), processor->stream());
      }
    }
    for (const auto& driver : direct_.drivers) driver->update(group);
  });
}

void WeightUpdate::transform(int group) {
  guarded([&] {
    if (is_skipped_) return whole_->rehearse(group, args_->rules);
    if (!is_under_way_) return;
    for (const int directed : whole_->groups_in_window()) {
      for (const auto& driver : direct_.drivers) driver->finish(directed);
    }
    for (const auto& processor : direct_.processors) {
      order(processor->stream(), context_.compute());
    }
    whole_->transform(group, *args_);
    for (const auto& processor : update_.processors) {
      order(context_.compute(), processor->stream());
    }
  });
}

void WeightUpdate::close_window() {
  for (const int group : whole_->groups_in_window()) {
    for (const auto& driver : update_.drivers) driver->finish(group);
  }
  for (const auto& processor : update_.processors) order(processor->stream(), context_.compute());
  for (const auto& processor : update_.processors) processor->updated().finish();
}

void WeightUpdate::update(int group) {
  guarded([&] {
    // A later forward pass of the step runs the same ops. The group may have new gradients then.
    if (!is_under_way_ || places_[group] < next_publish_) return;
    for (const auto& driver : update_.drivers) driver->update(group);
  });
}

void WeightUpdate::publish_until(size_t end) {
  for (; next_publish_ < std::min(end, options_.order.size()); ++next_publish_) {
    const int group = options_.order[next_publish_];
    std::vector<Event>& events = published_[next_publish_];
    for (const auto& driver : update_.drivers) {
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
    for (const auto& driver : direct_.drivers) driver->advance();
    for (const auto& driver : update_.drivers) driver->advance();
  });
}

void WeightUpdate::end_step() {
  if (whole_ != nullptr && is_skipped_) whole_->close();
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

void WeightUpdate::write_model(const StepArguments& args, bool evaluated) {
  finish();
  bug_check(!model_.drivers.empty() || model_.slices.empty(), "this rule's weights are one");
  args_.emplace(args);
  guarded([&] {
    for (const auto& processor : model_.processors) {
      static_cast<ModelTiles&>(*processor).set_evaluated(evaluated);
      // Passes may still read the model's copy.
      order(context_.compute(), processor->stream());
    }
    gathered_.expect_updates(/*skipped=*/false);
    for (auto driver = model_.drivers.rbegin(); driver != model_.drivers.rend(); ++driver) {
      (*driver)->begin(*args_, /*during_backward=*/false);
    }
    for (const int group : options_.order) {
      std::vector<Event> events;
      for (const auto& driver : model_.drivers) {
        for (Event& event : driver->finish(group)) events.push_back(std::move(event));
      }
      events.push_back(gathered_.publish(group, events));
      for (const Event& event : events) context_.compute()->wait(event);
    }
    for (const auto& driver : model_.drivers) driver->end();
    weights_.settle_updates();
    args_.reset();
  });
}

void WeightUpdate::settle_gradients() {
  for (const auto& driver : direct_.drivers) driver->settle_gradients();
  for (const auto& driver : update_.drivers) driver->settle_gradients();
}

// The last driver first: the CPU gets its factor before the device gets work.
void WeightUpdate::begin_tiles(bool during_backward) {
  for (Round* const round : {&direct_, &update_}) {
    for (auto driver = round->drivers.rbegin(); driver != round->drivers.rend(); ++driver) {
      (*driver)->begin(*args_, during_backward);
    }
  }
}

void WeightUpdate::end_tiles() {
  for (const auto& driver : direct_.drivers) driver->end();
  for (const auto& driver : update_.drivers) driver->end();
  if (whole_ != nullptr) whole_->close();
}

}  // namespace zinc::zero
