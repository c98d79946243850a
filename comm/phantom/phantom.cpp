#include "comm/phantom/phantom.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/arguments.h"
#include "comm/partition.h"
#include "comm/workspace.h"
#include "core/error.h"
#include "core/work_log.h"

namespace zinc::comm {
namespace {

class Phantom final : public Communicator {
 public:
  explicit Phantom(PhantomOptions options) : Phantom(options, ranks_up_to(options.size)) {}
  // `members`: the group's ranks in the world.
  Phantom(PhantomOptions options, std::vector<int> members)
      : Communicator(options.rank, options.size),
        options_(std::move(options)),
        members_(std::move(members)),
        near_ranks_(static_cast<int>(
            std::ranges::count_if(members_, [&](int member) { return is_near(member); }))) {}

  std::string_view backend() const override { return "phantom"; }
  bool follows_streams() const override { return options_.imitates == "nccl"; }

  Work all_gather(const AllGather& args, StreamRef stream) override {
    const Terms terms = checked(args, facts());
    return queue("all_gather", stream, gathered(terms.count * size(), terms.dtype, -1));
  }

  Work reduce_scatter(const ReduceScatter& args, StreamRef stream) override {
    const Terms terms =
        checked(args, facts(),
                workspace_bytes(Collective::reduce_scatter, args.in.bytes(), args.in.dtype()));
    return queue("reduce_scatter", stream, scattered(terms.count * size(), terms.dtype));
  }

  Work all_reduce(const AllReduce& args, StreamRef stream) override {
    const Terms terms =
        checked(args, facts(),
                workspace_bytes(Collective::all_reduce, args.inout.bytes(), args.inout.dtype()));
    const Traffic first = scattered(terms.count, terms.dtype);
    const Traffic second = gathered(terms.count, terms.dtype, -1);
    return queue("all_reduce", stream,
                 {first.sent + second.sent, first.received + second.received});
  }

  Work broadcast(const Broadcast& args, StreamRef stream) override {
    const Terms terms = checked(args, facts());
    Traffic traffic = gathered(terms.count, terms.dtype, terms.root);
    const int64_t mine = part_bytes(terms.count, terms.dtype, rank());
    if (rank() == terms.root) {
      traffic.sent += args.inout.bytes() - mine;
    } else {
      traffic.received += mine;
    }
    return queue("broadcast", stream, traffic);
  }

  Work all_to_all(const AllToAll& args, StreamRef stream) override {
    checked(args, facts());
    const AllToAllBlocks blocks = blocks_of(args, size());
    const int64_t own = blocks.in[static_cast<size_t>(rank())].count * size_of(args.in.dtype());
    return queue("all_to_all", stream, {args.in.bytes() - own, args.out.bytes() - own});
  }

  Work shift(const Shift& args, StreamRef stream) override {
    checked(args, facts());
    const int64_t bytes = size() == 1 ? 0 : args.in.bytes();
    return queue("shift", stream, {bytes, bytes});
  }

  Work send(ConstView data, int destination, int tag, StreamRef stream) override {
    check_message(data, destination, tag, facts(), "send");
    return queue("send", stream, {data.bytes(), 0}, destination);
  }

  Work receive(View data, int source, int tag, StreamRef stream) override {
    check_message(data, source, tag, facts(), "receive");
    return queue("receive", stream, {0, data.bytes()}, source);
  }

  Work barrier(StreamRef stream) override {
    const Block room = barrier_room(options_.imitates, size(), stream);
    return queue("barrier", stream, {});
  }

  int64_t workspace_bytes(Collective collective, int64_t bytes, DType dtype) const override {
    return workspace_bytes_of(options_.imitates, collective, bytes, dtype, size(),
                              reduce_algorithm());
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    check_alive();
    const int number = num_splits_++;
    PhantomOptions group = options_;
    if (color < 0) return nullptr;
    std::vector<int> members = members_;
    if (options_.wishes) group = group_of(number, color, key, members);
    auto made = std::make_unique<Phantom>(std::move(group), std::move(members));
    made->set_deadline(deadline());
    made->set_reduce_algorithm(reduce_algorithm());
    return made;
  }

  void abort(std::string_view reason) noexcept override {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    try {
      reason_ = reason;
    } catch (...) {  // the abort counts, not its text
    }
  }

