#include "comm/arguments.h"

#include <functional>
#include <iterator>
#include <limits>
#include <span>

#include "core/error.h"

namespace zinc::comm {
namespace {

const std::byte* begin_of(const ConstView& view) {
  return static_cast<const std::byte*>(view.data());
}

bool overlap(const ConstView& a, const ConstView& b) {
  if (a.bytes() == 0 || b.bytes() == 0) return false;
  const std::less<const std::byte*> before;
  return before(begin_of(a), begin_of(b) + b.bytes()) &&
         before(begin_of(b), begin_of(a) + a.bytes());
}

// The checks that hold for every view of every collective.
void check_view(std::string_view op, std::string_view name, const ConstView& view,
                const GroupFacts& group) {
  require(view.device() == group.device, op, ": ", name, " is on ", view.device(),
          ", the communicator's device is ", group.device);
  require(view.tier() != Tier::nvme, op, ": ", name, " is on the tier nvme");
  require_contiguous(op, name, view);
  require(view.data() != nullptr || view.bytes() == 0, op, ": ", name, " has no memory");
}

void check_same_dtype(std::string_view op, const ConstView& in, const ConstView& out) {
  require(in.dtype() == out.dtype(), op, ": out must have the dtype of the input: ", in.dtype(),
          " vs ", out.dtype());
}

void check_workspace(std::string_view op, const ConstView& workspace, int64_t bytes,
                     const GroupFacts& group) {
  require(workspace.bytes() >= bytes, op, ": workspace must have at least ", bytes, " bytes, not ",
          workspace.bytes());
  if (bytes == 0) return;
  check_view(op, "workspace", workspace, group);
  require_dtype(op, "workspace", workspace, DType::u8);
}

// `part` must be rank's place in `whole`, or lie outside of it.
void check_place(std::string_view op, std::string_view name, const ConstView& part,
                 const ConstView& whole, int rank) {
  const bool own_place =
      part.dtype() == whole.dtype() && begin_of(part) == begin_of(whole) + rank * part.bytes();
  require(own_place || !overlap(part, whole), op, ": ", name,
          " overlaps the other buffer, but is not the rank's own place in it");
}

// Two arrays of one dtype.
void check_apart(std::string_view op, const ConstView& in, const View& out,
                 const GroupFacts& group) {
  check_view(op, "in", in, group);
  check_view(op, "out", out, group);
  check_same_dtype(op, in, out);
  require(!overlap(in, out), op, ": out overlaps in");
}

void check_same_size(std::string_view op, const ConstView& in, const View& out) {
  require(in.numel() == out.numel(), op, ": in and out must have as many elements: ", in.numel(),
          " vs ", out.numel());
}

// `counts`, by rank, must cover `view`.
void check_counts(std::string_view name, std::span<const int64_t> counts, int64_t largest,
                  const ConstView& view, const GroupFacts& group) {
  require(std::ssize(counts) == group.size, "all_to_all: counts.", name, " must have ", group.size,
          " entries, one for each rank, not ", counts.size());
  int64_t left = view.numel();  // no sum of the counts, which may be too large for an int64_t
  for (size_t r = 0; r < counts.size(); ++r) {
    require(counts[r] >= 0 && counts[r] <= largest, "all_to_all: counts.", name, "[", r,
            "] must be in [0, counts.largest], here [0, ", largest, "], not ", counts[r]);
    require(counts[r] <= left, "all_to_all: the counts of ", name, " add up to more than the ",
            view.numel(), " elements of their buffer");
    left -= counts[r];
  }
  require(left == 0, "all_to_all: the counts of ", name, " add up to ", view.numel() - left,
          ", their buffer has ", view.numel(), " elements");
}

}  // namespace

Terms checked(const AllGather& args, const GroupFacts& group) {
  constexpr std::string_view kOp = "all_gather";
  check_view(kOp, "shard", args.shard, group);
  check_view(kOp, "out", args.out, group);
  check_same_dtype(kOp, args.shard, args.out);
  require(args.out.numel() == group.size * args.shard.numel(), kOp, ": out must have ", group.size,
          " times the elements of shard: ", group.size * args.shard.numel(), " vs ",
          args.out.numel());
  check_place(kOp, "shard", args.shard, args.out, group.rank);
  return {
      .count = args.shard.numel(), .operation = Operation::all_gather, .dtype = args.shard.dtype()};
}

Terms checked(const ReduceScatter& args, const GroupFacts& group, int64_t workspace_bytes) {
  constexpr std::string_view kOp = "reduce_scatter";
  check_view(kOp, "in", args.in, group);
  check_view(kOp, "out", args.out, group);
  require(is_float(args.in.dtype()), kOp, ": in must have a float dtype, not ", args.in.dtype());
  require(args.out.dtype() == args.in.dtype() ||
              (args.out.dtype() == DType::f32 && is_16bit_float(args.in.dtype())),
          kOp, ": out must be ", args.in.dtype(), is_16bit_float(args.in.dtype()) ? " or f32" : "",
          ", not ", args.out.dtype());
  require(args.in.numel() == group.size * args.out.numel(), kOp, ": in must have ", group.size,
          " times the elements of out: ", group.size * args.out.numel(), " vs ", args.in.numel());
  check_place(kOp, "out", args.out, args.in, group.rank);
  check_workspace(kOp, args.workspace, workspace_bytes, group);
  require(!overlap(args.workspace, args.in) && !overlap(args.workspace, args.out), kOp,
          ": workspace overlaps in or out");
  return {
      .count = args.out.numel(), .operation = Operation::reduce_scatter, .dtype = args.in.dtype()};
}

Terms checked(const AllReduce& args, const GroupFacts& group, int64_t workspace_bytes) {
  constexpr std::string_view kOp = "all_reduce";
  check_view(kOp, "inout", args.inout, group);
  require(is_float(args.inout.dtype()), kOp, ": inout must have a float dtype, not ",
          args.inout.dtype());
  check_workspace(kOp, args.workspace, workspace_bytes, group);
  require(!overlap(args.workspace, args.inout), kOp, ": workspace overlaps inout");
  return {
      .count = args.inout.numel(), .operation = Operation::all_reduce, .dtype = args.inout.dtype()};
}

Terms checked(const Broadcast& args, const GroupFacts& group) {
  constexpr std::string_view kOp = "broadcast";
  check_view(kOp, "inout", args.inout, group);
  require(args.root >= 0 && args.root < group.size, kOp, ": root must be in [0, ", group.size,
          "), not ", args.root);
  return {.count = args.inout.numel(),
          .root = args.root,
          .operation = Operation::broadcast,
          .dtype = args.inout.dtype()};
}

Terms checked(const AllToAll& args, const GroupFacts& group) {
  constexpr std::string_view kOp = "all_to_all";
  check_apart(kOp, args.in, args.out, group);
  Terms terms{.operation = Operation::all_to_all, .dtype = args.in.dtype()};
  if (args.counts == nullptr) {
    check_same_size(kOp, args.in, args.out);
    require(args.in.numel() % group.size == 0, kOp, ": ", args.in.numel(),
            " elements do not divide into ", group.size, " blocks");
    terms.count = args.in.numel() / group.size;
    return terms;
  }
  const AllToAllCounts& counts = *args.counts;
  require(counts.largest <= std::numeric_limits<int64_t>::max() / size_of(terms.dtype), kOp,
          ": counts.largest is no number of elements in memory: ", counts.largest);
  check_counts("sent", counts.sent, counts.largest, args.in, group);
  check_counts("received", counts.received, counts.largest, args.out, group);
  const auto own = static_cast<size_t>(group.rank);
  require(counts.sent[own] == counts.received[own], kOp, ": the rank sends itself ",
          counts.sent[own], " elements, but receives ", counts.received[own]);
  terms.count = counts.largest;
  return terms;
}

Terms checked(const Shift& args, const GroupFacts& group) {
  check_apart("shift", args.in, args.out, group);
  check_same_size("shift", args.in, args.out);
  return {.count = args.in.numel(), .operation = Operation::shift, .dtype = args.in.dtype()};
}

void check_message(const ConstView& data, int peer, int tag, const GroupFacts& group,
                   std::string_view op) {
  check_view(op, "data", data, group);
  require(peer >= 0 && peer < group.size && peer != group.rank, op,
          ": the other side must be one of the other ranks in [0, ", group.size, "), not ", peer);
  require(tag >= 0 && tag < kNumMessageTags, op, ": a tag must be in [0, ", kNumMessageTags,
          "), not ", tag);
}

}  // namespace zinc::comm
