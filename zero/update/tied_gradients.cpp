#include "zero/update/tied_gradients.h"

#include "core/trace_span.h"
#include "kernels/accumulate.h"
#include "tensor/tensor.h"

namespace zinc::zero {
namespace {

constexpr int kTied = 2;  // tag of messages

}  // namespace

TiedGradients::TiedGradients(const ShardGroups& groups, const parallel::PipelineCut& cut,
                             comm::World& pipe, const Strategy& strategy)
    : groups_(groups), cut_(cut), pipe_(pipe), strategy_(strategy) {}

void TiedGradients::add_up() const {
  for (const Slice& slice : strategy_.weights->slices()) {
    const ShardGroup& group = groups_[slice.group];
    const std::vector<int>& holders = cut_.holders(*group.placements().front().parameter);
    if (holders.size() == 1) continue;
    add_up(holders, strategy_.gradients->on_device(slice));
  }
}

void TiedGradients::add_up(const std::vector<int>& holders, const View& sums) const {
  const StreamRef compute = pipe_.context().compute();
  comm::Communicator& peers = pipe_.communicator();
  const int first = holders.front();
  const auto others = static_cast<int64_t>(holders.size()) - 1;
  const TraceSpan span(pipe_.context().trace(), TraceKind::exchange, compute, "tied gradients",
                       pipe_.rank() == first ? others * sums.bytes() : sums.bytes());
  if (pipe_.rank() != first) {
    peers.send(sums, first, kTied, compute).wait_on(compute);
    peers.receive(sums, first, kTied, compute).wait_on(compute);
    return;
  }
  const Tensor theirs = Tensor::empty(sums.shape(), sums.dtype(), Label::communication);
  for (const int holder : holders) {
    if (holder == first) continue;
    peers.receive(theirs.view(), holder, kTied, compute).wait_on(compute);
    kernels::accumulate({.x = theirs.view(), .accumulator = sums}, compute);
  }
  for (const int holder : holders) {
    if (holder != first) peers.send(sums, holder, kTied, compute).wait_on(compute);
  }
}

}  // namespace zinc::zero
