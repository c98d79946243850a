#include "comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "comm/arguments.h"
#include "comm/nccl/checked.h"
#include "comm/nccl/clique.h"
#include "comm/nccl/library.h"
#include "comm/nccl/watchdog.h"
#include "comm/partition.h"
#include "comm/workspace.h"
#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/executor.h"
#include "kernels/tree_sum.h"

namespace zinc::comm {
namespace {

std::byte* bytes_of(const View& view) { return static_cast<std::byte*>(view.data()); }
const std::byte* bytes_of(const ConstView& view) {
  return static_cast<const std::byte*>(view.data());
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    default:
      bug_check(false, "NCCL sums no ", dtype);
      return ncclUint8;
  }
}

// The state that a rank's communicators of one world share.
struct Family {
  Family(Device on, const HostCommunicator& host) : Family(on, *host.endpoint(), host.size()) {}
  Family(Device on, const Endpoint& world, int size)
      : device(on),
        is_alone(size == 1),
        lifeline(world.transport->lifeline()),
        heartbeat(world.heartbeat),
        watchdog(on, {world.transport, &lifeline}, heartbeat,
                 failure_of_device(Context::current().compute())) {}

  Device device;
  bool is_alone;  // the world has one rank, whose groups are NCCL's all the same
  Lifeline& lifeline;
  std::shared_ptr<Heartbeat> heartbeat;
  // Note [One queue for all groups]
  // `last` is the last collective or message that was issued, in any group and on any stream; the
  // next one runs after it. NCCL gives this order to the collectives of one group, and none between
  // two groups. While collectives are recorded, it is the last recorded one. A launch of a graph is
  // issued like one collective.
  Event last;
  bool records = false;
  int64_t num_recorded = 0;  // recorded so far
  Watchdog watchdog;
};

// Collectives of NCCL in a CUDA graph.
class GraphOfCollectives final : public CudaGraph {
 public:
  using Launch = std::function<void(CudaGraph& graph, StreamRef stream)>;
  GraphOfCollectives(std::unique_ptr<CudaGraph> graph, Launch launch)
      : graph_(std::move(graph)), launch_(std::move(launch)) {}
  void launch(StreamRef stream) override { launch_(*graph_, stream); }
  std::vector<CudaKernelUse> kernels() const override { return graph_->kernels(); }

 private:
  std::unique_ptr<CudaGraph> graph_;
  Launch launch_;
};

class Nccl final : public Communicator {
 public:
  Nccl(std::unique_ptr<HostCommunicator> host, std::shared_ptr<Family> family)
      : Communicator(host->rank(), host->size()),
        host_(std::move(host)),
        family_(std::move(family)) {
    set_deadline(host_->deadline());
    set_reduce_algorithm(host_->reduce_algorithm());
    Watched group{.name = host_->endpoint()->group, .others = transport().world_ranks()};
    std::erase(group.others, transport().world_rank());
    group_ = std::make_shared<const Watched>(std::move(group));
    if (size() > 1 || family_->is_alone) guarded([&] { join(); });
  }

  ~Nccl() override {
    if (clique_ == nullptr) return;
    try {
      if (lifeline().raised()) return;  // the clique aborts
      family_->last.wait();
      clique_->close();
    } catch (const std::exception& error) {
      lifeline().raise(error.what());
    }
  }

  std::string_view backend() const override { return "nccl"; }
  bool follows_streams() const override { return true; }

  Work all_gather(const AllGather& args, StreamRef stream) override {
    return issue(checked(args, facts()), stream, [&](const std::string& what) {
      const int64_t bytes = args.shard.bytes();
      if (clique_ == nullptr) {
        return copy_apart(bytes_of(args.out), bytes_of(args.shard), bytes, stream);
      }
      count(bytes * (size() - 1), bytes * (size() - 1));
      if (bytes == 0) return;
      clique_->run(what, [&](ncclComm_t comm) {
        check_nccl(nccl().all_gather(args.shard.data(), args.out.data(), static_cast<size_t>(bytes),
                                     ncclUint8, comm, native(stream)),
                   "ncclAllGather", comm);
      });
    });
  }

  Work reduce_scatter(const ReduceScatter& args, StreamRef stream) override {
    const int64_t room =
        workspace_bytes(Collective::reduce_scatter, args.in.bytes(), args.in.dtype());
    Terms terms = checked(args, facts(), room);
    terms.native = sums_natively() ? 1 : 0;
    return issue(terms, stream, [&](const std::string& what) {
      if (terms.native != 0) return native_reduce_scatter(what, args, stream);
      sum_parts(what,
                {.in = args.in,
                 .out = args.out,
                 .accumulate = args.accumulate,
                 .workspace = args.workspace},
                stream);
    });
  }

