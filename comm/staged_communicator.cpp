#include "comm/staged_communicator.h"

#include <string_view>
#include <utility>

#include "comm/arguments.h"
#include "core/context.h"
#include "core/transfer.h"
#include "kernels/accumulate.h"

namespace zinc::comm {
namespace {

// Pinned memory in two guises: as transfer() takes it, and as a host backend does.
struct Staging {
  Block block;
  View pinned;
  View host;
};

class Staged final : public Communicator {
 public:
  Staged(std::unique_ptr<Communicator> host, Device device)
      : Communicator(host->rank(), host->size()), host_(std::move(host)), device_(device) {
    set_deadline(host_->deadline());
    set_reduce_algorithm(host_->reduce_algorithm());
  }

  std::string_view backend() const override { return host_->backend(); }

  Work all_gather(const AllGather& args, StreamRef stream) override {
    checked(args, facts());
    if (size() == 1) return keep(args.shard, args.out, stream);
    const Staging out = take(args.out, stream);
    const View own = out.pinned.narrow(0, rank() * args.shard.numel(), args.shard.numel());
    transfer(flat(args.shard), own, stream);
    host().all_gather(
        {.shard = out.host.narrow(0, rank() * args.shard.numel(), own.numel()), .out = out.host},
        stream);
    transfer(out.pinned, flat(args.out), stream);
    return Work(stream->record());
  }

  Work reduce_scatter(const ReduceScatter& args, StreamRef stream) override {
    checked(args, facts(), 0);
    if (size() == 1 && args.in.data() != args.out.data()) {
      kernels::accumulate(
          {.x = flat(args.in), .accumulator = flat(args.out), .overwrite = !args.accumulate},
          stream);
      return Work(stream->record());
    }
    const Staging in = take(args.in, stream);
    const Staging out = take(args.out, stream);
    const Staging room = take_room(
        host_->workspace_bytes(Collective::reduce_scatter, args.in.bytes(), args.in.dtype()),
        stream);
    transfer(flat(args.in), in.pinned, stream);
    if (args.accumulate) transfer(flat(args.out), out.pinned, stream);
    host().reduce_scatter(
        {.in = in.host, .out = out.host, .accumulate = args.accumulate, .workspace = room.host},
        stream);
    transfer(out.pinned, flat(args.out), stream);
    return Work(stream->record());
  }

  Work all_reduce(const AllReduce& args, StreamRef stream) override {
    checked(args, facts(), 0);
    if (size() == 1) return Work(stream->record());
    const Staging inout = take(args.inout, stream);
    const Staging room = take_room(
        host_->workspace_bytes(Collective::all_reduce, args.inout.bytes(), args.inout.dtype()),
        stream);
    transfer(flat(args.inout), inout.pinned, stream);
    host().all_reduce({.inout = inout.host, .workspace = room.host}, stream);
    transfer(inout.pinned, flat(args.inout), stream);
    return Work(stream->record());
  }

  Work broadcast(const Broadcast& args, StreamRef stream) override {
    checked(args, facts());
    if (size() == 1) return Work(stream->record());
    const Staging inout = take(args.inout, stream);
    if (rank() == args.root) transfer(flat(args.inout), inout.pinned, stream);
    host().broadcast({.inout = inout.host, .root = args.root}, stream);
    if (rank() != args.root) transfer(inout.pinned, flat(args.inout), stream);
    return Work(stream->record());
  }

  Work all_to_all(const AllToAll& args, StreamRef stream) override {
    checked(args, facts());
    return exchanged(args, stream, &Communicator::all_to_all);
  }

  Work shift(const Shift& args, StreamRef stream) override {
    checked(args, facts());
    return exchanged(args, stream, &Communicator::shift);
  }

  Work send(ConstView data, int destination, int tag, StreamRef stream) override {
    check_message(data, destination, tag, facts(), "send");
    const Staging staged = take(data, stream);
    transfer(flat(data), staged.pinned, stream);
    return host().send(staged.host, destination, tag, stream);
  }

  Work receive(View data, int source, int tag, StreamRef stream) override {
    check_message(data, source, tag, facts(), "receive");
    const Staging staged = take(data, stream);
    host().receive(staged.host, source, tag, stream);
    transfer(staged.pinned, flat(data), stream);
    return Work(stream->record());
  }

  Work barrier(StreamRef stream) override { return host().barrier(stream); }

  int64_t workspace_bytes(Collective, int64_t, DType) const override { return 0; }

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::unique_ptr<Communicator> group = host().split(color, key);
    return group == nullptr ? nullptr : make_staged(std::move(group), device_);
  }

  void abort(std::string_view reason) noexcept override { host_->abort(reason); }
  int64_t bytes_sent() const override { return host_->bytes_sent(); }
  int64_t bytes_received() const override { return host_->bytes_received(); }

 private:
  GroupFacts facts() const { return {.rank = rank(), .size = size(), .device = device_}; }

  // The host's communicator with the settings of this object, which is the one that callers set.
  Communicator& host() {
    host_->set_deadline(deadline());
    host_->set_reduce_algorithm(reduce_algorithm());
    return *host_;
  }

  template <class AnyView>
  static AnyView flat(const AnyView& view) {
    return view.reshape(Shape{view.numel()});
  }

  template <class Args>
  Work exchanged(const Args& args, StreamRef stream,
                 Work (Communicator::*run)(const Args&, StreamRef)) {
    if (size() == 1) return keep(args.in, args.out, stream);
    const Staging in = take(args.in, stream);
    const Staging out = take(args.out, stream);
    transfer(flat(args.in), in.pinned, stream);
    Args staged = args;
    staged.in = in.host;
    staged.out = out.host;
    (host().*run)(staged, stream);
    transfer(out.pinned, flat(args.out), stream);
    return Work(stream->record());
  }

  Work keep(const ConstView& from, const View& to, StreamRef stream) {
    if (from.data() != to.data()) transfer(flat(from), flat(to), stream);
    return Work(stream->record());
  }

  Staging take(const ConstView& like, StreamRef stream) {
    Staging staging;
    staging.block = Context::current().allocator().allocate(like.bytes(), Tier::pinned_host,
                                                            Label::communication, stream);
    const Shape shape{like.numel()};
    const Device cpu{.kind = DeviceKind::cpu, .index = 0, .meta = device_.meta};
    staging.pinned = View(staging.block.data(), like.dtype(), shape, device_, Tier::pinned_host);
    staging.host = View(staging.block.data(), like.dtype(), shape, cpu);
    return staging;
  }
  Staging take_room(int64_t bytes, StreamRef stream) {
    const ConstView like(nullptr, DType::u8, Shape{bytes}, device_);
    return take(like, stream);
  }

  std::unique_ptr<Communicator> host_;
  Device device_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host, Device device) {
  return std::make_unique<Staged>(std::move(host), device);
}

}  // namespace zinc::comm
