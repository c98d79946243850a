#include "parallel/token_runs.h"

#include <utility>

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

// Whether the runs cover the sequence in the order run 0 of all ranks, run 1 of all ranks, ...
bool follow_each_other(const std::vector<Runs>& runs) {
  int64_t at = 0;
  for (size_t i = 0; i < runs.front().size(); ++i) {
    for (const Runs& of_rank : runs) {
      if (of_rank[i].begin != at) return false;
      at += of_rank[i].count;
    }
  }
  return true;
}

}  // namespace

TraceSpan exchange_span(comm::World& group, std::string_view name, StreamRef stream,
                        int64_t bytes) {
  const int64_t size = group.size();
  return {group.context().trace(), TraceKind::exchange, stream, name, bytes / size * (size - 1)};
}

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

int64_t least_sequence_on(const comm::World& group) {
  return group.context().device().is_cuda() ? int64_t{16} << 20 : 0;
}

TokenPieces::TokenPieces(const std::vector<Runs>& runs, const Shape& x, DType dtype,
                         int64_t least_bytes)
    : count(1), are_in_place(false) {
  const auto num_runs = static_cast<int64_t>(runs.front().size());
  const bool is_large = least_bytes > 0 && x[1] * x[2] * size_of(dtype) >= least_bytes;
  if (!follow_each_other(runs) || (x[0] > 1 && (num_runs > 1 || !is_large))) return;
  count = x[0] > 1 ? x[0] : num_runs;
  are_in_place = true;
}

StreamRef TokenPieces::stream(bool is_beside) const {
  return is_beside || count > 1 ? stream_beside_compute() : Context::current().compute();
}

TokensUnderWay::TokensUnderWay(comm::World& group, const Tensor& x, std::vector<Runs> runs,
                               int64_t least_bytes, bool is_beside)
    : runs_(std::move(runs)),
      pieces_(runs_, Shape{x.dim(0), group.size() * x.dim(1), x.dim(2)}, x.dtype(), least_bytes),
      mine_(x.is_contiguous() ? x : x.clone()) {
  if (pieces_.are_in_place) {
    whole_ = Tensor::empty(Shape{x.dim(0), group.size() * x.dim(1), x.dim(2)}, x.dtype());
  } else {
    blocks_ = Blocks::empty(group.size(), x.shape(), x.dtype());
  }
  if (x.device() != group.context().device()) return;
  const StreamRef stream = pieces_.stream(is_beside);
  const View shards = mine_.view().reshape(Shape{mine_.numel()});
  const Tensor& all = pieces_.are_in_place ? whole_ : blocks_.all;
  const View out = all.view().reshape(Shape{all.numel()});
  const TraceSpan span = exchange_span(group, "gather tokens", stream, out.bytes());
  const int64_t n = shards.numel() / pieces_.count, m = out.numel() / pieces_.count;
  for (int64_t i = 0; i < pieces_.count; ++i) {
    works_.push_back(group.communicator().all_gather(
        {.shard = shards.narrow(0, i * n, n), .out = out.narrow(0, i * m, m)}, stream));
  }
}

Tensor TokensUnderWay::wait(int64_t piece) {
  if (!works_.empty()) works_[static_cast<size_t>(piece)].wait_on(Context::current().compute());
  if (whole_.defined()) return whole_;
  const Shape& part = blocks_.shape;
  whole_ = Tensor::empty(Shape{part[0], blocks_.all.dim(0) * part[1], part[2]}, mine_.dtype());
  for_each_run(runs_, blocks_, whole_.view(),
               [](const View& run, const View& place) { copy(run, place); });
  return whole_;
}

Tensor all_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                  int64_t least_bytes) {
  return TokensUnderWay(group, x, runs, least_bytes, false).wait_for_all();
}

TokenSums::TokenSums(comm::World& group, const Tensor& x, std::vector<Runs> runs,
                     int64_t least_bytes)
    : group_(group),
      runs_(std::move(runs)),
      pieces_(runs_, x.shape(), x.dtype(), least_bytes),
      x_(x.is_contiguous() ? x : x.clone()) {
  const Shape shape{x.dim(0), x.dim(1) / group.size(), x.dim(2)};
  if (!pieces_.are_in_place) blocks_ = Blocks::empty(group.size(), shape, x.dtype());
  comm::Communicator& communicator = group.communicator();
  // One workspace for all pieces: they are summed one after the other.
  workspace_ = Tensor::empty(
      Shape{communicator.workspace_bytes(comm::Collective::reduce_scatter,
                                         x.view().bytes() / pieces_.count, x.dtype())},
      DType::u8, Label::communication);
  y_ = Tensor::empty(shape, x.dtype());
}

void TokenSums::start(int64_t piece, bool is_beside) {
  if (!pieces_.are_in_place) {
    for_each_run(runs_, blocks_, x_.view(),
                 [](const View& run, const View& place) { copy(place, run); });
  }
  if (x_.device() != group_.context().device()) return;
  const StreamRef stream = pieces_.stream(is_beside);
  const Tensor& parts = pieces_.are_in_place ? x_ : blocks_.all;
  const int64_t n = parts.numel() / pieces_.count, m = y_.numel() / pieces_.count;
  const View in = parts.view().reshape(Shape{parts.numel()}).narrow(0, piece * n, n);
  const TraceSpan span = exchange_span(group_, "sum tokens", stream, in.bytes());
  work_ = group_.communicator().reduce_scatter(
      {.in = in,
       .out = y_.view().reshape(Shape{y_.numel()}).narrow(0, piece * m, m),
       .workspace = workspace_.view()},
      stream);
}

Tensor TokenSums::finish() {
  work_.wait_on(Context::current().compute());
  return y_;
}

Tensor sum_of_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                     int64_t least_bytes, const std::function<void()>& meanwhile) {
  TokenSums sums(group, x, runs, least_bytes);
  for (int64_t i = 0; i < sums.num_pieces(); ++i) sums.start(i, static_cast<bool>(meanwhile));
  if (meanwhile) meanwhile();
  return sums.finish();
}

}  // namespace zinc::parallel
