#include "zero/group/host_gradients.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/accumulate.h"

namespace zinc::zero {
namespace {

// Elements of a buffer at most: large beside what a copy costs to start, small beside a model.
constexpr int64_t kMostBuffered = int64_t{1} << 22;

}  // namespace

HostGradients::HostGradients(const ShardGroups& groups, Context& context,
                             HostGradientsOptions options)
    : context_(context),
      options_(std::move(options)),
      groups_(groups.size()),
      buffer_numel_(std::min(options_.most_added, kMostBuffered)) {
  for (const OwnedRange& slice : options_.slices) {
    if (slice.tier == Tier::device) continue;
    OfGroup& group = groups_[slice.group];
    group.slices.push_back(slice);
    group.numel += slice.range.size();
  }
  if (buffer_numel_ == 0) return;
  for (Buffer& buffer : buffers_) {
    buffer.memory = context.allocate(buffer_numel_ * size_of(options_.added), Label::staging,
                                     Tier::pinned_host);
  }
}

HostGradients::~HostGradients() {
  // Copies and additions ran on other streams than the compute stream, which owns the memory.
  for (const OfGroup& group : groups_) {
    try {
      context_.compute()->wait(group.arrived);
    } catch (...) {
      // The stream has failed. Its next use reports the error.
    }
  }
}

StreamRef HostGradients::adding() const {
  return context_.device().is_cuda() ? host_stream(context_)
                                     : context_.stream(StreamRole::copy_out);
}

View HostGradients::values(const Block& memory, DType dtype, int64_t numel) const {
  return {memory.data(), dtype, Shape{numel}, context_.device(), Tier::pinned_host};
}

ConstView HostGradients::read(const OwnedRange& slice) {
  const OfGroup& group = groups_[slice.group];
  bug_check(group.sums.size() == 1, "the gradient of group ", slice.group, " is not there");
  return values(group.sums.front().memory, options_.dtype, group.numel)
      .narrow(0, slice.place, slice.range.size());
}

void HostGradients::discard(int group) {
  groups_[group].sums.clear();
  groups_[group].spare.clear();
}

void HostGradients::start_sum(OfGroup& group) {
  Sum sum;
  if (group.spare.empty()) {
    sum.memory = context_.allocate(group.numel * size_of(options_.dtype), Label::gradients,
                                   Tier::pinned_host);
  } else {
    sum.memory = std::move(group.spare.back());
    group.spare.pop_back();
    context_.stream(StreamRole::copy_out)->wait(group.arrived);  // additions may have read it
  }
  group.sums.push_back(std::move(sum));
}

Event HostGradients::send(int index, const OnDevice& from, Turn turn) {
  OfGroup& group = groups_[index];
  if (turn.is_first) {  // what is left is of an abandoned pass
    for (Sum& sum : group.sums) group.spare.push_back(std::move(sum.memory));
    group.sums.clear();
  }
  const bool starts =
      turn.is_first || (options_.tree && !turn.is_last && group.sums.back().micro_steps > 1);
  if (starts) start_sum(group);
  const StreamRef out = context_.stream(StreamRole::copy_out);
  // Memory may have been in use by work on the compute stream.
  order(context_.compute(), out);
  order(context_.stream(StreamRole::reduce), out);
  bool is_copied = false;
  for (const OwnedRange& slice : group.slices) {
    const ConstView there = from(slice.segment, slice.range);
    const View sum = values(group.sums.back().memory, options_.dtype, group.numel)
                         .narrow(0, slice.place, slice.range.size());
    is_copied = starts && there.dtype() == options_.dtype;
    if (is_copied) {
      transfer(there, sum, out);
    } else {
      add(there, sum, starts);
    }
  }
  if (!starts) {
    ++group.sums.back().micro_steps;
    merge(group, turn.is_last);
  }
  const Event left = out->record();
  group.arrived = is_copied ? left : adding()->record();
  return left;
}

void HostGradients::add(const ConstView& from, const View& sum, bool overwrite) {
  const StreamRef out = context_.stream(StreamRole::copy_out);
  bug_check(buffer_numel_ > 0, "sums of gradients are made without a buffer");
  for (int64_t begin = 0; begin < from.numel(); begin += buffer_numel_) {
    const int64_t length = std::min(buffer_numel_, from.numel() - begin);
    Buffer& buffer = buffers_[next_buffer_++ % buffers_.size()];
    const View tile = values(buffer.memory, from.dtype(), length);
    out->wait(buffer.added);
    transfer(from.narrow(0, begin, length), tile, out);
    order(out, adding());
    kernels::accumulate({.x = host_memory(tile),
                         .accumulator = host_memory(sum.narrow(0, begin, length)),
                         .overwrite = overwrite},
                        adding());
    buffer.added = adding()->record();
  }
}

void HostGradients::merge(OfGroup& group, bool is_last) {
  std::vector<Sum>& sums = group.sums;
  const auto mergeable = [&] {
    const size_t n = sums.size();
    return n >= 2 && (is_last || sums[n - 2].micro_steps == sums[n - 1].micro_steps);
  };
  while (mergeable()) {
    Sum right = std::move(sums.back());
    sums.pop_back();
    Sum& left = sums.back();
    kernels::accumulate(
        {.x = host_memory(values(right.memory, options_.dtype, group.numel)),
         .accumulator = host_memory(values(left.memory, options_.dtype, group.numel))},
        adding());
    left.micro_steps += right.micro_steps;
    group.spare.push_back(std::move(right.memory));
  }
}

}  // namespace zinc::zero
