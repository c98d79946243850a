#include "comm/mpi/wire_transport.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "comm/host_exchanges.h"
#include "comm/mpi/checked.h"
#include "comm/mpi/host_segment.h"
#include "comm/shared/shared_lifeline.h"
#include "comm/shared/shared_transport.h"
#include "comm/workspace.h"

namespace zinc::comm {
namespace {

// Tags are two to an exchange: terms, then data. They come round again after 2^21 exchanges of a
// group, which no two streams of a rank are apart.
constexpr uint64_t kTagsPerKind = uint64_t{1} << 21;
// Messages: as many numbers to each of the user's tags.
constexpr uint64_t kNumbersPerTag = kTagsPerKind / kNumMessageTags;

int terms_tag(uint64_t place) { return static_cast<int>(place % kTagsPerKind * 2); }
int data_tag(uint64_t place) { return terms_tag(place) + 1; }

uint64_t place_of(const Message& message) {
  return static_cast<uint64_t>(message.tag) * kNumbersPerTag + message.sequence % kNumbersPerTag;
}

// MPI takes the bytes to send by a pointer to const; WireMessage has one pointer for both ways.
WireMessage sent(int peer, int tag, const void* data, int64_t bytes) {
  return {peer, tag, static_cast<std::byte*>(const_cast<void*>(data)), bytes, true};
}

// What a rank tells a peer before an exchange.
struct Offer {
  Terms terms;
  int64_t bytes = 0;  // of the rank's message to the peer
};

Terms wire_terms_of(const Message& message) {
  return {.sequence = message.sequence, .count = message.bytes, .operation = Operation::message};
}

}  // namespace

WireTransport::WireTransport(std::shared_ptr<MpiSession> session, MPI_Comm exchanges,
                             MPI_Comm messages, int rank, std::vector<int> world_ranks,
                             bool shared_memory)
    : Transport(rank, std::move(world_ranks),
                std::shared_ptr<Lifeline>(session, &session->lifeline())),
      session_(std::move(session)),
      exchanges_(exchanges),
      messages_(messages),
      shared_memory_(shared_memory) {}

template <class Body>
void WireTransport::guarded(const Body& body) {
  try {
    body();
  } catch (const std::exception& failure) {
    session_->give_up(failure.what());
    throw;
  }
}

void WireTransport::wait(const WireBatch& batch, const Call& call) {
  session_->wait(batch, to_string(call.terms), world_ranks(), call.deadline);
}

void WireTransport::exchange(const Call& call, const Exchange& exchange) {
  guarded([&] {
    compare_offers(call, &exchange);
    if (exchange.take) {
      take_pieces(call, exchange);
    } else {
      deliver(call, exchange);
    }
  });
  int64_t bytes_out = 0;
  int64_t bytes_in = 0;
  for (size_t p = 0; p < exchange.to.size(); ++p) {
    if (p == static_cast<size_t>(rank())) continue;
    bytes_out += exchange.to[p].bytes;
    bytes_in += exchange.from[p].bytes;
  }
  count_sent(bytes_out);
  count_received(bytes_in);
}

void WireTransport::compare_offers(const Call& call, const Exchange* exchange) {
  const auto num_ranks = static_cast<size_t>(size());
  std::vector<Offer> mine(num_ranks), theirs(num_ranks);
  const auto batch = std::make_shared<WireBatch>();
  batch->comm = exchanges_;
  const int tag = terms_tag(call.terms.meeting);
  for (int p = 0; p < size(); ++p) {
    const auto place = static_cast<size_t>(p);
    mine[place] = {call.terms, exchange == nullptr ? 0 : exchange->to[place].bytes};
    if (p == rank()) continue;
    batch->messages.push_back(sent(p, tag, &mine[place], sizeof(Offer)));
    auto* incoming = reinterpret_cast<std::byte*>(&theirs[place]);
    batch->messages.push_back({p, tag, incoming, sizeof(Offer), false});
  }
  session_->post(batch);
  wait(*batch, call);
  std::vector<Terms> terms(num_ranks, call.terms);
  for (int p = 0; p < size(); ++p) {
    if (p != rank()) terms[static_cast<size_t>(p)] = theirs[static_cast<size_t>(p)].terms;
  }
  const auto differs = [&](const Terms& others) { return !(others == call.terms); };
  if (std::ranges::any_of(terms, differs)) throw_disagreement(terms, rank(), world_ranks());
  for (int p = 0; p < size() && exchange != nullptr; ++p) {
    const auto place = static_cast<size_t>(p);
    if (p == rank()) continue;
    compare_size(call.terms, *this, p, theirs[place].bytes, exchange->from[place].bytes);
  }
}

void WireTransport::deliver(const Call& call, const Exchange& exchange) {
  const auto batch = std::make_shared<WireBatch>();
  batch->comm = exchanges_;
  const int tag = data_tag(call.terms.meeting);
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const Incoming& in = exchange.from[static_cast<size_t>(p)];
    const Outgoing& out = exchange.to[static_cast<size_t>(p)];
    if (in.bytes > 0) batch->messages.push_back({p, tag, in.data, in.bytes, false});
    if (out.bytes > 0) batch->messages.push_back(sent(p, tag, out.data, out.bytes));
  }
  session_->post(batch);
  wait(*batch, call);
}

