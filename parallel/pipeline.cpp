#include "parallel/pipeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace zinc::parallel {
namespace {

constexpr size_t kNumWorks = 7;

// A part of the model, and who has it.
struct PartPlace {
  size_t rank = 0;
  int part = 0;  // of the rank's parts
};

// The parts of all ranks, one behind the other.
struct Ring {
  size_t ranks = 1;
  int parts = 1;

  std::optional<PartPlace> before(const PartPlace& place) const {
    if (place.rank > 0) return PartPlace{place.rank - 1, place.part};
    if (place.part == 0) return std::nullopt;
    return PartPlace{ranks - 1, place.part - 1};
  }
  std::optional<PartPlace> behind(const PartPlace& place) const {
    if (place.rank + 1 < ranks) return PartPlace{place.rank + 1, place.part};
    if (place.part + 1 == parts) return std::nullopt;
    return PartPlace{0, place.part + 1};
  }
};

// The parts that the ops of orders speak of.
Ring ring_of(std::span<const std::vector<PipelineOp>> orders) {
  int parts = 1;
  for (const auto& order : orders) {
    for (const PipelineOp& op : order) parts = std::max(parts, op.part + 1);
  }
  return {.ranks = orders.size(), .parts = parts};
}

using RankOp = std::pair<size_t, PipelineOp>;

// The pass of another rank whose message a pass waits for.
std::optional<RankOp> awaited(const Ring& ring, size_t rank, const PipelineOp& pass) {
  if (pass.work == PipelineWork::weights) return std::nullopt;
  const PartPlace here{rank, pass.part};
  const auto from = pass.work == PipelineWork::forward ? ring.before(here) : ring.behind(here);
  if (!from) return std::nullopt;
  return RankOp{from->rank, {pass.work, pass.micro_batch, from->part}};
}

// When the passes of all ranks begin, each as soon as it can in the order of its rank. Messages
// take no time.
template <class Duration>
std::map<RankOp, int64_t> beginnings(const Ring& ring, const PipelineOrders& passes,
                                     const Duration& duration) {
  std::map<RankOp, int64_t> begins;
  std::vector<int64_t> free(passes.size(), 0);
  std::vector<size_t> next(passes.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < passes.size(); ++rank) {
      for (; next[rank] < passes[rank].size(); ++next[rank], moved = true) {
        const PipelineOp& pass = passes[rank][next[rank]];
        if (const auto needed = awaited(ring, rank, pass)) {
          const auto found = begins.find(*needed);
          if (found == begins.end()) break;
          free[rank] = std::max(free[rank], found->second + duration(needed->second.work));
        }
        begins.emplace(RankOp{rank, pass}, free[rank]);
        free[rank] += duration(pass.work);
      }
    }
  }
  return begins;
}

// --- which passes, in which order

// The forward passes of a rank, by number, and likewise its backward passes: each part in turn for
// as many micro-batches as there are ranks.
PipelineOp numbered(const PipelineShape& shape, PipelineWork work, int64_t number) {
  if (shape.parts == 1) return {work, number};
  const int64_t round = int64_t{shape.ranks} * shape.parts;
  const auto turn = static_cast<int>(number % round / shape.ranks);
  return {.work = work,
          .micro_batch = number / round * shape.ranks + number % shape.ranks,
          .part = work == PipelineWork::forward ? turn : shape.parts - 1 - turn};
}

int64_t forward_ahead(const PipelineShape& shape, int64_t rank) {
  const int64_t behind = shape.ranks - 1 - rank;
  if (shape.schedule == PipelineSchedule::gpipe) return shape.micro_batches;
  return shape.parts == 1 ? behind : 2 * behind + int64_t{shape.parts - 1} * shape.ranks;
}

