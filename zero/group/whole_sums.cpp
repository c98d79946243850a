#include "zero/group/whole_sums.h"

#include <utility>

#include "core/error.h"
#include "core/trace_span.h"
#include "kernels/accumulate.h"

namespace zinc::zero {

void WholeSums::add(const MicroBatchTurn& turn) {
  if (collects()) return;
  if (!kept_) kept_ = reducer().take(group().trained_numel(), policy().kept);
  kernels::accumulate({.x = whole(written(turn.place), policy().written),
                       .accumulator = whole(kept_, policy().kept),
                       .overwrite = turn.is_first()},
                      reducer().context().compute());
  written(turn.place).reset();
}

comm::Work WholeSums::reduce(const MicroBatchTurn&) {
  return reducer().waits_for_step() ? comm::Work() : issue();
}

void WholeSums::finish() {
  if (!reducer().waits_for_step()) return;
  issue();
  reducer().end();
}

comm::Work WholeSums::issue() {
  const StreamRef stream = reducer().begin();
  const TraceSpan span(reducer().context().trace(), TraceKind::reduce, stream, group().name(),
                       reducer().sent_bytes(group(), policy().wire));
  set_work(reducer().reduce_scatter(
      group(), sums(), [this](const Segment& segment) { return shard_of(segment); },
      /*accumulate=*/false, stream));
  return work();
}

View WholeSums::on_device(const OwnedRange& slice) {
  bug_check(static_cast<bool>(block()), "the gradient of group ", group().name(), " is not there");
  return part(block(), policy().kept, slice.range);
}

void WholeSums::discard() {
  GroupSums::discard();
  kept_.reset();
}

View WholeSums::sums() { return whole(block(), policy().kept); }

void WholeSums::free_sums() { block().reset(); }

View WholeSums::shard_of(const Segment& segment) {
  return part(block(), policy().kept, reducer().own(segment));
}

comm::Work ReplicatedSums::issue() {
  const StreamRef stream = reducer().begin();
  const int64_t there = reducer().sent_bytes(group(), policy().wire);
  const int64_t back =
      reducer().waits_for_step() ? 0 : reducer().sent_bytes(group(), policy().kept);
  const TraceSpan span(reducer().context().trace(), TraceKind::reduce, stream, group().name(),
                       there + back);
  set_work(reducer().all_reduce(group(), sums(), stream));
  return work();
}

LeavingWholeSums::LeavingWholeSums(const ShardGroup& group, Reducer& reducer, SumsAway& away,
                                   bool all)
    : WholeSums(group, reducer), away_(away), all_(all) {}

comm::Work LeavingWholeSums::issue() {
  comm::Work reduced = WholeSums::issue();
  away_.send(group().index(),
             [this](SegmentKind kind, Range range) {
               const Segment& segment = group().segment(kind);
               return shard_of(segment).narrow(0, range.begin - reducer().own(segment).begin,
                                               range.size());
             },
             {});
  return reduced;
}

void LeavingWholeSums::finished() {
  away_.await(group().index(), reducer().context().compute());
  if (all_) free_sums();
}

}  // namespace zinc::zero