// Bytes [begin, begin + piece_bytes) of every message; what comes in lies in `incoming`, a piece
// for each peer in the order of ranks.
std::shared_ptr<WireBatch> WireTransport::batch_of_piece(const Call& call, const Exchange& exchange,
                                                         int64_t begin, int64_t piece_bytes,
                                                         std::byte* incoming) {
  auto batch = std::make_shared<WireBatch>();
  batch->comm = exchanges_;
  const int tag = data_tag(call.terms.meeting);
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    const Outgoing& out = exchange.to[static_cast<size_t>(p)];
    const int64_t in_bytes =
        std::clamp<int64_t>(exchange.from[static_cast<size_t>(p)].bytes - begin, 0, piece_bytes);
    const int64_t out_bytes = std::clamp<int64_t>(out.bytes - begin, 0, piece_bytes);
    if (in_bytes > 0) batch->messages.push_back({p, tag, incoming, in_bytes, false});
    if (out_bytes > 0) batch->messages.push_back(sent(p, tag, out.data + begin, out_bytes));
    incoming += piece_bytes;
  }
  session_->post(batch);
  return batch;
}

void WireTransport::take_pieces(const Call& call, const Exchange& exchange) {
  const int64_t piece_bytes =
      std::max<int64_t>(64, reduce_piece_bytes(exchange.largest_bytes, size()));
  const int64_t round_bytes = (size() - 1) * piece_bytes;
  const int64_t mine = exchange.from[static_cast<size_t>(rank())].bytes;
  const int64_t pieces = (exchange.largest_bytes + piece_bytes - 1) / piece_bytes;
  const auto room_of = [&](int64_t k) { return exchange.workspace.data() + k % 2 * round_bytes; };
  std::vector<const std::byte*> sources(exchange.to.size());
  std::shared_ptr<WireBatch> next;
  if (pieces > 0) next = batch_of_piece(call, exchange, 0, piece_bytes, room_of(0));
  for (int64_t k = 0; k < pieces; ++k) {
    const std::shared_ptr<WireBatch> current = std::move(next);
    if (k + 1 < pieces) {
      next = batch_of_piece(call, exchange, (k + 1) * piece_bytes, piece_bytes, room_of(k + 1));
    }
    wait(*current, call);
    const int64_t begin = k * piece_bytes;
    const int64_t bytes = std::clamp<int64_t>(mine - begin, 0, piece_bytes);
    if (bytes == 0) continue;
    const std::byte* piece = room_of(k);
    for (int p = 0; p < size(); ++p) {
      const auto place = static_cast<size_t>(p);
      sources[place] = p == rank() ? exchange.to[place].data + begin : piece;
      if (p != rank()) piece += piece_bytes;
    }
    exchange.take(begin, bytes, sources);
  }
}

void WireTransport::native_sum(const Call& call, const NativeSum& sum) {
  static constexpr int64_t kMost = int64_t{1} << 30;  // elements in a call; counts are ints
  const auto batch = std::make_shared<WireBatch>();
  batch->comm = exchanges_;
  batch->order = call.native_order;
  batch->num_native_requests =
      sum.scatter ? 1 : std::max<int64_t>(1, (sum.count + kMost - 1) / kMost);
  batch->native = [this, sum, comm = exchanges_, calls = batch->num_native_requests] {
    const MpiSession::Adder adder = session_->adder(sum.dtype);
    std::vector<MPI_Request> requests(static_cast<size_t>(calls), MPI_REQUEST_NULL);
    if (sum.scatter) {
      check_mpi(MPI_Ireduce_scatter_block(sum.in, sum.out, static_cast<int>(sum.count), adder.type,
                                          adder.op, comm, requests.data()),
                "MPI_Ireduce_scatter_block");
      return requests;
    }
    for (int64_t k = 0; k < calls; ++k) {
      const auto count = static_cast<int>(std::min(kMost, sum.count - k * kMost));
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, sum.out + k * kMost * size_of(sum.dtype), count,
                               adder.type, adder.op, comm, &requests[static_cast<size_t>(k)]),
                "MPI_Iallreduce");
    }
    return requests;
  };
  guarded([&] {
    compare_offers(call, nullptr);
    session_->post(batch);
    wait(*batch, call);
  });
  // The bytes that a ring would move; MPI may move others.
  const int64_t bytes = sum.count * size_of(sum.dtype) * (sum.scatter ? size() : 1);
  const int64_t moved = bytes * (size() - 1) / size() * (sum.scatter ? 1 : 2);
  count_sent(moved);
  count_received(moved);
}