  Work all_reduce(const AllReduce& args, StreamRef stream) override {
    const int64_t room =
        workspace_bytes(Collective::all_reduce, args.inout.bytes(), args.inout.dtype());
    Terms terms = checked(args, facts(), room);
    terms.native = sums_natively() ? 1 : 0;
    return issue(terms, stream, [&](const std::string& what) {
      const int64_t n = args.inout.numel();
      const View whole = args.inout.reshape(Shape{n});
      if (terms.native != 0) return native_all_reduce(what, whole, stream);
      // In place: the peers read their own parts of `inout` only, and this rank writes its own.
      const Part mine = part_of(n, size(), rank());
      sum_parts(what,
                {.in = whole,
                 .out = whole.narrow(0, mine.begin, mine.count),
                 .workspace = args.workspace},
                stream);
      gather_parts(what, whole, -1, stream);
    });
  }

  // The root deals the parts out, then every rank passes its own on, as on the host: the root sends
  // 2 (size - 1) / size of the bytes.
  Work broadcast(const Broadcast& args, StreamRef stream) override {
    return issue(checked(args, facts()), stream, [&](const std::string& what) {
      const View whole = args.inout.reshape(Shape{args.inout.numel()});
      exchange(what, stream, [&](const Door& door) {
        for (int p = 0; p < size(); ++p) {
          if (p == args.root) continue;
          const View theirs = part(whole, p);
          if (rank() == args.root) door.send(theirs, p);
          if (rank() == p) door.receive(theirs, args.root);
        }
      });
      gather_parts(what, whole, args.root, stream);
    });
  }

  Work all_to_all(const AllToAll& args, StreamRef stream) override {
    return issue(checked(args, facts()), stream, [&](const std::string& what) {
      const ConstView in = args.in.reshape(Shape{args.in.numel()});
      const View out = args.out.reshape(Shape{args.out.numel()});
      if (family_->is_alone) return send_to_itself(what, in, out, stream);
      const AllToAllBlocks blocks = blocks_of(args, size());
      const auto sent_to = [&](int p) {
        const Part& block = blocks.in[static_cast<size_t>(p)];
        return in.narrow(0, block.begin, block.count);
      };
      const auto received_from = [&](int p) {
        const Part& block = blocks.out[static_cast<size_t>(p)];
        return out.narrow(0, block.begin, block.count);
      };
      copy_apart(bytes_of(received_from(rank())), bytes_of(sent_to(rank())),
                 sent_to(rank()).bytes(), stream);
      exchange(what, stream, [&](const Door& door) {
        for (int p = 0; p < size(); ++p) {
          if (p == rank()) continue;
          door.send(sent_to(p), p);
          door.receive(received_from(p), p);
        }
      });
    });
  }

  Work shift(const Shift& args, StreamRef stream) override {
    return issue(checked(args, facts()), stream, [&](const std::string& what) {
      if (family_->is_alone) return send_to_itself(what, args.in, args.out, stream);
      if (size() == 1) {
        return copy_apart(bytes_of(args.out), bytes_of(args.in), args.in.bytes(), stream);
      }
      exchange(what, stream, [&](const Door& door) {
        door.send(args.in, (rank() + 1) % size());
        door.receive(args.out, (rank() + size() - 1) % size());
      });
    });
  }

  Work send(ConstView data, int destination, int tag, StreamRef stream) override {
    return message(data, destination, tag, true, stream,
                   [&](const Door& door) { door.send(data, destination); });
  }
  Work receive(View data, int source, int tag, StreamRef stream) override {
    return message(data, source, tag, false, stream,
                   [&](const Door& door) { door.receive(data, source); });
  }

  Work barrier(StreamRef stream) override {
    return issue({.operation = Operation::barrier}, stream, [&](const std::string& what) {
      if (size() == 1) return exchange(what, stream, [](const Door&) {});
      const Block room = barrier_room(backend(), size(), stream);
      auto* token = static_cast<std::byte*>(room.data());
      clique_->run(what, [&](ncclComm_t comm) {
        check_nccl(nccl().all_gather(token + rank(), token, 1, ncclUint8, comm, native(stream)),
                   "ncclAllGather", comm);
      });
    });
  }

