#include "parallel/pipeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"

namespace zinc::parallel {

std::string_view name_of(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::gpipe ? "gpipe" : "1f1b";
}

std::string_view name_of(PipelineWork work) {
  static constexpr std::array<std::string_view, 6> kNames{
      "receive input", "forward", "send output", "receive gradient", "backward", "send gradient"};
  return kNames[static_cast<size_t>(work)];
}

std::string describe(const PipelineOp& op) {
  return concat(name_of(op.work), " of micro-batch ", op.micro_batch + 1);
}

std::vector<PipelineOp> pipeline_order(PipelineSchedule schedule, int rank, int size,
                                       int64_t micro_batches) {
  const bool has_before = rank > 0, has_behind = rank + 1 < size;
  const int64_t ahead = schedule == PipelineSchedule::gpipe
                            ? micro_batches
                            : std::min<int64_t>(size - rank, micro_batches);
  std::vector<PipelineOp> order;
  const auto add = [&](bool there, PipelineWork work, int64_t i) {
    if (there && i < micro_batches) order.push_back({work, i});
  };
  const auto receive = [&](int64_t i) { add(has_before, PipelineWork::receive_input, i); };
  const auto forward = [&](int64_t i) {
    add(true, PipelineWork::forward, i);
    add(has_behind, PipelineWork::send_output, i);
  };
  for (int64_t i = 0; i < ahead; ++i) {
    receive(i);
    forward(i);
  }
  // The input of the next micro-batch is asked for ahead of the send of a gradient: the rank before
  // sends that input ahead of asking for the gradient.
  for (int64_t i = 0; i < micro_batches; ++i) {
    add(has_behind, PipelineWork::receive_gradient, i);
    add(true, PipelineWork::backward, i);
    receive(i + ahead);
    add(has_before, PipelineWork::send_gradient, i);
    forward(i + ahead);
  }
  return order;
}

int64_t most_in_flight(std::span<const PipelineOp> order) {
  int64_t now = 0, most = 0;
  for (const PipelineOp& op : order) {
    if (op.work == PipelineWork::forward) most = std::max(most, ++now);
    if (op.work == PipelineWork::backward) --now;
  }
  return most;
}

std::vector<std::vector<std::optional<PipelineOp>>> pipeline_turns(
    std::span<const std::vector<PipelineOp>> orders) {
  std::vector<std::vector<std::optional<PipelineOp>>> turns(orders.size());
  std::map<std::pair<size_t, PipelineOp>, size_t> ends;  // of passes
  std::vector<size_t> next(orders.size(), 0);
  // When what the op waits for is over; absent: that has no time yet.
  const auto ready = [&](size_t rank, const PipelineOp& op) -> std::optional<size_t> {
    const bool is_input = op.work == PipelineWork::receive_input;
    if (!is_input && op.work != PipelineWork::receive_gradient) return 0;
    const PipelineOp pass{is_input ? PipelineWork::forward : PipelineWork::backward,
                          op.micro_batch};
    const auto found = ends.find({is_input ? rank - 1 : rank + 1, pass});
    if (found == ends.end()) return std::nullopt;
    return found->second;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      for (; next[rank] < orders[rank].size(); ++next[rank], moved = true) {
        const PipelineOp& op = orders[rank][next[rank]];
        const std::optional<size_t> arrives = ready(rank, op);
        if (!arrives) break;
        ends[{rank, op}] = *arrives;
        if (op.work != PipelineWork::forward && op.work != PipelineWork::backward) continue;
        const PipelineWork needs = op.work == PipelineWork::forward
                                       ? PipelineWork::receive_input
                                       : PipelineWork::receive_gradient;
        const auto needed = ends.find({rank, {needs, op.micro_batch}});
        const size_t begin = needed == ends.end() ? 0 : needed->second;
        if (turns[rank].size() < begin) turns[rank].resize(begin);
        turns[rank].emplace_back(op);
        ends[{rank, op}] = turns[rank].size();
      }
    }
  }
  size_t most = 0;
  for (const auto& rank : turns) most = std::max(most, rank.size());
  for (auto& rank : turns) rank.resize(most);
  return turns;
}

namespace {

// Goes through the order of each rank alone, then through all side by side, each message when both
// its sides have come to it.
class PipelineProof {
 public:
  PipelineProof(std::span<const std::vector<PipelineOp>> orders, int64_t micro_batches)
      : orders_(orders), micro_batches_(micro_batches) {
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      ranks_.push_back({.done = std::vector<std::array<bool, 6>>(static_cast<size_t>(micro_batches),
                                                                 std::array<bool, 6>{})});
    }
  }

  void run() {
    for (size_t rank = 0; rank < orders_.size(); ++rank) check_alone(rank);
    while (advance()) {
    }
    for (size_t rank = 0; rank < orders_.size(); ++rank) {
      if (ranks_[rank].next == orders_[rank].size()) continue;
      fail(rank, orders_[rank][ranks_[rank].next], "waits for its peer for ever");
    }
  }

 private:
  struct Rank {
    size_t next = 0;  // op
    std::vector<std::array<bool, 6>> done;
    int64_t next_backward = 0;
  };

  void check_alone(size_t rank) {
    for (const PipelineOp& op : orders_[rank]) {
      require_ready(rank, op);
      is_done(rank, op.work, op.micro_batch) = true;
    }
    for (int64_t i = 0; i < micro_batches_; ++i) {
      for (const PipelineWork work : needed(rank)) {
        if (!is_done(rank, work, i)) fail(rank, {work, i}, "is missing");
      }
    }
  }