void WireTransport::send(const Message& message, const std::byte* data) {
  guarded([&] {
    const Terms terms = wire_terms_of(message);
    const uint64_t place = place_of(message);
    const auto batch = std::make_shared<WireBatch>();
    batch->comm = messages_;
    batch->messages.push_back(sent(message.peer, terms_tag(place), &terms, sizeof terms));
    batch->messages.push_back(sent(message.peer, data_tag(place), data, message.bytes));
    session_->post(batch);
    session_->wait(*batch, describe(message, world_rank(message.peer)), world_ranks(),
                   message.deadline);
  });
  count_sent(message.bytes);
}

void WireTransport::receive(const Message& message, std::byte* data) {
  guarded([&] {
    const std::string what = describe(message, world_rank(message.peer));
    const uint64_t place = place_of(message);
    Terms theirs;
    const auto head = std::make_shared<WireBatch>();
    head->comm = messages_;
    head->messages.push_back({message.peer, terms_tag(place), reinterpret_cast<std::byte*>(&theirs),
                              sizeof theirs, false});
    session_->post(head);
    session_->wait(*head, what, world_ranks(), message.deadline);
    if (theirs.count != message.bytes) {
      throw CommError(str(what, ": the message of rank ", world_rank(message.peer), " has ",
                          theirs.count, " bytes"));
    }
    const auto body = std::make_shared<WireBatch>();
    body->comm = messages_;
    body->messages.push_back({message.peer, data_tag(place), data, message.bytes, false});
    session_->post(body);
    session_->wait(*body, what, world_ranks(), message.deadline);
  });
  count_received(message.bytes);
}

namespace {

// Agreement among the members of a group that has issued no collectives yet.
Transport::Agree agree_over(Transport& transport, std::chrono::nanoseconds deadline) {
  auto meeting = std::make_shared<uint64_t>(uint64_t{1} << 62);  // far from those of collectives
  return [&transport, deadline, meeting](std::span<const std::byte> mine) {
    const Call call{.terms = {.meeting = (*meeting)++, .operation = Operation::split},
                    .deadline = deadline};
    return run_agreement(transport, call, mine);
  };
}

SplitPlan whole_group(const Transport& transport) {
  SplitPlan plan{.members = std::vector<int>(static_cast<size_t>(transport.size())),
                 .index = transport.rank(),
                 .color = 0};
  std::iota(plan.members.begin(), plan.members.end(), 0);
  return plan;
}

// The same group over shared memory, where all its ranks are on one host; else null.
std::shared_ptr<SharedTransport> on_shared_memory(const std::shared_ptr<MpiSession>& session,
                                                  WireTransport& wire, bool is_world) {
  const auto agree = agree_over(wire, std::chrono::minutes(10));
  std::shared_ptr<Segment> segment = make_host_segment(whole_group(wire), agree);
  if (segment == nullptr) return nullptr;
  std::shared_ptr<Lifeline> lifeline(session, &session->lifeline());
  if (is_world) {
    lifeline = std::make_shared<SharedLifeline>(segment, wire.rank());
    session->set_world_lifeline(lifeline);
  }
  // The session lasts as long as its groups.
  const auto make_segment = [session](const SplitPlan& plan, const Transport::Agree& agreement) {
    std::shared_ptr<Segment> made = make_host_segment(plan, agreement);
    if (made == nullptr && plan.index >= 0) {
      throw CommError("split: the ranks of the group cannot map shared memory");
    }
    return made;
  };
  return std::make_shared<SharedTransport>(std::move(segment), wire.rank(), wire.world_ranks(),
                                           std::move(lifeline), make_segment);
}

}  // namespace

std::shared_ptr<Transport> WireTransport::world(std::shared_ptr<MpiSession> session,
                                                bool shared_memory) {
  std::vector<int> ranks(static_cast<size_t>(session->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto wire = std::make_shared<WireTransport>(session, session->world(), session->messages(),
                                              session->rank(), std::move(ranks), shared_memory);
  if (shared_memory) {
    if (auto shared = on_shared_memory(session, *wire, true)) return shared;
  }
  return wire;
}

std::shared_ptr<Transport> WireTransport::split(const SplitPlan& plan, const Agree&) {
  constexpr auto kDeadline = std::chrono::minutes(1);
  using Pair = std::array<MPI_Comm, 2>;
  const auto comms = std::make_shared<Pair>(Pair{MPI_COMM_NULL, MPI_COMM_NULL});
  const int color = plan.index < 0 ? MPI_UNDEFINED : plan.color;
  // All ranks have agreed on the plan, so all of their communication threads come here.
  guarded([&] {
    session_->run(
        [comms, color, key = plan.index, parent = exchanges_] {
          for (MPI_Comm& comm : *comms) {
            check_mpi(MPI_Comm_split(parent, color, key, &comm), "MPI_Comm_split");
            if (comm == MPI_COMM_NULL) continue;
            check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
          }
        },
        "split", kDeadline);
  });
  if (plan.index < 0) return nullptr;
  auto wire = std::make_shared<WireTransport>(session_, (*comms)[0], (*comms)[1], plan.index,
                                              world_ranks_of(plan), shared_memory_);
  if (shared_memory_) {
    if (auto shared = on_shared_memory(session_, *wire, false)) return shared;
  }
  return wire;
}

}  // namespace zinc::comm
