#include "zero/group/shard_sums.h"

#include <cstddef>
#include <utility>

#include "core/error.h"
#include "core/trace_span.h"
#include "kernels/accumulate.h"

namespace zinc::zero {

comm::Work TreeOfSums::add(Block& kept, comm::Work work, const MicroBatchTurn& turn,
                           StreamRef stream) {
  const auto values = [&](const Block& block) {
    const DType dtype = reducer_.policy().kept;
    return View(block.data(), dtype, Shape{block.bytes() / size_of(dtype)},
                reducer_.context().device());
  };
  subtrees_.push_back({.sum = std::exchange(kept, Block())});
  const auto mergeable = [&] {
    const size_t n = subtrees_.size();
    return n >= 2 &&
           (turn.is_last() || subtrees_[n - 2].micro_batches == subtrees_[n - 1].micro_batches);
  };
  while (mergeable()) {
    Subtree right = std::move(subtrees_.back());
    subtrees_.pop_back();
    Subtree& left = subtrees_.back();
    kernels::accumulate({.x = values(right.sum), .accumulator = values(left.sum)}, stream);
    left.micro_batches += right.micro_batches;
    work = comm::Work(stream->record());
    reducer_.hold(work, std::move(right.sum));
  }
  if (turn.is_last()) {
    kept = std::move(subtrees_.back().sum);
    subtrees_.clear();
  }
  return work;
}

ShardSums::ShardSums(const ShardGroup& group, Reducer& reducer, std::unique_ptr<ShardOrder> order)
    : GroupSums(group, reducer), order_(std::move(order)) {}

comm::Work ShardSums::reduce(const MicroBatchTurn& turn) {
  if (!kept_) kept_ = reducer().take(reducer().shard_numel(group()), policy().kept);
  const StreamRef stream = reducer().begin();
  bring(turn, stream);
  const TraceSpan span(reducer().context().trace(), TraceKind::reduce, stream, group().name(),
                       reducer().sent_bytes(group(), policy().wire));
  comm::Work work = scatter(turn, kept_, policy().kept, order_->adds(turn), stream);
  set_work(order_->add(kept_, std::move(work), turn, stream));
  comm::Work reduced = this->work();
  leave(turn);
  reducer().let_go();
  return reduced;
}

comm::Work ShardSums::scatter(const MicroBatchTurn& turn, const Block& shards, DType dtype,
                              bool accumulate, StreamRef stream) {
  Block& from = written(turn.place);
  comm::Work work = reducer().reduce_scatter(
      group(), whole(from, policy().written),
      [&](const Segment& segment) { return shard_of(shards, dtype, segment); }, accumulate, stream);
  reducer().hold(work, reducer().stays() ? Block() : std::exchange(from, Block()));
  return work;
}

View ShardSums::shard_of(const Block& shards, DType dtype, const Segment& segment) const {
  const int64_t begin = reducer().place(segment);
  return part(shards, dtype, {begin, begin + reducer().own(segment).size()});
}

SumsAway::OnDevice ShardSums::ranges_of(const Block& shards, DType dtype) const {
  return [this, &shards, dtype](SegmentKind kind, Range range) {
    const Segment& segment = group().segment(kind);
    return shard_of(shards, dtype, segment)
        .narrow(0, range.begin - reducer().own(segment).begin, range.size());
  };
}

View ShardSums::on_device(const OwnedRange& slice) {
  bug_check(static_cast<bool>(kept_), "the gradient of group ", group().name(), " is not there");
  return part(kept_, policy().kept, {slice.place, slice.place + slice.range.size()});
}

void ShardSums::discard() {
  GroupSums::discard();
  kept_.reset();
  order_->discard();
}

void GatheredSums::finish() {
  if (group().num_trained_parameters() == 0) return;
  const DType dtype = policy().kept;
  written(0) = reducer().take(group().trained_numel(), dtype);
  const StreamRef stream = reducer().begin();
  const TraceSpan span(reducer().context().trace(), TraceKind::reduce, stream, group().name(),
                       reducer().sent_bytes(group(), dtype));
  set_work(reducer().all_gather(
      group(), [&](const Segment& segment) { return shard_of(kept(), dtype, segment); },
      whole(written(0), dtype), stream));
  reducer().end();
}

View GatheredSums::on_device(const OwnedRange& slice) {
  bug_check(static_cast<bool>(written(0)), "the gradient of group ", group().name(),
            " is not there");
  return part(written(0), policy().kept, slice.range);
}

LeavingShardSums::LeavingShardSums(const ShardGroup& group, Reducer& reducer,
                                   std::unique_ptr<ShardOrder> order, SumsAway& away, bool all)
    : ShardSums(group, reducer, std::move(order)), away_(away), all_(all) {}

void LeavingShardSums::leave(const MicroBatchTurn& turn) {
  if (turn.is_last()) send(kept(), policy().kept, {}, all_);
}

void LeavingShardSums::send(Block& shards, DType dtype, SumsAway::Turn turn, bool free) {
  comm::Work left(away_.send(group().index(), ranges_of(shards, dtype), turn));
  set_work(left);
  reducer().hold(std::move(left), free ? std::exchange(shards, Block()) : Block());
}

HostShardSums::HostShardSums(const ShardGroup& group, Reducer& reducer,
                             std::unique_ptr<ShardOrder> order, SumsAway& host)
    : LeavingShardSums(group, reducer, std::move(order), host, /*all=*/true) {}

comm::Work HostShardSums::reduce(const MicroBatchTurn& turn) {
  if (turn.together > 1 || turn.count == 1) return LeavingShardSums::reduce(turn);
  const DType dtype = policy().added_in_host(reducer().ranks());
  Block shards = reducer().take(reducer().shard_numel(group()), dtype);
  const StreamRef stream = reducer().begin();
  const TraceSpan span(reducer().context().trace(), TraceKind::reduce, stream, group().name(),
                       reducer().sent_bytes(group(), policy().wire));
  comm::Work reduced = scatter(turn, shards, dtype, /*accumulate=*/false, stream);
  send(shards, dtype, {.is_first = turn.is_first(), .is_last = turn.is_last()}, /*free=*/true);
  reducer().let_go();
  return reduced;
}

SwappedShardSums::SwappedShardSums(const ShardGroup& group, Reducer& reducer,
                                   std::unique_ptr<ShardOrder> order, SwappedGradients& swapped)
    : LeavingShardSums(group, reducer, std::move(order), swapped, /*all=*/true),
      swapped_(swapped) {}

void SwappedShardSums::bring(const MicroBatchTurn& turn, StreamRef stream) {
  if (turn.is_first() || turn.place > 0) return;
  stream->wait(swapped_.bring(group().index(), ranges_of(kept(), policy().kept)));
}

void SwappedShardSums::leave(const MicroBatchTurn& turn) {
  if (!turn.is_last_together()) return;
  send(kept(), policy().kept, {.is_first = turn.is_first(), .is_last = turn.is_last()},
       /*free=*/true);
}

}  // namespace zinc::zero