std::vector<PipelineOp> passes_of(const PipelineShape& shape, int rank) {
  const bool splits = shape.schedule == PipelineSchedule::zero_bubble;
  const int64_t count = shape.micro_batches * shape.parts;
  const int64_t ahead = std::min(forward_ahead(shape, rank), count);
  std::vector<PipelineOp> passes;
  int64_t forward = 0, weights = 0;
  const auto go_forward = [&] {
    if (forward < count) passes.push_back(numbered(shape, PipelineWork::forward, forward++));
  };
  const auto make_weights = [&](int64_t until) {
    for (; splits && weights < until; ++weights) {
      passes.push_back(numbered(shape, PipelineWork::weights, weights));
    }
  };
  while (forward < ahead) go_forward();
  for (int64_t backward = 0; backward < count; ++backward) {
    go_forward();
    passes.push_back(numbered(shape, PipelineWork::backward, backward));
    make_weights(backward + 1 - rank);
  }
  make_weights(count);
  return passes;
}

// --- where messages stand among them

// A message is sent when its sender has other work to do, or its receiver waits for it. All passes
// and messages are put into one row, in the order of an assumed time. Whatever the real times are,
// ranks that follow their part of one row never wait for each other in a circle.
PipelineOrders with_messages(const PipelineShape& shape, const PipelineOrders& passes) {
  const Ring ring{.ranks = passes.size(), .parts = shape.parts};
  // Backward takes about twice as long as forward, and half of that is for weights.
  const auto duration = [&](PipelineWork work) -> int64_t {
    return work == PipelineWork::backward && shape.schedule != PipelineSchedule::zero_bubble ? 2
                                                                                             : 1;
  };
  const std::map<RankOp, int64_t> begins = beginnings(ring, passes, duration);
  std::map<RankOp, int64_t> next_begins;  // beginning of the rank's next pass, by pass
  for (size_t rank = 0; rank < passes.size(); ++rank) {
    for (size_t i = 0; i + 1 < passes[rank].size(); ++i) {
      next_begins[{rank, passes[rank][i]}] = begins.at({rank, passes[rank][i + 1]});
    }
  }
  // Time, 0 for messages, which go ahead of passes, the rank, and the op.
  std::vector<std::tuple<int64_t, int, size_t, PipelineOp>> row;
  for (const auto& [pass, begin] : begins) {
    row.emplace_back(begin, 1, pass.first, pass.second);
    const auto sender = awaited(ring, pass.first, pass.second);
    if (!sender) continue;
    const auto found = next_begins.find(*sender);
    const int64_t time = found == next_begins.end() ? begin : std::min(begin, found->second);
    const bool forward = pass.second.work == PipelineWork::forward;
    row.emplace_back(time, 0, sender->first,
                     PipelineOp{forward ? PipelineWork::send_output : PipelineWork::send_gradient,
                                sender->second.micro_batch, sender->second.part});
  }
  std::ranges::sort(row);
  PipelineOrders orders(passes.size());
  for (const auto& [time, kind, rank, op] : row) {
    orders[rank].push_back(op);
    if (is_pass(op.work)) continue;
    const bool forward = op.work == PipelineWork::send_output;
    const PartPlace here{rank, op.part};
    const PartPlace to = *(forward ? ring.behind(here) : ring.before(here));
    orders[to.rank].push_back(
        {forward ? PipelineWork::receive_input : PipelineWork::receive_gradient, op.micro_batch,
         to.part});
  }
  return orders;
}

}  // namespace

std::string_view name_of(PipelineSchedule schedule) {
  static constexpr std::array<std::string_view, 3> kNames{"1f1b", "gpipe", "zb-h1"};
  return kNames[static_cast<size_t>(schedule)];
}

std::string_view name_of(PipelinePartition value) {
  if (value == PipelinePartition::best) return "best";
  return value == PipelinePartition::uniform ? "uniform" : "parameters";
}

std::string_view name_of(PipelineWork work) {
  static constexpr std::array<std::string_view, kNumWorks> kNames{
      "receive input", "forward",       "send output",     "receive gradient",
      "backward",      "send gradient", "weight gradients"};
  return kNames[static_cast<size_t>(work)];
}

