#include "zero/group/reducer.h"

namespace zinc::zero {
namespace {

// Reductions that may hold their source buffers while backward goes on.
constexpr size_t kMostHeld = 2;

}  // namespace

Reducer::Reducer(comm::Communicator& communicator, Context& context, PhaseClock& clock,
                 const ReducerOptions& options)
    : communicator_(communicator),
      context_(context),
      clock_(clock),
      options_(options),
      collectives_(communicator, context,
                   {.dtype = options.policy.wire,
                    .bucket_numel = options.bucket_numel,
                    .divisor = options.wire_divisor}) {}

int64_t Reducer::sent_bytes(const ShardGroup& group, DType dtype) const {
  if (waits_for_step()) return options_.signs->sent_bytes(group);
  const int64_t world = communicator_.size();
  return group.trained_numel() / world * (world - 1) * size_of(dtype);
}

Block Reducer::take(int64_t numel, DType dtype) const {
  return context_.allocate(numel * size_of(dtype), Label::gradients);
}

StreamRef Reducer::begin() {
  const StreamRef stream = context_.stream(StreamRole::reduce);
  order(context_.compute(), stream);
  clock_.begin_reduction(stream);
  return stream;
}

void Reducer::end() { clock_.end_reduction(context_.stream(StreamRole::reduce)); }

comm::Work Reducer::all_reduce(const ShardGroup& group, const View& values, StreamRef stream) {
  if (waits_for_step()) return options_.signs->reduce(group, values, /*all=*/true, stream);
  return collectives_.all_reduce(values, stream);
}

comm::Work Reducer::reduce_scatter(const ShardGroup& group, const View& values,
                                   const ShardOf& shard, bool accumulate, StreamRef stream) {
  if (waits_for_step()) return options_.signs->reduce(group, values, /*all=*/false, stream);
  comm::Work last;
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    last = collectives_.reduce_scatter(values.narrow(0, segment.offset, segment.size),
                                       shard(segment), accumulate, stream);
  }
  return last;
}

comm::Work Reducer::all_gather(const ShardGroup& group, const ShardOf& shard, const View& out,
                               StreamRef stream) {
  comm::Work last;
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    last = collectives_.all_gather(shard(segment), out.narrow(0, segment.offset, segment.size),
                                   stream);
  }
  return last;
}

void Reducer::hold(comm::Work work, Block buffer) {
  held_.emplace_back(std::move(work), std::move(buffer));
}

void Reducer::let_go() {
  while (held_.size() > kMostHeld) let_go_of_oldest();
}

void Reducer::let_go_of_all() {
  while (!held_.empty()) let_go_of_oldest();
}

void Reducer::let_go_of_oldest() {
  held_.front().first.wait_on(context_.compute());
  held_.pop_front();
}

}  // namespace zinc::zero
