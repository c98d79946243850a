#include "comm/host_exchanges.h"

#include <cstring>

#include "comm/partition.h"
#include "kernels/tree_sum.h"

namespace zinc::comm {
namespace {

std::byte* bytes_of(const View& view) { return static_cast<std::byte*>(view.data()); }
const std::byte* bytes_of(const ConstView& view) {
  return static_cast<const std::byte*>(view.data());
}

void copy_apart(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

Exchange empty_exchange(const Transport& transport) {
  Exchange exchange;
  exchange.to.resize(static_cast<size_t>(transport.size()));
  exchange.from.resize(static_cast<size_t>(transport.size()));
  return exchange;
}

// The second exchange of a collective.
Call next_meeting(const Call& call) {
  Call next = call;
  ++next.terms.meeting;
  return next;
}

// Sends rank r's part of `whole` (n elements of `element` bytes) from r to all ranks but `without`.
void gather_parts(Transport& transport, const Call& call, std::byte* whole, int64_t n,
                  int64_t element, int without) {
  const int size = transport.size();
  const int rank = transport.rank();
  Exchange exchange = empty_exchange(transport);
  const Part mine = part_of(n, size, rank);
  for (int p = 0; p < size; ++p) {
    const Part theirs = part_of(n, size, p);
    const auto place = static_cast<size_t>(p);
    if (p != without) exchange.to[place] = {whole + mine.begin * element, mine.count * element};
    if (rank != without) {
      exchange.from[place] = {whole + theirs.begin * element, theirs.count * element};
    }
  }
  exchange.largest_bytes = part_of(n, size, 0).count * element;
  exchange.same_to_all = true;
  transport.exchange(call, exchange);
}

struct Reduction {
  const std::byte* in = nullptr;  // [n] of `dtype`
  int64_t n = 0;
  DType dtype = DType::f32;
  std::byte* out = nullptr;  // [part of n] of `out_dtype`
  DType out_dtype = DType::f32;
  bool accumulate = false;
  View workspace;
};

// Makes the sum over ranks of this rank's part of `in`.
void reduce_parts(Transport& transport, const Call& call, const Reduction& args) {
  const int size = transport.size();
  const int64_t element = size_of(args.dtype);
  const Part mine = part_of(args.n, size, transport.rank());
  Exchange exchange = empty_exchange(transport);
  for (int p = 0; p < size; ++p) {
    const Part theirs = part_of(args.n, size, p);
    const auto place = static_cast<size_t>(p);
    exchange.to[place] = {args.in + theirs.begin * element, theirs.count * element};
    exchange.from[place] = {nullptr, mine.count * element};
  }
  exchange.largest_bytes = part_of(args.n, size, 0).count * element;
  exchange.workspace = {bytes_of(args.workspace), static_cast<size_t>(args.workspace.bytes())};
  exchange.take = [&args, element](int64_t first, int64_t bytes,
                                   std::span<const std::byte* const> sources) {
    kernels::tree_sum_on_host({.in = sources,
                               .dtype = args.dtype,
                               .n = bytes / element,
                               .out = args.out + first / element * size_of(args.out_dtype),
                               .out_dtype = args.out_dtype,
                               .accumulate = args.accumulate});
  };
  transport.exchange(call, exchange);
}

}  // namespace

void run_all_gather(Transport& transport, const Call& call, const AllGather& args) {
  const int64_t bytes = args.shard.bytes();
  copy_apart(bytes_of(args.out) + transport.rank() * bytes, bytes_of(args.shard), bytes);
  gather_parts(transport, call, bytes_of(args.out), args.out.numel(), size_of(args.out.dtype()),
               -1);
}

void run_reduce_scatter(Transport& transport, const Call& call, const ReduceScatter& args) {
  if (call.terms.native != 0) {
    // The backend overwrites the sum in its own dtype; the rest is a sum of one array.
    std::byte* sum = bytes_of(args.workspace);
    transport.native_sum(call, {.in = bytes_of(args.in),
                                .out = sum,
                                .count = args.out.numel(),
                                .dtype = args.in.dtype(),
                                .scatter = true});
    const std::byte* const sources[] = {sum};
    kernels::tree_sum_on_host({.in = sources,
                               .dtype = args.in.dtype(),
                               .n = args.out.numel(),
                               .out = bytes_of(args.out),
                               .out_dtype = args.out.dtype(),
                               .accumulate = args.accumulate});
    return;
  }
  reduce_parts(transport, call,
               {.in = bytes_of(args.in),
                .n = args.in.numel(),
                .dtype = args.in.dtype(),
                .out = bytes_of(args.out),
                .out_dtype = args.out.dtype(),
                .accumulate = args.accumulate,
                .workspace = args.workspace});
}

void run_all_reduce(Transport& transport, const Call& call, const AllReduce& args) {
  const int64_t n = args.inout.numel();
  const DType dtype = args.inout.dtype();
  std::byte* data = bytes_of(args.inout);
  if (call.terms.native != 0) {
    return transport.native_sum(call, {.out = data, .count = n, .dtype = dtype});
  }
  // In place: the peers read their own parts of `inout` only, and this rank writes its own.
  const Part mine = part_of(n, transport.size(), transport.rank());
  reduce_parts(transport, call,
               {.in = data,
                .n = n,
                .dtype = dtype,
                .out = data + mine.begin * size_of(dtype),
                .out_dtype = dtype,
                .workspace = args.workspace});
  gather_parts(transport, next_meeting(call), data, n, size_of(dtype), -1);
}

// The root deals the parts out, then every rank passes its own on: the root sends
// 2 (size - 1) / size of the bytes instead of size - 1 times all of them.
void run_broadcast(Transport& transport, const Call& call, const Broadcast& args) {
  const int size = transport.size();
  const int64_t n = args.inout.numel();
  const int64_t element = size_of(args.inout.dtype());
  std::byte* data = bytes_of(args.inout);
  Exchange deal = empty_exchange(transport);
  for (int p = 0; p < size; ++p) {
    const Part part = part_of(n, size, p);
    if (transport.rank() == args.root) {
      deal.to[static_cast<size_t>(p)] = {data + part.begin * element, part.count * element};
    }
  }
  const Part mine = part_of(n, size, transport.rank());
  deal.from[static_cast<size_t>(args.root)] = {data + mine.begin * element, mine.count * element};
  deal.largest_bytes = part_of(n, size, 0).count * element;
  transport.exchange(call, deal);
  gather_parts(transport, next_meeting(call), data, n, element, args.root);
}

void run_all_to_all(Transport& transport, const Call& call, const AllToAll& args,
                    const AllToAllBlocks& blocks) {
  const int64_t element = size_of(args.in.dtype());
  Exchange exchange = empty_exchange(transport);
  for (size_t p = 0; p < exchange.to.size(); ++p) {
    const Part& to = blocks.in[p];
    const Part& from = blocks.out[p];
    exchange.to[p] = {bytes_of(args.in) + to.begin * element, to.count * element};
    exchange.from[p] = {bytes_of(args.out) + from.begin * element, from.count * element};
  }
  exchange.largest_bytes = call.terms.count * element;
  const auto own = static_cast<size_t>(transport.rank());
  copy_apart(exchange.from[own].data, exchange.to[own].data, exchange.to[own].bytes);
  transport.exchange(call, exchange);
}

void run_shift(Transport& transport, const Call& call, const Shift& args) {
  const int size = transport.size(), rank = transport.rank();
  const int64_t bytes = args.in.bytes();
  if (size == 1) copy_apart(bytes_of(args.out), bytes_of(args.in), bytes);
  Exchange exchange = empty_exchange(transport);
  exchange.to[static_cast<size_t>((rank + 1) % size)] = {bytes_of(args.in), bytes};
  exchange.from[static_cast<size_t>((rank + size - 1) % size)] = {bytes_of(args.out), bytes};
  exchange.largest_bytes = bytes;
  transport.exchange(call, exchange);
}

void run_barrier(Transport& transport, const Call& call) {
  transport.exchange(call, empty_exchange(transport));
}

std::vector<std::byte> run_agreement(Transport& transport, const Call& call,
                                     std::span<const std::byte> mine) {
  const auto bytes = static_cast<int64_t>(mine.size());
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(transport.size()));
  std::byte* own = all.data() + transport.rank() * bytes;
  copy_apart(own, mine.data(), bytes);
  gather_parts(transport, call, all.data(), bytes * transport.size(), 1, -1);
  return all;
}

}  // namespace zinc::comm