bool is_pass(PipelineWork work) {
  return work == PipelineWork::forward || work == PipelineWork::backward ||
         work == PipelineWork::weights;
}

std::string describe(const PipelineOp& op) {
  return str(name_of(op.work), " of micro-batch ", op.micro_batch + 1,
             op.part > 0 ? str(", part ", op.part + 1) : std::string());
}

PipelineOrders pipeline_orders(const PipelineShape& shape) {
  require(shape.parts == 1 || (shape.schedule == PipelineSchedule::one_forward_one_backward &&
                               shape.micro_batches % shape.ranks == 0),
          "pipeline: several parts of a rank need the order 1f1b, and micro-batches that are a "
          "multiple of the ",
          shape.ranks, " ranks");
  PipelineOrders passes;
  for (int rank = 0; rank < shape.ranks; ++rank) passes.push_back(passes_of(shape, rank));
  return with_messages(shape, passes);
}

double bubble(const PipelineShape& shape) {
  const bool splits = shape.schedule == PipelineSchedule::zero_bubble;
  return static_cast<double>(shape.ranks - 1) /
         static_cast<double>(shape.micro_batches * shape.parts * (splits ? 3 : 1));
}

int64_t most_in_flight(std::span<const PipelineOp> order) {
  const bool splits = std::ranges::any_of(
      order, [](const PipelineOp& op) { return op.work == PipelineWork::weights; });
  const PipelineWork ends = splits ? PipelineWork::weights : PipelineWork::backward;
  int64_t now = 0, most = 0;
  for (const PipelineOp& op : order) {
    if (op.work == PipelineWork::forward) most = std::max(most, ++now);
    if (op.work == ends) --now;
  }
  return most;
}

std::vector<std::vector<std::optional<PipelineOp>>> pipeline_turns(
    std::span<const std::vector<PipelineOp>> orders) {
  PipelineOrders passes;
  for (const auto& order : orders) {
    std::ranges::copy_if(order, std::back_inserter(passes.emplace_back()),
                         [](const PipelineOp& op) { return is_pass(op.work); });
  }
  const auto begins = beginnings(ring_of(orders), passes, [](PipelineWork) { return 1; });
  std::vector<std::vector<std::optional<PipelineOp>>> turns(orders.size());
  size_t most = 0;
  for (const auto& [pass, begin] : begins) most = std::max(most, static_cast<size_t>(begin) + 1);
  for (auto& rank : turns) rank.resize(most);
  for (const auto& [pass, begin] : begins) {
    turns[pass.first][static_cast<size_t>(begin)] = pass.second;
  }
  return turns;
}

