#include "comm/host_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <span>
#include <vector>

#include "comm/arguments.h"
#include "comm/host_exchanges.h"
#include "comm/partition.h"
#include "comm/workspace.h"
#include "core/error.h"

namespace zinc::comm {
namespace {

// The colour and key that a rank brings to a split.
struct Wish {
  int32_t color = 0;
  int32_t key = 0;
};

SplitPlan plan_of(const std::vector<std::byte>& wishes, int size, int rank, uint64_t sequence) {
  std::vector<Wish> by_rank(static_cast<size_t>(size));
  std::memcpy(by_rank.data(), wishes.data(), wishes.size());
  const int color = by_rank[static_cast<size_t>(rank)].color;
  SplitPlan plan{.members = {}, .index = -1, .color = color, .sequence = sequence};
  if (color < 0) return plan;
  for (int r = 0; r < size; ++r) {
    if (by_rank[static_cast<size_t>(r)].color == color) plan.members.push_back(r);
  }
  std::ranges::stable_sort(plan.members, {},
                           [&](int r) { return by_rank[static_cast<size_t>(r)].key; });
  plan.index = static_cast<int>(std::ranges::find(plan.members, rank) - plan.members.begin());
  return plan;
}

// The places of the group's ranks, for the end of an error's text.
std::string places_for_error(const Endpoint& endpoint) {
  constexpr size_t kMost = 64;
  const std::vector<int>& ranks = endpoint.transport->world_ranks();
  if (!endpoint.describe || ranks.size() > kMost) return "";
  std::string text;
  for (const int rank : ranks) text += str(text.empty() ? "" : ", ", endpoint.describe(rank));
  return str("\nranks that meet here: ", text);
}

// Runs `body`; a failure of any kind reaches all ranks.
template <class Body>
void guarded(const Endpoint& endpoint, const Body& body) {
  Transport& transport = *endpoint.transport;
  try {
    body(transport);
  } catch (const CommError& error) {
    transport.lifeline().raise(error.what());
    const std::string places = places_for_error(endpoint);
    if (endpoint.heartbeat == nullptr && places.empty()) throw;
    throw CommError(str(error.what(), places, heartbeats_for_error(endpoint.heartbeat)));
  } catch (const std::exception& error) {
    transport.lifeline().raise(error.what());
    throw;
  }
}

}  // namespace

HostCommunicator::HostCommunicator(std::string_view backend, std::shared_ptr<Transport> transport,
                                   std::shared_ptr<Heartbeat> heartbeat, std::string group)
    : Communicator(transport->rank(), transport->size()), backend_(backend) {
  endpoint_ = std::make_shared<Endpoint>();
  endpoint_->transport = std::move(transport);
  endpoint_->heartbeat = std::move(heartbeat);
  endpoint_->group = std::move(group);
}

void HostCommunicator::check_alive(std::string_view op) const {
  const Lifeline& lifeline = endpoint_->transport->lifeline();
  if (!lifeline.raised()) return;
  throw CommError(str(op, " on an aborted communicator stopped: ", lifeline.text(),
                      places_for_error(*endpoint_)));
}

Call HostCommunicator::next_call(Terms terms, int meetings) {
  check_alive(name_of(terms.operation));
  terms.sequence = ++last_sequence_;
  terms.meeting = last_meeting_ + 1;
  last_meeting_ += static_cast<uint64_t>(meetings);
  return {.terms = terms, .deadline = deadline()};
}

Call HostCommunicator::next_sum(Terms terms, int meetings) {
  if (reduce_algorithm() == ReduceAlgorithm::ordered || !endpoint_->transport->sums_natively()) {
    return next_call(terms, meetings);
  }
  require(terms.operation == Operation::all_reduce ||
              terms.count <= std::numeric_limits<int32_t>::max(),
          "reduce_scatter: a native sum has at most 2^31 - 1 elements per rank, not ", terms.count);
  terms.native = 1;
  Call call = next_call(terms, meetings);
  call.native_order = ++last_native_;
  return call;
}

template <class Body>
Work HostCommunicator::issue(const char* label, const Call& call, StreamRef stream, Body body) {
  if (endpoint_->heartbeat != nullptr) endpoint_->heartbeat->issued(call.terms, endpoint_->group);
  const auto meet = [endpoint = endpoint_, call, body] {
    guarded(*endpoint, [&](Transport& transport) { body(transport, call); });
    if (endpoint->heartbeat != nullptr) endpoint->heartbeat->completed(call.terms, endpoint->group);
  };
  // Note [Host tasks in a GPU's streams]
  // One thread of CUDA's driver may run the host tasks of all streams, also of ranks that are
  // threads of one process: none of these tasks may wait for another, so the caller meets the other
  // ranks itself.
  if (stream->kind() == StreamKind::cuda) {
    stream->synchronize();
    meet();
    return Work(stream->record());
  }
  // One thread runs all shuffled streams of a rank. Ranks that took the collectives of two streams
  // in different orders would wait for each other for ever.
  const bool one_thread = stream->kind() == StreamKind::shuffled;
  if (one_thread) stream->wait(last_in_one_thread_);
  stream.submit(label, meet);
  Event done = stream->record();
  if (one_thread) last_in_one_thread_ = done;
  return Work(std::move(done));
}

Work HostCommunicator::all_gather(const AllGather& args, StreamRef stream) {
  const Call call = next_call(checked(args, {.rank = rank(), .size = size()}), 1);
  return issue("all_gather", call, stream, [args](Transport& transport, const Call& run) {
    run_all_gather(transport, run, args);
  });
}

Work HostCommunicator::reduce_scatter(const ReduceScatter& args, StreamRef stream) {
  const int64_t room =
      workspace_bytes(Collective::reduce_scatter, args.in.bytes(), args.in.dtype());
  const Call call = next_sum(checked(args, {.rank = rank(), .size = size()}, room), 1);
  return issue("reduce_scatter", call, stream, [args](Transport& transport, const Call& run) {
    run_reduce_scatter(transport, run, args);
  });
}

Work HostCommunicator::all_reduce(const AllReduce& args, StreamRef stream) {
  const int64_t room =
      workspace_bytes(Collective::all_reduce, args.inout.bytes(), args.inout.dtype());
  const Call call = next_sum(checked(args, {.rank = rank(), .size = size()}, room), 2);
  return issue("all_reduce", call, stream, [args](Transport& transport, const Call& run) {
    run_all_reduce(transport, run, args);
  });
}

Work HostCommunicator::broadcast(const Broadcast& args, StreamRef stream) {
  const Call call = next_call(checked(args, {.rank = rank(), .size = size()}), 2);
  return issue("broadcast", call, stream, [args](Transport& transport, const Call& run) {
    run_broadcast(transport, run, args);
  });
}

Work HostCommunicator::all_to_all(const AllToAll& args, StreamRef stream) {
  const Call call = next_call(checked(args, {.rank = rank(), .size = size()}), 1);
  return issue("all_to_all", call, stream,
               [args, blocks = blocks_of(args, size())](Transport& transport, const Call& run) {
                 run_all_to_all(transport, run, args, blocks);
               });
}

Work HostCommunicator::shift(const Shift& args, StreamRef stream) {
  const Call call = next_call(checked(args, {.rank = rank(), .size = size()}), 1);
  return issue("shift", call, stream,
               [args](Transport& transport, const Call& run) { run_shift(transport, run, args); });
}

Work HostCommunicator::barrier(StreamRef stream) {
  const Call call = next_call({.operation = Operation::barrier}, 1);
  return issue("barrier", call, stream,
               [](Transport& transport, const Call& run) { run_barrier(transport, run); });
}

Message HostCommunicator::next_message(const ConstView& data, int peer, int tag, bool sending) {
  const std::string_view op = sending ? "send" : "receive";
  check_message(data, peer, tag, {.rank = rank(), .size = size()}, op);
  check_alive(op);
  auto& last = sending ? last_sent_ : last_received_;
  return {.peer = peer,
          .tag = tag,
          .sequence = ++last[{peer, tag}],
          .bytes = data.bytes(),
          .sending = sending,
          .deadline = deadline()};
}

template <class Body>
Work HostCommunicator::issue_message(const char* label, const Message& message, StreamRef stream,
                                     Body body) {
  stream.submit(label, [endpoint = endpoint_, message, body] {
    guarded(*endpoint, [&](Transport& transport) { body(transport, message); });
  });
  return Work(stream->record());
}

Work HostCommunicator::send(ConstView data, int destination, int tag, StreamRef stream) {
  const Message message = next_message(data, destination, tag, true);
  const auto* bytes = static_cast<const std::byte*>(data.data());
  return issue_message("send", message, stream, [bytes](Transport& transport, const Message& run) {
    transport.send(run, bytes);
  });
}

Work HostCommunicator::receive(View data, int source, int tag, StreamRef stream) {
  const Message message = next_message(data, source, tag, false);
  auto* bytes = static_cast<std::byte*>(data.data());
  return issue_message(
      "receive", message, stream,
      [bytes](Transport& transport, const Message& run) { transport.receive(run, bytes); });
}

int64_t HostCommunicator::workspace_bytes(Collective collective, int64_t bytes, DType dtype) const {
  return workspace_bytes_of(backend_, collective, bytes, dtype, size(), reduce_algorithm());
}

std::unique_ptr<Communicator> HostCommunicator::split(int color, int key) {
  const Call call = next_call({.operation = Operation::split}, 1);
  SplitPlan plan;
  std::shared_ptr<Transport> transport;
  guarded(*endpoint_, [&](Transport& parent) {
    Call step = call;
    const Transport::Agree agree = [&](std::span<const std::byte> mine) {
      std::vector<std::byte> all = run_agreement(parent, step, mine);
      step.terms.meeting = ++last_meeting_;
      return all;
    };
    const Wish wish{.color = color, .key = key};
    plan = plan_of(agree(std::as_bytes(std::span(&wish, 1))), size(), rank(), call.terms.sequence);
    transport = parent.split(plan, agree);
  });
  ++num_splits_;
  if (transport == nullptr) return nullptr;
  auto group =
      std::make_unique<HostCommunicator>(backend_, std::move(transport), endpoint_->heartbeat,
                                         str(endpoint_->group, "/", num_splits_, ".", color));
  group->describe_ranks(endpoint_->describe);
  group->set_deadline(deadline());
  group->set_reduce_algorithm(reduce_algorithm());
  return group;
}

void HostCommunicator::describe_ranks(std::function<std::string(int world_rank)> describe) {
  endpoint_->describe = std::move(describe);
  if (endpoint_->heartbeat == nullptr) return;
  const int mine = endpoint_->transport->world_ranks()[static_cast<size_t>(rank())];
  endpoint_->heartbeat->call_it(endpoint_->describe ? endpoint_->describe(mine)
                                                    : str("rank ", mine));
}

void HostCommunicator::abort(std::string_view reason) noexcept {
  endpoint_->transport->lifeline().raise(reason);
}

}  // namespace zinc::comm