  std::unique_ptr<CudaGraph> record(StreamRef stream, const std::function<void()>& body) override {
    bug_check(!family_->records, "a recording inside another");
    const int64_t sent = sent_, received = received_, recorded = family_->num_recorded;
    // Collectives that were issued before the recording come before a launch; they are not part of
    // the graph.
    const Event last = std::exchange(family_->last, Event());
    family_->records = true;
    std::unique_ptr<CudaGraph> graph;
    std::exception_ptr failure;
    try {
      graph = record_cuda_graph(stream, body);
    } catch (...) {
      failure = std::current_exception();
    }
    family_->records = false;
    family_->last = last;
    const Moved moved{.collectives = family_->num_recorded - recorded,
                      .sent = std::exchange(sent_, sent) - sent,
                      .received = std::exchange(received_, received) - received};
    if (failure != nullptr) std::rethrow_exception(failure);
    if (moved.collectives == 0) return graph;
    return std::make_unique<GraphOfCollectives>(
        std::move(graph), [this, moved](CudaGraph& of, StreamRef on) { launch(of, moved, on); });
  }

  int64_t workspace_bytes(Collective collective, int64_t bytes, DType dtype) const override {
    return workspace_bytes_of(backend(), collective, bytes, dtype, size(), reduce_algorithm());
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    check_alive("split");
    family_->last.wait();
    host_->set_deadline(deadline());
    host_->set_reduce_algorithm(reduce_algorithm());
    std::unique_ptr<Communicator> group = host_->split(color, key);
    if (group == nullptr) return nullptr;
    std::unique_ptr<HostCommunicator> of_host(static_cast<HostCommunicator*>(group.release()));
    return std::make_unique<Nccl>(std::move(of_host), family_);
  }

  void describe_ranks(std::function<std::string(int world_rank)> describe) override {
    host_->describe_ranks(std::move(describe));
  }
  void abort(std::string_view reason) noexcept override { lifeline().raise(reason); }
  int64_t bytes_sent() const override { return sent_; }
  int64_t bytes_received() const override { return received_; }

 private:
  // The traffic of one launch.
  struct Moved {
    int64_t collectives = 0;
    int64_t sent = 0, received = 0;
  };
  void launch(CudaGraph& graph, const Moved& moved, StreamRef stream) {
    check_alive("a launch of recorded collectives");
    const std::string what = str("a launch of ", moved.collectives, " recorded collectives");
    fly({.terms = {.operation = Operation::message}, .message = what}, what, stream,
        [&](const std::string&) { graph.launch(stream); });
    count(moved.sent, moved.received);
  }

  // Sends and receives of one group of NCCL; counts them.
  struct Door {
    Nccl& of;
    ncclComm_t comm;
    cudaStream_t stream;
    void send(const ConstView& data, int peer) const {
      if (data.bytes() == 0) return;
      of.sent_ += data.bytes();
      check_nccl(nccl().send(data.data(), static_cast<size_t>(data.bytes()), ncclUint8, peer, comm,
                             stream),
                 "ncclSend", comm);
    }
    void receive(const View& data, int peer) const {
      if (data.bytes() == 0) return;
      of.received_ += data.bytes();
      check_nccl(nccl().recv(data.data(), static_cast<size_t>(data.bytes()), ncclUint8, peer, comm,
                             stream),
                 "ncclRecv", comm);
    }
  };

  struct Sum {
    ConstView in;  // [n]
    View out;      // [this rank's part of n]
    bool accumulate = false;
    View workspace;
  };

  Transport& transport() const { return *host_->endpoint()->transport; }
  Lifeline& lifeline() const { return family_->lifeline; }
  GroupFacts facts() const { return {.rank = rank(), .size = size(), .device = family_->device}; }
  bool sums_natively() const {
    return reduce_algorithm() == ReduceAlgorithm::native && clique_ != nullptr;
  }
  static cudaStream_t native(StreamRef stream) {
    return static_cast<cudaStream_t>(stream->native());
  }
  View part(const View& whole, int of) const {
    const Part place = part_of(whole.numel(), size(), of);
    return whole.narrow(0, place.begin, place.count);
  }
  void count(int64_t sent, int64_t received) {
    sent_ += sent;
    received_ += received;
  }

  void check_alive(std::string_view op) const {
    if (lifeline().raised()) throw_stopped(str(op, " on an aborted communicator"), lifeline());
  }

