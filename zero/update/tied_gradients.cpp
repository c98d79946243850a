#include "zero/update/tied_gradients.h"

#include "core/trace_span.h"
#include "kernels/accumulate.h"
#include "tensor/tensor.h"

namespace zinc::zero {
namespace {

constexpr int kTied = 2;  // tag of messages

void add_up(const std::vector<int>& holders, comm::World& pipe, const View& sums) {
  const StreamRef compute = pipe.context().compute();
  comm::Communicator& peers = pipe.communicator();
  const int first = holders.front();
  const auto others = static_cast<int64_t>(holders.size()) - 1;
  const TraceSpan span(pipe.context().trace(), TraceKind::exchange, compute, "tied gradients",
                       pipe.rank() == first ? others * sums.bytes() : sums.bytes());
  if (pipe.rank() != first) {
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

}  // namespace

void add_tied_gradients(const ShardGroups& groups, const parallel::PipelineCut& cut,
                        comm::World& pipe, const std::vector<UpdateSlice>& slices,
                        GradientStore& gradients) {
  for (const UpdateSlice& slice : slices) {
    const ShardGroup& group = groups[slice.group];
    const std::vector<int>& holders = cut.holders(*group.placements().front().parameter);
    if (holders.size() > 1) add_up(holders, pipe, gradients.on_device(slice));
  }
}

}  // namespace zinc::zero