  bool has_before(size_t rank) const { return rank > 0; }
  bool has_behind(size_t rank) const { return rank + 1 < orders_.size(); }
  bool& is_done(size_t rank, PipelineWork work, int64_t i) {
    return ranks_[rank].done[static_cast<size_t>(i)][static_cast<size_t>(work)];
  }
  [[noreturn]] static void fail(size_t rank, const PipelineOp& op, std::string_view what) {
    throw InvalidArgument(concat("pipeline order, rank ", rank, ": ", describe(op), " ", what));
  }
  std::vector<PipelineWork> needed(size_t rank) const {
    std::vector<PipelineWork> works{PipelineWork::forward, PipelineWork::backward};
    if (has_before(rank)) {
      works.insert(works.end(), {PipelineWork::receive_input, PipelineWork::send_gradient});
    }
    if (has_behind(rank)) {
      works.insert(works.end(), {PipelineWork::send_output, PipelineWork::receive_gradient});
    }
    return works;
  }

  // What must have come first on the rank; receives have nothing.
  void require_ready(size_t rank, const PipelineOp& op) {
    if (op.micro_batch < 0 || op.micro_batch >= micro_batches_) fail(rank, op, "is of no step");
    if (is_done(rank, op.work, op.micro_batch)) fail(rank, op, "comes twice");
    const bool goes_up =
        op.work == PipelineWork::receive_input || op.work == PipelineWork::send_gradient;
    const bool goes_down =
        op.work == PipelineWork::send_output || op.work == PipelineWork::receive_gradient;
    if ((goes_up && !has_before(rank)) || (goes_down && !has_behind(rank)))
      fail(rank, op, "has no peer");
    const auto after = [&](bool there, PipelineWork before) {
      if (there && !is_done(rank, before, op.micro_batch)) {
        fail(rank, op, concat("comes ahead of its ", name_of(before)));
      }
    };
    switch (op.work) {
      case PipelineWork::receive_input:
        return;
      case PipelineWork::forward:
        return after(has_before(rank), PipelineWork::receive_input);
      case PipelineWork::send_output:
        return after(true, PipelineWork::forward);
      case PipelineWork::receive_gradient:
        return after(true, PipelineWork::send_output);
      case PipelineWork::backward:
        after(true, PipelineWork::forward);
        after(has_behind(rank), PipelineWork::receive_gradient);
        if (op.micro_batch != ranks_[rank].next_backward++) {
          fail(rank, op, "is out of order: gradients are summed in ascending order");
        }
        return;
      case PipelineWork::send_gradient:
        return after(true, PipelineWork::backward);
    }
  }

  bool advance() {
    bool moved = false;
    for (size_t rank = 0; rank < orders_.size(); ++rank) {
      while (step(rank)) moved = true;
    }
    return moved;
  }

  // The op of the rank that comes next, if it can take place now.
  bool step(size_t rank) {
    Rank& mine = ranks_[rank];
    if (mine.next == orders_[rank].size()) return false;
    const PipelineOp op = orders_[rank][mine.next];
    switch (op.work) {
      case PipelineWork::forward:
      case PipelineWork::backward:
        break;
      case PipelineWork::send_output:
        return exchange(rank, rank + 1, {PipelineWork::receive_input, op.micro_batch});
      case PipelineWork::send_gradient:
        return exchange(rank, rank - 1, {PipelineWork::receive_gradient, op.micro_batch});
      case PipelineWork::receive_input:
      case PipelineWork::receive_gradient:
        return false;  // takes place with its send
    }
    ++mine.next;
    return true;
  }

  bool exchange(size_t rank, size_t peer, const PipelineOp& theirs) {
    if (ranks_[peer].next == orders_[peer].size()) return false;
    if (orders_[peer][ranks_[peer].next] != theirs) return false;
    ++ranks_[rank].next;
    ++ranks_[peer].next;
    return true;
  }

  std::span<const std::vector<PipelineOp>> orders_;
  const int64_t micro_batches_;
  std::vector<Rank> ranks_;
};

}  // namespace

void check_pipeline(std::span<const std::vector<PipelineOp>> orders, int64_t micro_batches) {
  PipelineProof(orders, micro_batches).run();
}

std::vector<int64_t> cut_evenly(std::span<const double> costs, const std::vector<bool>& counts,
                                int parts) {
  const size_t n = costs.size();
  bug_check(
      counts.size() == n && parts >= 1 && std::count(counts.begin(), counts.end(), true) >= parts,
      "cut_evenly: ", parts, " parts of ", n, " items");
  std::vector<double> cost_before(n + 1, 0.0);
  std::vector<int64_t> counted_before(n + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    cost_before[i + 1] = cost_before[i] + costs[i];
    counted_before[i + 1] = counted_before[i] + (counts[i] ? 1 : 0);
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[k][i]: the most expensive of k parts of the first i items.
  const auto num_parts = static_cast<size_t>(parts);
  std::vector<std::vector<double>> best(num_parts + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> from(num_parts + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0.0;
  for (size_t k = 1; k <= num_parts; ++k) {
    for (size_t end = 1; end <= n; ++end) {
      for (size_t begin = 0; begin < end; ++begin) {
        if (counted_before[end] == counted_before[begin]) continue;
        const double cost = std::max(best[k - 1][begin], cost_before[end] - cost_before[begin]);
        if (cost >= best[k][end]) continue;
        best[k][end] = cost;
        from[k][end] = begin;
      }
    }
  }
  std::vector<int64_t> first(num_parts + 1, static_cast<int64_t>(n));
  for (size_t k = num_parts; k > 0; --k) {
    first[k - 1] = static_cast<int64_t>(from[k][static_cast<size_t>(first[k])]);
  }
  return first;
}

}  // namespace zinc::parallel
