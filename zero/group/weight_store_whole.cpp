// Model weights whole on every rank; master weights and states whole or sharded.
#include <algorithm>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/trace_span.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "zero/group/segment_collectives.h"
#include "zero/group/weight_store.h"

namespace zinc::zero {
namespace {

class WholeWeights : public WeightStore {
 public:
  WholeWeights(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
               Context& context, const WeightStoreOptions& options)
      : WeightStore(groups, communicator, context, options, false) {
    for (const ShardGroup& group : groups_) {
      arenas_.push_back(context.allocate(group.bytes(), Label::parameters));
      const Block& arena = arenas_.back();
      kernels::fill({.y = View(arena.data(), DType::u8, Shape{arena.bytes()}, context.device())},
                    context.compute());
    }
    slices_ = optimizer_.slices([this](const Slice& slice) { return stored_view(slice); });
  }

  void begin_pass(bool) override { optimizer_.settle(); }

  ConstView pin(ParameterIndex parameter) override {
    const Placement& placement = at(parameter);
    const ShardGroup& group = group_of(parameter);
    const ConstView values = begin_use(
        parameter, stored_view(group, group.segment(placement.segment), placement.range()));
    ++pinned_;
    return values;
  }
  void unpin(ParameterIndex parameter) noexcept override {
    --pinned_;
    end_use(parameter);
  }
  void end_passes() override {
    bug_check(pinned_ == 0, pinned_, " parameters are still in use at the end of a pass");
  }

  void take_updated(int, Range, const ConstView&, StreamRef) override {
    bug_check(false, "whole weights are on the device");
  }

  Event publish(int index, const std::vector<Event>& updated) override {
    const ShardGroup& group = groups_[static_cast<size_t>(index)];
    if (!options_.shard_optimizer || group.trained_numel() == 0) return {};
    SegmentCollectives collectives(communicator_, context_,
                                   {.bucket_numel = options_.bucket_numel});
    const StreamRef stream = context_.stream(StreamRole::gather);
    stream->wait(context_.compute()->record());
    for (const Event& event : updated) stream->wait(event);
    const int64_t world = communicator_.size();
    const TraceSpan span(context_.trace(), TraceKind::publish, stream, group.name(),
                         group.trained_numel() / world * (world - 1) * size_of(group.dtype()));
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      collectives.all_gather(stored_view(group, segment, optimizer_.owned(segment)),
                             stored_view(group, segment, segment.range()), stream);
    }
    return stream->record();
  }

  void read_master(ParameterIndex parameter, View out) override {
    const ShardGroup& group = group_of(parameter);
    const Placement& placement = at(parameter);
    if (optimizer_.has_master(group) && is_trained(placement.segment)) {
      return optimizer_.read(group, placement, masters(), out);
    }
    kernels::copy(
        {.x = model_view(group, group.segment(placement.segment), placement.range()), .y = out},
        context_.compute());
    context_.compute()->synchronize();
    forget_decoded();
  }

  std::vector<std::pair<autograd::Parameter*, Tensor>> hand_over() override {
    std::vector<std::pair<autograd::Parameter*, Tensor>> values;
    for (const ShardGroup& group : groups_) {
      const auto arena =
          std::make_shared<Block>(std::move(arenas_[static_cast<size_t>(group.index())]));
      for (const Placement& placement : group.placements()) {
        if (is_quantized(placement.segment)) continue;  // there may be no room for them
        const Segment& segment = group.segment(placement.segment);
        const View own =
            segment.encoding.view(*arena, group.byte_of(segment),
                                  placement.range().from(segment.offset), context_.device());
        values.emplace_back(placement.parameter,
                            Tensor::wrap(own.reshape(placement.parameter->shape()), arena));
      }
    }
    return values;
  }

 private:
  View stored_view(const ShardGroup& group, const Segment& segment, Range range) const {
    return segment.encoding.view(arenas_[static_cast<size_t>(group.index())],
                                 group.byte_of(segment), range.from(segment.offset),
                                 context_.device());
  }
  // The model's values. Values of a quantized segment are valid until the next call.
  View model_view(const ShardGroup& group, const Segment& segment, Range range) {
    const View stored = stored_view(group, segment, range);
    return is_quantized(segment.kind) ? decoded(group, range, stored) : stored;
  }
  View stored_view(const Slice& slice) const {
    const ShardGroup& group = group_of(slice);
    return stored_view(group, group.segment(slice.segment), slice.range);
  }
  View master_view(const Slice& slice) override {
    if (is_trained(slice.segment) && optimizer_.has_master(slice)) return optimizer_.master(slice);
    const ShardGroup& group = group_of(slice);
    return model_view(group, group.segment(slice.segment), slice.range);
  }

  std::vector<Range> kept_ranges(const ShardGroup&, const Placement& placement) const override {
    return {placement.range()};
  }

  void store_model(const ShardGroup& group, const Segment& segment, Range range,
                   const ConstView& values) override {
    kernels::copy({.x = values, .y = stored_view(group, segment, range)}, context_.compute());
  }

  std::vector<Block> arenas_;  // by group: ShardGroup::bytes()
  int64_t pinned_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_whole_weights(const std::vector<ShardGroup>& groups,
                                                comm::Communicator& communicator, Context& context,
                                                const WeightStoreOptions& options) {
  return std::make_unique<WholeWeights>(groups, communicator, context, options);
}

}  // namespace zinc::zero
