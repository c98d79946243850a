#include "parallel/token_runs.h"

#include "kernels/copy.h"

namespace zinc::parallel {
namespace {

// visit(a run in the blocks, where it is in the whole).
template <class Visit>
void for_each_run(const std::vector<Runs>& runs, const Blocks& blocks, const View& whole,
                  const Visit& visit) {
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    int64_t at = 0;
    for (const auto& [begin, count] : runs[rank]) {
      visit(blocks.of(static_cast<int64_t>(rank)).narrow(1, at, count),
            whole.narrow(1, begin, count));
      at += count;
    }
  }
}

// The blocks are the whole: one sequence, of which every rank has one run.
bool are_in_order(const std::vector<Runs>& runs, int64_t sequences) {
  return sequences == 1 && runs.front().size() == 1;
}

}  // namespace

void copy(const ConstView& from, const View& to) {
  kernels::copy({.x = from, .y = to}, Context::current().compute());
}

StreamRef stream_beside_compute() {
  Context& context = Context::current();
  const StreamRef other = context.stream(StreamRole::gather);
  if (other->kind() == StreamKind::worker) return context.compute();
  other->wait(context.compute()->record());
  return other;
}

void beside(bool runs, const std::function<void()>& meanwhile,
            const std::function<comm::Work(StreamRef)>& collective) {
  const StreamRef compute = Context::current().compute();
  comm::Work work;
  if (runs) work = collective(meanwhile ? stream_beside_compute() : compute);
  if (meanwhile) meanwhile();
  work.wait_on(compute);
}

TokensUnderWay::TokensUnderWay(comm::World& group, const Tensor& x, bool is_beside)
    : mine_(x.is_contiguous() ? x : x.clone()),
      blocks_(Blocks::empty(group.size(), x.shape(), x.dtype())) {
  if (x.device() != group.context().device()) return;
  const StreamRef stream = is_beside ? stream_beside_compute() : Context::current().compute();
  work_ = group.communicator().all_gather(
      {.shard = mine_.view().reshape(Shape{x.numel()}),
       .out = blocks_.all.view().reshape(Shape{blocks_.all.numel()})},
      stream);
}

Tensor TokensUnderWay::finish(const std::vector<Runs>& runs) {
  work_.wait_on(Context::current().compute());
  const Shape& part = blocks_.shape;
  const Shape whole{part[0], blocks_.all.dim(0) * part[1], part[2]};
  if (are_in_order(runs, part[0])) return blocks_.all.reshape_view(whole);
  const Tensor y = Tensor::empty(whole, mine_.dtype());
  for_each_run(runs, blocks_, y.view(),
               [](const View& run, const View& place) { copy(run, place); });
  return y;
}

Tensor all_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs) {
  return TokensUnderWay(group, x, false).finish(runs);
}

Tensor sum_of_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                     const std::function<void()>& meanwhile) {
  const Shape shape{x.dim(0), x.dim(1) / group.size(), x.dim(2)};
  Blocks blocks{shape, x};
  if (!are_in_order(runs, x.dim(0)) || !x.is_contiguous()) {
    blocks = Blocks::empty(group.size(), shape, x.dtype());
    for_each_run(runs, blocks, x.view(),
                 [](const View& run, const View& place) { copy(place, run); });
  }
  comm::Communicator& communicator = group.communicator();
  const View in = blocks.all.view().reshape(Shape{blocks.all.numel()});
  const Tensor workspace = Tensor::empty(
      Shape{communicator.workspace_bytes(comm::Collective::reduce_scatter, in.bytes(), in.dtype())},
      DType::u8, Label::communication);
  Tensor y = Tensor::empty(shape, x.dtype());
  beside(x.device() == group.context().device(), meanwhile, [&](StreamRef stream) {
    return communicator.reduce_scatter(
        {.in = in, .out = y.view().reshape(Shape{y.numel()}), .workspace = workspace.view()},
        stream);
  });
  return y;
}

}  // namespace zinc::parallel
