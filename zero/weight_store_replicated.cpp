// Everything whole on every rank.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "zero/weight_store.h"

namespace zinc::zero {
namespace {

// Elements that are read from a weight source at a time where they need converting.
constexpr int64_t kReadElements = int64_t{1} << 20;

class ReplicatedWeights : public WeightStore {
 public:
  ReplicatedWeights(const std::vector<ShardGroup>& groups, Context& context,
                    const nn::WeightSource& source, const WeightStoreOptions& options)
      : groups_(groups), context_(context), options_(options), arenas_(groups.size()) {
    for (const ShardGroup& group : groups_) make_arena(group);
    for (const ShardGroup& group : groups_) {
      for (const Placement& placement : group.placements()) load(group, placement, source);
    }
  }

  ConstView pin(ParameterIndex parameter) override {
    ++pinned_;
    const Placement& placement = at(parameter);
    return model_view(arena(parameter), placement.range()).reshape(placement.parameter->shape());
  }
  void unpin(ParameterIndex) noexcept override { --pinned_; }
  int64_t num_pinned() const override { return pinned_; }

  std::vector<UpdateSlice> slices() override {
    std::vector<UpdateSlice> slices;
    for (const ShardGroup& group : groups_) {
      Arena& arena = arenas_[static_cast<size_t>(group.index())];
      for (const Segment& segment : group.segments()) {
        if (!is_trained(segment.kind)) continue;
        UpdateSlice slice{
            .group = group.index(), .segment = segment.kind, .range = segment.range()};
        slice.weights = optimizer_view(arena, segment.range());
        if (arena.master) slice.model_weights = model_view(arena, segment.range());
        for (int i = 0; i < options_.num_states; ++i) {
          slice.states[static_cast<size_t>(i)] = state_view(arena, i, segment.range());
        }
        slices.push_back(slice);
      }
    }
    return slices;
  }
  void publish() override {}

  void read_master(ParameterIndex parameter, View out) override {
    const Placement& placement = at(parameter);
    const View values = is_trained(placement.segment)
                            ? optimizer_view(arena(parameter), placement.range())
                            : model_view(arena(parameter), placement.range());
    kernels::copy({.x = values, .y = out}, context_.compute());
    context_.compute()->synchronize();
  }

  void read_state(ParameterIndex parameter, int state, View out) override {
    const Placement& placement = at(parameter);
    require(is_trained(placement.segment), "parameter '", placement.parameter->name(),
            "' is frozen and has no optimizer state");
    kernels::copy({.x = state_view(arena(parameter), state, placement.range()), .y = out},
                  context_.compute());
    context_.compute()->synchronize();
  }

  void write_master(ParameterIndex parameter, ConstView values) override {
    const Placement& placement = at(parameter);
    Arena& target = arena(parameter);
    if (target.master && is_trained(placement.segment)) {
      kernels::copy({.x = values, .y = optimizer_view(target, placement.range())},
                    context_.compute());
    }
    kernels::copy({.x = values, .y = model_view(target, placement.range())}, context_.compute());
    context_.compute()->synchronize();
  }

 private:
  struct Arena {
    DType dtype = DType::f32;   // of the model
    DType wide = DType::f32;    // of master weights and states
    Block model;                // [numel]
    Block master;               // [trained_numel]; absent where the model's own dtype is wide
    std::vector<Block> states;  // [trained_numel] each
  };

  const Placement& at(ParameterIndex parameter) const {
    return groups_[static_cast<size_t>(parameter.group)]
        .placements()[static_cast<size_t>(parameter.position)];
  }
  Arena& arena(ParameterIndex parameter) { return arenas_[static_cast<size_t>(parameter.group)]; }

  View view_of(const Block& block, DType dtype, Range range) const {
    return View(block.data(), dtype, Shape{block.bytes() / size_of(dtype)}, context_.device())
        .narrow(0, range.begin, range.size());
  }
  View model_view(const Arena& arena, Range range) const {
    return view_of(arena.model, arena.dtype, range);
  }
  View optimizer_view(const Arena& arena, Range range) const {
    return arena.master ? view_of(arena.master, arena.wide, range) : model_view(arena, range);
  }
  View state_view(const Arena& arena, int state, Range range) const {
    return view_of(arena.states[static_cast<size_t>(state)], arena.wide, range);
  }

  Block zeros(int64_t numel, DType dtype, Label label) {
    Block block = context_.allocate(numel * size_of(dtype), label);
    kernels::fill({.y = view_of(block, dtype, {0, numel})}, context_.compute());
    return block;
  }

  void make_arena(const ShardGroup& group) {
    Arena& arena = arenas_[static_cast<size_t>(group.index())];
    arena.dtype = group.dtype();
    arena.wide = group.dtype() == DType::f64 ? DType::f64 : DType::f32;
    arena.model = zeros(group.numel(), arena.dtype, Label::parameters);
    if (arena.dtype != arena.wide) {
      arena.master = zeros(group.trained_numel(), arena.wide, Label::optimizer);
    }
    for (int i = 0; i < options_.num_states; ++i) {
      arena.states.push_back(zeros(group.trained_numel(), arena.wide, Label::optimizer));
    }
  }

  void load(const ShardGroup& group, const Placement& placement, const nn::WeightSource& source) {
    Arena& arena = arenas_[static_cast<size_t>(group.index())];
    const Range range = placement.range();
    if (context_.device().meta) return;
    context_.compute()->synchronize();
    Block room;
    View wide;
    const bool converted = arena.dtype != arena.wide && !is_trained(placement.segment);
    if (converted) {
      room = context_.allocate(std::min(range.size(), kReadElements) * size_of(arena.wide),
                               Label::staging);
    }
    for (int64_t begin = 0; begin < range.size(); begin += kReadElements) {
      const int64_t length = std::min(kReadElements, range.size() - begin);
      const Range piece{range.begin + begin, range.begin + begin + length};
      wide = converted ? view_of(room, arena.wide, {0, length}) : optimizer_view(arena, piece);
      source.read(*placement.parameter, begin, wide);
      if (arena.dtype != arena.wide) {
        kernels::copy({.x = wide, .y = model_view(arena, piece)}, context_.compute());
      }
      if (converted) context_.compute()->synchronize();
    }
  }

  const std::vector<ShardGroup>& groups_;
  Context& context_;
  const WeightStoreOptions options_;
  std::vector<Arena> arenas_;
  int64_t pinned_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_replicated_weights(const std::vector<ShardGroup>& groups,
                                                     Context& context,
                                                     const nn::WeightSource& source,
                                                     const WeightStoreOptions& options) {
  return std::make_unique<ReplicatedWeights>(groups, context, source, options);
}

}  // namespace zinc::zero