namespace {

// Goes through the order of each rank alone, then through all side by side, each message when both
// its sides have come to it.
class PipelineProof {
 public:
  PipelineProof(std::span<const std::vector<PipelineOp>> orders, int64_t micro_batches)
      : orders_(orders), micro_batches_(micro_batches), ring_(ring_of(orders)) {
    const auto parts = static_cast<size_t>(ring_.parts);
    for (const auto& order : orders) {
      ranks_.push_back({.done = std::vector<std::array<bool, kNumWorks>>(
                            parts * static_cast<size_t>(micro_batches)),
                        .next_backward = std::vector<int64_t>(parts, 0)});
      for (const PipelineOp& op : order) splits_ |= op.work == PipelineWork::weights;
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
    size_t next = 0;                                // op
    std::vector<std::array<bool, kNumWorks>> done;  // by part, by micro-batch
    std::vector<int64_t> next_backward;             // by part
  };

  void check_alone(size_t rank) {
    for (const PipelineOp& op : orders_[rank]) {
      require_ready(rank, op);
      is_done(rank, op.work, op) = true;
    }
    for (int part = 0; part < ring_.parts; ++part) {
      for (int64_t i = 0; i < micro_batches_; ++i) {
        for (const PipelineWork work : needed({rank, part})) {
          const PipelineOp op{work, i, part};
          if (!is_done(rank, work, op)) fail(rank, op, "is missing");
        }
      }
    }
  }

  // Whether `work` is done for the micro-batch and the model part of `of`.
  bool& is_done(size_t rank, PipelineWork work, const PipelineOp& of) {
    return ranks_[rank].done[static_cast<size_t>(of.part * micro_batches_ + of.micro_batch)]
                            [static_cast<size_t>(work)];
  }
  [[noreturn]] static void fail(size_t rank, const PipelineOp& op, std::string_view what) {
    throw InvalidArgument(str("pipeline order, rank ", rank, ": ", describe(op), " ", what));
  }
  std::vector<PipelineWork> needed(const PartPlace& place) const {
    std::vector<PipelineWork> works{PipelineWork::forward, PipelineWork::backward};
    if (ring_.before(place)) {
      works.insert(works.end(), {PipelineWork::receive_input, PipelineWork::send_gradient});
    }
    if (ring_.behind(place)) {
      works.insert(works.end(), {PipelineWork::send_output, PipelineWork::receive_gradient});
    }
    if (splits_) works.push_back(PipelineWork::weights);
    return works;
  }

  // Fails unless the ops that must come first on the rank are done; receives need none.
  void require_ready(size_t rank, const PipelineOp& op) {
    if (op.micro_batch < 0 || op.micro_batch >= micro_batches_) fail(rank, op, "is of no step");
    if (op.part < 0) fail(rank, op, "is of no part");
    if (is_done(rank, op.work, op)) fail(rank, op, "comes twice");
    const bool has_before = ring_.before({rank, op.part}).has_value();
    const bool has_behind = ring_.behind({rank, op.part}).has_value();
    const bool goes_up =
        op.work == PipelineWork::receive_input || op.work == PipelineWork::send_gradient;
    const bool goes_down =
        op.work == PipelineWork::send_output || op.work == PipelineWork::receive_gradient;
    if ((goes_up && !has_before) || (goes_down && !has_behind)) fail(rank, op, "has no peer");
    const auto after = [&](bool there, PipelineWork before) {
      if (there && !is_done(rank, before, op)) {
        fail(rank, op, str("comes ahead of its ", name_of(before)));
      }
    };
    switch (op.work) {
      case PipelineWork::receive_input:
        return;
      case PipelineWork::forward:
        return after(has_before, PipelineWork::receive_input);
      case PipelineWork::send_output:
        return after(true, PipelineWork::forward);
      case PipelineWork::receive_gradient:
        return after(true, PipelineWork::send_output);
      case PipelineWork::backward:
        after(true, PipelineWork::forward);
        after(has_behind, PipelineWork::receive_gradient);
        if (op.micro_batch != ranks_[rank].next_backward[static_cast<size_t>(op.part)]++) {
          fail(rank, op, "is out of order: gradients are summed in ascending order");
        }
        return;
      case PipelineWork::send_gradient:
        return after(true, PipelineWork::backward);
      case PipelineWork::weights:
        after(true, PipelineWork::backward);
        if (op.micro_batch > 0 &&
            !is_done(rank, PipelineWork::weights, {op.work, op.micro_batch - 1, op.part})) {
          fail(rank, op, "is out of order: gradients are summed in ascending order");
        }
        return;
    }
  }

  bool advance() {
    bool moved = false;
    for (size_t rank = 0; rank < orders_.size(); ++rank) {
      while (step(rank)) moved = true;
    }
    return moved;
  }

  // Does the next op of the rank, if it can take place now.
  bool step(size_t rank) {
    Rank& mine = ranks_[rank];
    if (mine.next == orders_[rank].size()) return false;
    const PipelineOp op = orders_[rank][mine.next];
    const PartPlace here{rank, op.part};
    switch (op.work) {
      case PipelineWork::forward:
      case PipelineWork::backward:
      case PipelineWork::weights:
        break;
      case PipelineWork::send_output:
        return exchange(rank, op, *ring_.behind(here), PipelineWork::receive_input);
      case PipelineWork::send_gradient:
        return exchange(rank, op, *ring_.before(here), PipelineWork::receive_gradient);
      case PipelineWork::receive_input:
      case PipelineWork::receive_gradient:
        return false;  // takes place with its send
    }
    ++mine.next;
    return true;
  }

  bool exchange(size_t rank, const PipelineOp& op, const PartPlace& peer, PipelineWork theirs) {
    Rank& other = ranks_[peer.rank];
    if (other.next == orders_[peer.rank].size()) return false;
    if (orders_[peer.rank][other.next] != PipelineOp{theirs, op.micro_batch, peer.part}) {
      return false;
    }
    ++ranks_[rank].next;
    ++other.next;
    return true;
  }

  std::span<const std::vector<PipelineOp>> orders_;
  const int64_t micro_batches_;
  const Ring ring_;
  bool splits_ = false;  // backward leaves the gradients of weights for later
  std::vector<Rank> ranks_;
};

}  // namespace

void check_pipeline(std::span<const std::vector<PipelineOp>> orders, int64_t micro_batches) {
  PipelineProof(orders, micro_batches).run();
}

namespace {

// The load of ranks: the load of the most loaded rank, then how unequal loads are.
using Load = std::pair<double, double>;

Load load_of(const std::vector<int64_t>& first, const std::vector<double>& cost_before,
             size_t ranks) {
  std::vector<double> sums(ranks, 0.0);
  for (size_t part = 0; part + 1 < first.size(); ++part) {
    sums[part % ranks] += cost_before[static_cast<size_t>(first[part + 1])] -
                          cost_before[static_cast<size_t>(first[part])];
  }
  double squares = 0.0;
  for (const double sum : sums) squares += sum * sum;
  return {std::ranges::max(sums), squares};
}

constexpr double kRounding = 1e-9;  // costs that differ by no more of themselves are equal

bool is_less(const Load& a, const Load& b) {
  if (std::abs(a.first - b.first) > kRounding * b.first) return a.first < b.first;
  return a.second < b.second * (1.0 - kRounding);
}

// No part may cost more than `most`.
void even_ranks(std::vector<int64_t>& first, const std::vector<double>& cost_before,
                const std::vector<int64_t>& counted_before, size_t ranks, double most) {
  const auto may_be = [&](const std::vector<int64_t>& cut, size_t part) {
    const auto begin = static_cast<size_t>(cut[part]), end = static_cast<size_t>(cut[part + 1]);
    return begin < end && counted_before[end] > counted_before[begin] &&
           cost_before[end] - cost_before[begin] <= most * (1.0 + kRounding);
  };
  for (bool moved = true; moved;) {
    moved = false;
    Load least = load_of(first, cost_before, ranks);
    std::vector<int64_t> best = first;
    for (size_t part = 1; part + 1 < first.size(); ++part) {
      for (const int64_t step : {-1, 1}) {
        std::vector<int64_t> cut = first;
        cut[part] += step;
        if (!may_be(cut, part - 1) || !may_be(cut, part)) continue;
        const Load load = load_of(cut, cost_before, ranks);
        if (!is_less(load, least)) continue;
        least = load;
        best = std::move(cut);
        moved = true;
      }
    }
    first = std::move(best);
  }
}

}  // namespace

std::vector<int64_t> cut_evenly(std::span<const double> costs, const std::vector<bool>& counts,
                                int parts, int ranks) {
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
  if (ranks < parts) {
    even_ranks(first, cost_before, counted_before, static_cast<size_t>(ranks), best[num_parts][n]);
  }
  return first;
}

}  // namespace zinc::parallel
