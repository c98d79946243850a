#include "zero/update/tile_update.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/copy.h"

namespace zinc::zero {
namespace {

// Elements [begin, begin + numel) of a view [n], or an absent view.
template <class AnyView>
AnyView part_of(const AnyView& view, int64_t begin, int64_t numel) {
  return view ? view.narrow(0, begin, numel) : view;
}

// The update of one part of `range`, a tile of the slice, cut out of the update of all of it.
optim::Update part_of(const UpdatedRange& slice, const optim::Update& whole, Range range,
                      const UpdateRules::RuledRange& of) {
  const int64_t begin = of.range.begin - range.begin;
  optim::Update part = whole;
  part.site = of.site;
  part.first_element = of.first_element;
  part.places = of.places;
  part.scalars = of.scalars;
  part.weights = part_of(whole.weights, begin, of.range.size());
  part.gradient = part_of(whole.gradient, begin, of.range.size());
  part.model_weights = part_of(whole.model_weights, begin, of.range.size());
  part.direction = part_of(whole.direction, begin, of.range.size());
  for (size_t i = 0; i < part.states.size(); ++i) {
    if (!part.states[i]) continue;
    part.states[i] = slice.encodings[i].part(whole.states[i], of.range.from(range.begin));
  }
  return part;
}

}  // namespace

UpdatedWeights::UpdatedWeights(WeightStore& weights, const std::vector<UpdatedRange>& slices,
                               Context& context, Tier tier, int64_t tile_numel, bool apart)
    : weights_(weights),
      context_(context),
      tier_(tier),
      stream_(tier == Tier::device ? context.compute() : host_stream(context)) {
  int64_t bytes = 0;
  for (const UpdatedRange& slice : slices) {
    const bool stays = slice.model_tier == Tier::device && tier == Tier::device;
    if ((!slice.is_rounded && !apart) || stays) continue;
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

void TileUpdate::issue(const UpdatedRange& slice, Range tile, const optim::Update& update,
                       const Rule& rule) {
  args().rules.gate().wait(slice.group, tile, context_.trace());
  for (const UpdateRules::RuledRange& part : args().rules.ranges(slice.group, tile)) {
    rule(part_of(slice, update, tile, part), part);
  }
}

void TileUpdate::issue(const UpdatedRange& slice, Range tile, const optim::Update& update) {
  const optim::Optimizer& optimizer = args().optimizer;
  issue(slice, tile, update, [&](const optim::Update& part, const UpdateRules::RuledRange& of) {
    if (slice.segment != SegmentKind::whole) return optimizer.update(part, of.hyper, stream());
    optim::Update step = part;
    step.factor = {};
    step.states = {};
    step.scalars = of.whole_scalars;
    if (whole_->measures()) {
      step.sums = whole_->sums(slice.group, of.range);
      step.rates = whole_->rates(slice.group, of.range, updated_.tier());
    }
    optimizer.whole_rule()->apply(step, of.hyper, stream());
  });
}

DeviceTileUpdate::DeviceTileUpdate(WeightStore& weights, const std::vector<UpdatedRange>& slices,
                                   Context& context, int64_t tile_numel, const WholePhase* whole)
    : TileUpdate(context, {weights, slices, context, Tier::device, tile_numel}, whole) {}

Event DeviceTileUpdate::compute(const UpdatedRange& slice, Range tile, optim::Update update) {
  const bool is_in_place = slice.model_tier == Tier::device;
  if (!is_in_place && slice.is_rounded) {
    update.model_weights = updated().buffer(slice, tile.size());
  } else if (is_in_place && slice.model_weights) {
    update.model_weights =
        slice.model_weights.narrow(0, tile.begin - slice.range.begin, tile.size());
  }
  update.factor = args().factor;
  update.skip = args().skip;
  update.step = args().step;
  bug_check(is_in_place || !update.skip, "a skipped update would send what is in the buffer");
  issue(slice, tile, update);
  if (is_in_place) return {};
  return updated().send(update.model_weights ? update.model_weights : update.weights, slice, tile);
}

FactorCopy::FactorCopy(Context& context, Tier tier) : context_(context) {
  if (tier == Tier::device || context.device().is_cpu()) return;
  block_ = context.allocate(size_of(DType::f32), Label::staging, Tier::pinned_host);
}

// On a GPU the CPU's stream runs all later work after the work that was issued to the compute
// stream.
void FactorCopy::take(const ConstView& factor, StreamRef stream) {
  factor_ = factor;
  if (!block_) return;
  const View copy(block_.data(), DType::f32, factor.shape(), context_.device(), Tier::pinned_host);
  order(context_.compute(), stream);
  transfer(factor, copy, stream);
  factor_ = host_memory(copy);
}

HostTileUpdate::HostTileUpdate(WeightStore& weights, const std::vector<UpdatedRange>& slices,
                               Context& context, int64_t tile_numel, const WholePhase* whole)
    : TileUpdate(context, {weights, slices, context, Tier::pinned_host, tile_numel}, whole),
      factor_(context, Tier::pinned_host) {}

void HostTileUpdate::begin(const StepArguments& args) {
  TileUpdate::begin(args);
  factor_.take(args.factor, stream());
}

Event HostTileUpdate::compute(const UpdatedRange& slice, Range tile, optim::Update update) {
  bug_check(!args().skip, "a skipped update would send what is in the buffer");
  if (slice.is_rounded) update.model_weights = updated().buffer(slice, tile.size());
  const View sent = update.model_weights ? update.model_weights : update.weights;
  update.factor = factor_.get();
  update.step = args().step;
  update.weights = host_memory(update.weights);
  update.gradient = host_memory(update.gradient);
  update.model_weights = host_memory(update.model_weights);
  for (View& state : update.states) state = host_memory(state);
  issue(slice, tile, update);
  return updated().send(sent, slice, tile);
}

DirectionTiles::DirectionTiles(WeightStore& weights, Context& context, Tier tier,
                               const WholePhase& directions)
    : TileUpdate(context, {weights, {}, context, tier, 1}, &directions),
      directions_(directions),
      factor_(context, tier) {}

void DirectionTiles::begin(const StepArguments& args) {
  TileUpdate::begin(args);
  factor_.take(args.factor, stream());
}

Event DirectionTiles::compute(const UpdatedRange& slice, Range tile, optim::Update update) {
  update.factor = factor_.get();
  update.skip = args().skip;
  update.step = args().step;
  const optim::WholeRule& rule = *args().optimizer.whole_rule();
  update.weights = rule.measures().weights ? host_memory(update.weights) : View();
  update.gradient = host_memory(update.gradient);
  update.direction = host_memory(directions_.values(slice.part(tile)));
  for (View& state : update.states) state = host_memory(state);
  issue(slice, tile, update, [&](const optim::Update& part, const UpdateRules::RuledRange& of) {
    optim::Update direct = part;
    direct.scalars = of.whole_scalars;
    rule.direct(direct, of.hyper, stream());
  });
  if (directions_.measures()) {
    directions_.measure(slice.part(tile), update.weights, update.direction, stream());
  }
  return {};
}

ModelTiles::ModelTiles(WeightStore& weights, const std::vector<UpdatedRange>& slices,
                       Context& context, Tier tier, int64_t tile_numel)
    : TileUpdate(context, {weights, slices, context, tier, tile_numel, /*apart=*/true}, nullptr),
      tier_(tier) {}

Event ModelTiles::compute(const UpdatedRange& slice, Range tile, optim::Update update) {
  const bool is_in_place = tier_ == Tier::device && slice.model_tier == Tier::device;
  const View copy = is_in_place
                        ? slice.model_weights.narrow(0, tile.begin - slice.range.begin, tile.size())
                        : updated().buffer(slice, tile.size());
  const auto where_computed = [&](const View& view) {
    return tier_ == Tier::device ? view : host_memory(view);
  };
  update.weights = where_computed(update.weights);
  update.model_weights = where_computed(copy);
  for (View& state : update.states) state = where_computed(state);
  issue(slice, tile, update, [&](const optim::Update& part, const UpdateRules::RuledRange& of) {
    if (evaluated_) return args().optimizer.evaluated(part, of.hyper, stream());
    kernels::copy({.x = part.weights, .y = part.model_weights}, stream());
  });
  if (is_in_place) return {};
  return updated().send(copy, slice, tile);
}

}  // namespace zinc::zero