  // A failure of any kind reaches all ranks.
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      lifeline().raise(error.what());
      family_->watchdog.give_up(error.what());
      throw;
    }
  }

  void join() {
    const auto here = make_inline_stream("nccl", 0, nullptr);
    ncclUniqueId id{};
    if (rank() == 0) id = new_clique_id();
    host_->broadcast({.inout = View(&id, DType::u8, Shape{int64_t{sizeof id}})}, *here).wait();
    clique_ = std::make_shared<Clique>(
        CliqueOptions{.id = id,
                      .rank = rank(),
                      .size = size(),
                      .device = family_->device,
                      .deadline = deadline(),
                      .others = group_->others,
                      .lifeline = {host_->endpoint()->transport, &lifeline()}});
    family_->watchdog.keep(clique_);
  }

  template <class Body>
  Work fly(Flight flight, const std::string& what, StreamRef stream, const Body& body) {
    require(stream->kind() == StreamKind::cuda, what, ": NCCL needs a stream of ", family_->device);
    if (family_->records) return fly_recorded(what, stream, body);
    bug_check(!is_recording(stream), what, ": into a graph that this communicator does not record");
    flight.group = group_;
    flight.deadline = deadline();
    stream->wait(family_->last);  // Note [One queue for all groups]
    flight.begun = stream->record();
    family_->watchdog.watch(std::move(flight));
    guarded([&] { body(what); });
    family_->last = stream->record();
    family_->watchdog.queued(family_->last);
    return Work(family_->last);
  }

  // Adds work to the graph, in order after the graph's other collectives. Nothing is under way, so
  // there is nothing to watch.
  template <class Body>
  Work fly_recorded(const std::string& what, StreamRef stream, const Body& body) {
    stream->wait(family_->last);
    bug_check(is_recording(stream), what, ": its stream is not part of the recording");
    guarded([&] { body(what); });
    ++family_->num_recorded;
    family_->last = stream->record();
    return Work(family_->last);
  }

  template <class Body>
  Work issue(Terms terms, StreamRef stream, const Body& body) {
    check_alive(name_of(terms.operation));
    terms.sequence = ++last_sequence_;
    if (family_->heartbeat != nullptr && !family_->records) {
      family_->heartbeat->issued(terms, group_->name);
    }
    return fly({.terms = terms}, to_string(terms), stream, body);
  }

  template <class Body>
  Work message(const ConstView& data, int peer, int tag, bool sending, StreamRef stream,
               const Body& body) {
    const std::string_view op = sending ? "send" : "receive";
    check_message(data, peer, tag, facts(), op);
    check_alive(op);
    const Message described{.peer = peer,
                            .tag = tag,
                            .sequence = ++last_message_[{peer, sending}],
                            .bytes = data.bytes(),
                            .sending = sending};
    const std::string what = describe(described, transport().world_rank(peer));
    return fly({.terms = {.operation = Operation::message}, .message = what}, what, stream,
               [&](const std::string& name) { exchange(name, stream, body); });
  }

  // Runs `body` as one group of NCCL's sends and receives; does nothing without a clique.
  template <class Body>
  void exchange(const std::string& what, StreamRef stream, const Body& body) {
    if (clique_ == nullptr) return;
    clique_->run(what, [&](ncclComm_t comm) { body(Door{*this, comm, native(stream)}); });
  }

  void send_to_itself(const std::string& what, const ConstView& from, const View& to,
                      StreamRef stream) {
    exchange(what, stream, [&](const Door& door) {
      door.send(from, rank());
      door.receive(to, rank());
    });
    count(-from.bytes(), -to.bytes());  // nothing left this rank
  }

  static void copy_apart(std::byte* to, const std::byte* from, int64_t bytes, StreamRef stream) {
    if (bytes > 0 && to != from) cuda_copy(to, from, bytes, stream);
  }

  // Sends rank r's part of `whole` from r to all ranks but `without`.
  void gather_parts(const std::string& what, const View& whole, int without, StreamRef stream) {
    exchange(what, stream, [&](const Door& door) {
      for (int p = 0; p < size(); ++p) {
        if (p == rank()) continue;
        if (p != without) door.send(part(whole, rank()), p);
        if (rank() != without) door.receive(part(whole, p), p);
      }
    });
  }

  // Sums piece by piece: the ranks' pieces of this rank's part meet in the workspace, by rank.
  void sum_parts(const std::string& what, const Sum& sum, StreamRef stream) {
    const int64_t n = sum.in.numel();
    const ConstView in = sum.in.reshape(Shape{n});
    const View out = sum.out.reshape(Shape{sum.out.numel()});
    if (n == 0) return;
    if (size() == 1) {
      return kernels::tree_sum(
          {.in = in.reshape(Shape{1, n}), .out = out, .accumulate = sum.accumulate}, stream);
    }
    const int64_t element = size_of(in.dtype());
    const int64_t width = part_of(n, size(), 0).count;
    const int64_t step = nccl_piece_bytes(width * element, size()) / element;
    const View rows(sum.workspace.data(), in.dtype(), Shape{size(), step}, family_->device);
    for (int64_t first = 0; first < width; first += step) {
      const auto piece_of = [&](int of) {
        const Part whole = part_of(n, size(), of);
        const int64_t begin = std::min(first, whole.count);
        return Part{.begin = whole.begin + begin, .count = std::min(step, whole.count - begin)};
      };
      const Part mine = piece_of(rank());
      const auto row = [&](int of) { return rows.narrow(0, of, 1).narrow(1, 0, mine.count); };
      exchange(what, stream, [&](const Door& door) {
        for (int p = 0; p < size(); ++p) {
          if (p == rank()) continue;
          const Part theirs = piece_of(p);
          door.send(in.narrow(0, theirs.begin, theirs.count), p);
          door.receive(row(p), p);
        }
      });
      if (mine.count == 0) continue;
      copy_apart(bytes_of(row(rank())), bytes_of(in.narrow(0, mine.begin, mine.count)),
                 mine.count * element, stream);
      kernels::tree_sum({.in = rows.narrow(1, 0, mine.count),
                         .out = out.narrow(0, first, mine.count),
                         .accumulate = sum.accumulate},
                        stream);
    }
  }

  // NCCL overwrites the output in the dtype of `in`; the rest is a sum of one array.
  void native_reduce_scatter(const std::string& what, const ReduceScatter& args, StreamRef stream) {
    const int64_t n = args.out.numel();
    const int64_t moved = n * size_of(args.in.dtype()) * (size() - 1);
    count(moved, moved);
    if (n == 0) return;
    const bool direct = !args.accumulate && args.out.dtype() == args.in.dtype();
    if (size() == 1 && !direct) {  // a group of one rank has no workspace
      return sum_parts(what, {.in = args.in, .out = args.out, .accumulate = args.accumulate},
                       stream);
    }
    const View sum(direct ? args.out.data() : args.workspace.data(), args.in.dtype(), Shape{1, n},
                   family_->device);
    clique_->run(what, [&](ncclComm_t comm) {
      check_nccl(nccl().reduce_scatter(args.in.data(), sum.data(), static_cast<size_t>(n),
                                       type_of(sum.dtype()), ncclSum, comm, native(stream)),
                 "ncclReduceScatter", comm);
    });
    if (direct) return;
    kernels::tree_sum({.in = sum, .out = args.out.reshape(Shape{n}), .accumulate = args.accumulate},
                      stream);
  }

  void native_all_reduce(const std::string& what, const View& whole, StreamRef stream) {
    const int64_t n = whole.numel();
    const int64_t moved = 2 * (n - n / size()) * size_of(whole.dtype());
    count(moved, moved);
    if (n == 0) return;
    clique_->run(what, [&](ncclComm_t comm) {
      check_nccl(nccl().all_reduce(whole.data(), whole.data(), static_cast<size_t>(n),
                                   type_of(whole.dtype()), ncclSum, comm, native(stream)),
                 "ncclAllReduce", comm);
    });
  }

  std::unique_ptr<HostCommunicator> host_;
  std::shared_ptr<Family> family_;
  std::shared_ptr<const Watched> group_;
  std::shared_ptr<Clique> clique_;  // null: a group of one rank in a larger world
  uint64_t last_sequence_ = 0;
  std::map<std::pair<int, bool>, uint64_t> last_message_;  // by (peer, sending)
  int64_t sent_ = 0;
  int64_t received_ = 0;
};

}  // namespace

bool built_with_nccl() { return true; }
std::string why_no_nccl() { return nccl_or_missing().missing; }

std::string nccl_version() {
  if (!why_no_nccl().empty()) return "";
  int version = 0;
  check_nccl(nccl().get_version(&version), "ncclGetVersion");
  return str(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

std::unique_ptr<Communicator> make_nccl(std::unique_ptr<HostCommunicator> host, Device device) {
  auto family = std::make_shared<Family>(device, *host);
  return std::make_unique<Nccl>(std::move(host), std::move(family));
}

}  // namespace zinc::comm