  int64_t bytes_sent() const override { return sent_; }
  int64_t bytes_received() const override { return received_; }

 private:
  struct Traffic {
    int64_t sent = 0;
    int64_t received = 0;
  };

  GroupFacts facts() const { return {.rank = rank(), .size = size(), .device = options_.device}; }

  void check_alive() const {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw CommError(str("an aborted communicator: rank ", rank(), ": ", reason_));
  }

  int64_t part_bytes(int64_t n, DType dtype, int part_rank) const {
    return part_of(n, size(), part_rank).count * size_of(dtype);
  }

  // Every rank passes its part of n elements on to all but `without`.
  Traffic gathered(int64_t n, DType dtype, int without) const {
    const int64_t mine = part_bytes(n, dtype, rank());
    const bool others_hold_it = without >= 0 && without != rank();
    return {.sent = mine * (size() - 1 - (others_hold_it ? 1 : 0)),
            .received = without == rank() ? 0 : n * size_of(dtype) - mine};
  }

  Traffic scattered(int64_t n, DType dtype) const {
    const int64_t mine = part_bytes(n, dtype, rank());
    return {.sent = n * size_of(dtype) - mine, .received = mine * (size() - 1)};
  }

  static std::vector<int> ranks_up_to(int size) {
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  // A rank of the world that shares this one's host.
  bool is_near(int world_rank) const {
    const int hosts = options_.ranks_per_host;
    const int own = members_[static_cast<size_t>(rank())];
    return hosts > 0 && world_rank / hosts == own / hosts;
  }

  int near_of(int peer) const {
    if (options_.ranks_per_host == 0) return 0;
    return is_near(members_[static_cast<size_t>(peer)]) ? 2 : 1;
  }

  // Queues work with all ranks, or with one `peer`.
  Work queue(const char* label, StreamRef stream, const Traffic& traffic,
             std::optional<int> peer = std::nullopt) {
    check_alive();
    sent_ += traffic.sent;
    received_ += traffic.received;
    if (options_.ledger != nullptr) {
      PhantomTraffic& sum = (*options_.ledger)[label];
      ++sum.calls;
      sum.bytes_sent += traffic.sent;
      sum.bytes_received += traffic.received;
    }
    stream->note(label, {.kind = WorkKind::collective,
                         .bytes_read = traffic.received,
                         .bytes_written = traffic.sent,
                         .ranks = peer ? 2 : size(),
                         .near_ranks = peer ? near_of(*peer) : near_ranks_});
    stream.submit(label, [] {});
    return Work(stream->record());
  }

  // `ranks`: of the world; becomes those of the group.
  PhantomOptions group_of(int number, int color, int key, std::vector<int>& ranks) const {
    const PhantomOptions::Wish own = options_.wishes(number, rank());
    require(own.color == color && own.key == key, "phantom: split ", number, " of rank ", rank(),
            " passed colour ", color, " and key ", key, ", but PhantomOptions::wishes says ",
            own.color, " and ", own.key);
    std::vector<std::pair<int, int>> members;  // (key, rank)
    for (int r = 0; r < size(); ++r) {
      const PhantomOptions::Wish wish = options_.wishes(number, r);
      if (wish.color == color) members.emplace_back(wish.key, r);
    }
    std::ranges::sort(members);
    PhantomOptions group = options_;
    group.size = static_cast<int>(members.size());
    group.rank =
        static_cast<int>(std::ranges::find(members, std::pair(key, rank())) - members.begin());
    group.wishes = nullptr;
    ranks.clear();
    for (const auto& [order, member] : members) {
      ranks.push_back(members_[static_cast<size_t>(member)]);
    }
    return group;
  }

  PhantomOptions options_;
  std::vector<int> members_;  // by rank: its rank in the world
  int near_ranks_;            // ranks of the group on this rank's host, itself too; 0: not known
  int num_splits_ = 0;
  int64_t sent_ = 0;
  int64_t received_ = 0;
  mutable std::mutex mutex_;
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Communicator> make_phantom(PhantomOptions options) {
  require(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
          "make_phantom: rank ", options.rank, " of ", options.size);
  (void)workspace_bytes_of(options.imitates, Collective::all_gather, 0, DType::u8, options.size);
  return std::make_unique<Phantom>(std::move(options));
}

}  // namespace zinc::comm
