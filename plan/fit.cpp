#include "plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "files/json/writer.h"
#include "plan/fill.h"
#include "plan/fit_bounds.h"
#include "train/config/key.h"

// Note [Bounds of the search]
// Candidates are looked at in the order of a lower bound of their score, and planned unless
//
// 1. they cannot fit: what lies on the device at some moment together is more than the limit, by
//    plans of a few blocks (Note [Floors] in fit_bounds.cpp);
// 2. they cannot fit: a candidate of the same mesh that saves as much or more of each kind, with a
//    micro-batch that is no larger and a stage that is no lower, handed out more than the limit. A
//    saving takes bytes off the device or leaves them; segments of more than one block are compared
//    with themselves alone, because they trade saved inputs against live blocks, and so is stage 3
//    with its weights on the device, which has shards beside what is gathered of them. The test is
//    of bytes handed out: what is reserved for them varies with the order of sizes;
// 3. they cannot fit: a candidate with the same mesh, micro-batch, order and stage that saves as
//    much or less of each kind handed out more than the limit at its peak in labels that no kind of
//    the further saving takes anything from: recomputation, for one, takes activations and
//    workspaces, and the same weights, gradients and states lie beside them at that moment;
// 4. a candidate with the same mesh, micro-batch, order and stage fits that saves as much or less
//    of each kind: a saving adds work or waits, and takes none away but the device's update of
//    states that leave it;
// 5. their bound is above the score of the last answer. The bound is the time of the candidate with
//    one saving less, whether it fits or not, but for the device's update where states leave. It is
//    never below the floor of 1., nor below the FLOP at the highest rate.
//
// 6. A pipeline has several orders of its micro-batches. They differ in what ranks wait, and 1F1B
//    keeps the fewest activations: a candidate is looked at in that order first, with the bound of
//    the best of its orders, and in the others where it fits. What they last at least is its time,
//    with the other share of waiting.
//
// A step of a pipeline is planned with a few micro-batches more than its ranks keep at once, and
// until it is an answer for those of its ranks alone that tell most
// (FitBounds::telling_ranks). What one more micro-batch adds is planned on each of them.
//
// The plan of a candidate ends where more than the limit was handed out: the candidate cannot fit,
// and what was taken so far is a lower bound of its peak. Where the time of its step would be a
// bound for those that save more, the plan goes on to that, up to kHopeless times the limit.
//
// A candidate that is not planned because it cannot fit hands its bound on to those with one saving
// more. Three arguments have limits. Smaller buffers can be faster, where tiles of an update go in
// finer turns; who updates states may hide what the device's update took (4.); and a smaller buffer
// may by chance leave a larger segment. tests/plan/fit_test.cpp compares the search with plans of
// every candidate of a small space.
namespace zinc::plan {
namespace {

constexpr int64_t kPlannedBatches = 4;  // micro-batches that are planned of a step with more
constexpr double kUntimed = 1e30;       // a score in seconds that no time has
constexpr int kRound = 4;               // candidates that are planned side by side
constexpr int64_t kHopeless = 2;        // times the limit: a plan that takes more ends there
constexpr int64_t kMostLimit = int64_t{1} << 60;
constexpr int64_t kBeyondPipe = 2;  // micro-batches beside those of a pipeline's ranks
constexpr int kFillSteps = 4;       // halvings between two levels
constexpr int kMostNearest = 32;    // candidates with which a search for the smallest begins
// Bytes per element, more than any device's update moves.
constexpr double kUpdateBytes = 64.0;

// Swap space is handed out from space that is reserved once, so the two are one.
int64_t reserved_of(const MemoryReport& peaks, Tier tier) {
  return std::max(peaks.reserved[static_cast<size_t>(tier)].peak, peaks.at(tier).peak);
}

struct Outcome {
  std::string problem;  // why a run refuses it; empty: it was planned
  Plan plan;            // with at most kPlannedBatches micro-batches
  files::json::Value file;
  std::array<int64_t, kNumTiers> reserved{};
  bool fits = false;
  std::optional<StepTime> time;
  FitScore score{};
  bool has_all_ranks = true;  // ranks of a pipeline
  // False: more than `reserved`, which is more than it may be.
  bool is_whole() const { return !problem.empty() || plan.fullest.is_whole; }
};

// The figures of a step, each of which grows by the same amount with every micro-batch.
struct Figures {
  StepTime time;
  double sent = 0.0, copied = 0.0, disk = 0.0;
};

Figures figures_of(const StepFigures& step) {
  Figures figures;
  if (step.time) figures.time = *step.time;
  figures.sent = static_cast<double>(step.bytes_sent);
  figures.copied = static_cast<double>(step.copies.to_device + step.copies.to_host);
  figures.disk = static_cast<double>(step.swap.bytes_read + step.swap.bytes_written);
  return figures;
}

Figures figures_of(const RankPlan& rank) {
  StepFigures step{.swap = rank.swap, .copies = rank.copies, .time = rank.time};
  for (const auto& [name, traffic] : rank.step) step.bytes_sent += traffic.bytes_sent;
  return figures_of(step);
}

// The figures of a step with `further` micro-batches more than `four`, which has one more than
// `three`.
Figures extend(const Figures& three, const Figures& four, int64_t further) {
  const auto more = static_cast<double>(further);
  const auto grow = [&](double a, double b) { return b + more * (b - a); };
  const StepTime& a = three.time;
  const StepTime& b = four.time;
  Figures all;
  StepTime& time = all.time;
  time.compute_seconds = grow(a.compute_seconds, b.compute_seconds);
  time.communication_seconds = grow(a.communication_seconds, b.communication_seconds);
  time.offload = {.to_device = grow(a.offload.to_device, b.offload.to_device),
                  .to_host = grow(a.offload.to_host, b.offload.to_host),
                  .on_host = grow(a.offload.on_host, b.offload.on_host)};
  time.exposed_offload_seconds =
      std::max(0.0, grow(a.exposed_offload_seconds, b.exposed_offload_seconds));
  time.step_seconds =
      grow(a.step_seconds - a.exposed_swap_seconds, b.step_seconds - b.exposed_swap_seconds);
  if (a.swap_seconds && b.swap_seconds) {
    time.swap_seconds = grow(*a.swap_seconds, *b.swap_seconds);
    time.exposed_swap_seconds = std::max(0.0, *time.swap_seconds - time.step_seconds);
    time.step_seconds += time.exposed_swap_seconds;
  }
  all.sent = grow(three.sent, four.sent);
  all.copied = grow(three.copied, four.copied);
  all.disk = grow(three.disk, four.disk);
  return all;
}

// The labels that a saving may take bytes from, on the device.
std::vector<Label> labels_of(Saving saving) {
  switch (saving) {
    case Saving::recompute:
      return {Label::activations, Label::workspace};
    case Saving::inputs:
      return {Label::activations, Label::staging};
    case Saving::states:
      return {Label::optimizer, Label::gradients, Label::communication, Label::staging};
    case Saving::weights:
    case Saving::residency:
      return {Label::parameters, Label::communication, Label::staging};
    case Saving::moments:
      return {Label::optimizer, Label::staging};
    case Saving::buffers:
      return {Label::gradients, Label::communication, Label::staging, Label::workspace};
  }
  return {};
}

class Search {
 public:
  explicit Search(const FitRequest& request)
      : request_(request),
        space_(request.model, space_options(request)),
        options_(request.plan),
        bounds_(request.model, space_, options_, request.threads) {
    options_.program = false;
    options_.device_room = request.limits.device;
    is_timed_ = options_.hardware.has_value();
  }

  FitResult run();
  // How far a plan runs: to the end; if it does not fit, until the time of its step is known; until
  // it is known not to fit; or the same without a score.
  enum class Extent : uint8_t { whole, until_timed, until_full, bytes_until_full };
  // The plan of a candidate; in a pipeline only of the ranks `pipe_ranks` (empty: all).
  Outcome plan(const files::json::Value& file, Extent extent = Extent::whole,
               const std::vector<int>& pipe_ranks = {}) const;
  const FitSpace& space() const { return space_; }

 private:
  struct Node {
    FitScore bound{};
    int depth = 0;
    int64_t number = 0;  // in the order in which they were found
    FitCandidate candidate;
    bool operator>(const Node& other) const {
      return std::tie(bound, depth, number) > std::tie(other.bound, other.depth, other.number);
    }
  };
  struct TooLarge {
    FitCandidate candidate;
    std::array<int64_t, kNumLabels> at_peak;  // on the device
  };
  static FitSpaceOptions space_options(const FitRequest& request) {
    FitSpaceOptions options = request.space;
    options.world = request.plan.world;
    options.ranks_per_host = request.plan.ranks_per_host;
    options.meshes = options.meshes && request.plan.hardware.has_value();
    options.host = request.limits.host.has_value();
    if (!request.limits.nvme) options.nvme_path.clear();
    require(!request.limits.nvme || !options.nvme_path.empty(),
            "fit: a limit of NVMe needs a directory on it");
    return options;
  }

  void plan_all(const std::vector<FitCandidate>& candidates, Extent extent = Extent::until_timed);
  const Outcome& outcome(const FitCandidate& candidate) { return planned_.at(candidate); }
  void learn(const FitCandidate& candidate, const Outcome& outcome);
  std::optional<FitCandidate> corner_of(const Node& node);
  void push(const FitCandidate& candidate, const FitScore& bound, int depth);
  void push_next(const Node& node, const FitScore& bound);
  void push_orders(const Node& node, const Outcome& found);
  bool cannot_fit(const FitCandidate& candidate);
  bool saves_less(const FitCandidate& candidate, const FitCandidate& large) const;
  bool cannot_help(const TooLarge& large, const FitCandidate& candidate) const;
  bool is_beaten(const FitCandidate& candidate) const;
  FitScore bound_of(const Node& node);
  FitScore after(const FitScore& score, const FitCandidate& from, const FitCandidate& to) const;
  void add_answer(const FitCandidate& candidate);
  bool is_done(const FitScore& bound) const;
  void expand();
  void fill_up(size_t answer);
  template <class Set>
  void fill_between(size_t answer, double fits, double fails, const Set& set);
  bool is_within(const MemoryReport& peaks) const;
  Plan plan_either_way(train::Config& config, const PlanOptions& options) const;
  Figures extended(const Plan& plan, train::Config config, int64_t steps) const;
  void push_roots();
  void reserve_for_all_micro_batches(Outcome& found) const;
  void plan_answers_whole();
  FittedConfig describe_answer(const FitCandidate& candidate);
  std::vector<std::string> reasons(const FitCandidate& candidate);
  std::vector<FitCandidate> smallest();
  FitShortfall nearest();
  double overshoot(const Outcome& outcome) const;

  const FitRequest& request_;
  FitSpace space_;
  PlanOptions options_;
  FitBounds bounds_;
  bool is_timed_ = false;
  std::map<FitCandidate, Outcome> planned_;
  std::vector<TooLarge> too_large_;
  std::vector<FitCandidate> fitting_;
  std::vector<std::pair<FitScore, FitCandidate>> answers_;  // sorted
  std::priority_queue<Node, std::vector<Node>, std::greater<>> queue_;
  std::set<FitCandidate> seen_, corners_;
  int64_t num_found_ = 0;
  int64_t num_planned_ = 0;
  bool is_complete_ = true;
  std::optional<FitScore> left_;  // the smallest bound of the candidates that were not looked at
};

bool Search::is_within(const MemoryReport& peaks) const {
  const FitLimits& limits = request_.limits;
  int64_t device = reserved_of(peaks, Tier::device);
  int64_t host = reserved_of(peaks, Tier::pinned_host);
  if (limits.one_pool) device += std::exchange(host, 0);
  return device <= limits.device && host <= limits.at(Tier::pinned_host) &&
         reserved_of(peaks, Tier::nvme) <= limits.at(Tier::nvme);
}

// Plans with the faster update of states in host memory, if the file leaves the choice open;
// `config` has the choice afterwards. The update on the host takes no memory on the device: if that
// plan does not fit, neither does the other.
Plan Search::plan_either_way(train::Config& config, const PlanOptions& options) const {
  const bool is_open = leaves_offload_step_open(config.engine);
  if (is_open) config.engine.offload_step = zero::OffloadStep::host;
  Plan host = make_plan(request_.model, config, options);
  if (!is_open) return host;
  host.offload_choice = OffloadChoice{};
  if (!host.fullest.time || !is_within(host.fullest.peaks)) return host;
  train::Config other = config;
  other.engine.offload_step = zero::OffloadStep::device;
  Plan device = make_plan(request_.model, other, options);
  if (!device.fullest.has_step) return host;
  const bool is_faster = device.fullest.time->step_seconds < host.fullest.time->step_seconds;
  if (!is_within(device.fullest.peaks) || !is_faster) return host;
  config = other;
  device.offload_choice = OffloadChoice{.step = zero::OffloadStep::device};
  return device;
}

// Micro-batches of a step after which each further one (of several parts, as many as there are
// ranks) adds the same. Ranks of several parts keep those of two rounds, and with GPipe's order
// those of the whole step.
int64_t enough_of(const train::Config& config) {
  const int pipe = config.mesh.pipe;
  const bool keeps_all = config.engine.pipeline.schedule == parallel::PipelineSchedule::gpipe;
  if (pipe > 1 && keeps_all) return config.engine.batch.accumulation;
  if (config.engine.pipeline.interleave > 1) return int64_t{3} * pipe;
  return pipe > 1 ? pipe + kBeyondPipe : kPlannedBatches;
}

// The figures of the whole step, from a plan with as many micro-batches as `config`.
Figures Search::extended(const Plan& plan, train::Config config, int64_t steps) const {
  int64_t& planned = config.engine.batch.accumulation;
  const int64_t more_at_once = config.engine.pipeline.interleave > 1 ? config.mesh.pipe : 1;
  const int64_t further = (steps - planned) / more_at_once;
  if (plan.pipe.empty()) {
    const Figures four = figures_of(plan.fullest);
    if (further == 0) return four;
    if (plan.fullest.shorter) return extend(figures_of(*plan.fullest.shorter), four, further);
    --planned;
    return extend(figures_of(make_plan(request_.model, config, options_).fullest), four, further);
  }
  if (further > 0) planned -= more_at_once;
  const auto whole = [&](const RankPlan& rank) {
    const Figures more = figures_of(rank);
    if (further == 0) return more;
    PlanOptions options = options_;
    options.rank = rank.rank;
    return extend(figures_of(make_plan(request_.model, config, options).fullest), more, further);
  };
  Figures all = whole(*std::ranges::find(plan.pipe, plan.fullest.rank, &RankPlan::rank));
  if (!plan.fullest.time) return all;
  // The slowest of the whole step need not be that of fewer micro-batches.
  double slowest = all.time.step_seconds;
  for (const RankPlan& rank : plan.pipe) {
    if (rank.rank != plan.fullest.rank) {
      slowest = std::max(slowest, whole(rank).time.step_seconds);
    }
  }
  config.engine.batch.accumulation = steps;
  wait_in_pipeline(all.time, slowest, config.pipeline_shape());
  return all;
}

Outcome Search::plan(const files::json::Value& file, Extent extent,
                     const std::vector<int>& pipe_ranks) const {
  Outcome result;
  result.has_all_ranks = pipe_ranks.empty();
  PlanOptions options = options_;
  options.pipe_ranks = pipe_ranks;
  const bool bytes_only = extent == Extent::bytes_until_full;
  if (bytes_only) options.hardware.reset();
  if (extent != Extent::whole) {
    options.is_enough = [this, bytes_only](const MemoryReport& taken) {
      return bytes_only || !is_within(taken);
    };
    const int64_t times = extent == Extent::until_timed ? kHopeless : 1;
    options.hopeless_bytes = times * std::min(request_.limits.device, kMostLimit);
  }
  result.file = file;
  train::Config config;
  try {
    config = space_.config_of(file);
    config.device_memory_limit.reset();
    const int64_t steps = config.engine.batch.accumulation;
    const bool vertical = config.engine.pass_order == zero::PassOrder::vertical;
    int64_t& planned_steps = config.engine.batch.accumulation;
    if (!vertical) planned_steps = std::min(steps, enough_of(config));
    result.plan = plan_either_way(config, options);
    const Plan& plan = result.plan;
    const auto take = [&](const RankPlan& rank) {
      for (int t = 0; t < kNumTiers; ++t) {
        int64_t& most = result.reserved[static_cast<size_t>(t)];
        most = std::max(most, reserved_of(rank.peaks, static_cast<Tier>(t)));
      }
      return rank.has_step && is_within(rank.peaks);
    };
    result.fits = take(plan.fullest);
    for (const RankPlan& rank : plan.pipe) result.fits = take(rank) && result.fits;
    if (bytes_only || !plan.fullest.has_step) return result;
    const Figures all = result.fits ? extended(plan, config, steps) : figures_of(plan.fullest);
    const bool disk_unknown = all.disk > 0.0 && !all.time.swap_seconds;
    if (plan.fullest.time && !disk_unknown) result.time = all.time;
    const double bytes[] = {all.disk, config.engine.recompute.is_on() ? 1.0 : 0.0, all.copied,
                            all.sent};
    if (!options_.hardware) {
      result.score = {bytes[0], bytes[1], bytes[2], bytes[3], static_cast<double>(steps)};
    } else {
      result.score = {result.time ? result.time->step_seconds : kUntimed, bytes[0], bytes[1],
                      bytes[2], bytes[3]};
    }
  } catch (const ConfigError& error) {
    result.problem = error.what();
  } catch (const InvalidArgument& error) {
    result.problem = error.what();
  }
  // The place of the update of states in host memory is a part of the answer.
  if (result.problem.empty() && result.plan.offload_choice) {
    result.file =
        with_key(file, "zinc.offload_step", zero::name_of(result.plan.offload_choice->step));
  }
  return result;
}

// True if the plan of a candidate that does not fit still has the time of the whole step.
bool has_whole_time(const FitCandidate& c) {
  return c.accumulation <= kPlannedBatches || c.order.vertical;
}

// Plans the candidates side by side. The number of threads does not change the order of the
// results.
void Search::plan_all(const std::vector<FitCandidate>& candidates, Extent extent) {
  std::vector<FitCandidate> open;
  for (const FitCandidate& candidate : candidates) {
    const auto known = planned_.find(candidate);
    const bool is_known =
        known != planned_.end() &&
        (extent != Extent::whole || (known->second.is_whole() && known->second.has_all_ranks));
    if (!is_known) open.push_back(candidate);
  }
  std::vector<std::vector<int>> pipe_ranks(open.size());
  for (size_t i = 0; i < open.size(); ++i) {
    if (open[i].pipe > 1 && extent != Extent::whole) pipe_ranks[i] = bounds_.telling_ranks(open[i]);
  }
  std::vector<Outcome> outcomes(open.size());
  std::vector<std::exception_ptr> errors(open.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < open.size(); i = next++) {
      try {
        const bool is_timed = extent != Extent::until_timed || has_whole_time(open[i]);
        outcomes[i] =
            plan(space_.file_of(open[i]), is_timed ? extent : Extent::until_full, pipe_ranks[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int t = 1; t < std::min(request_.threads, static_cast<int>(open.size())); ++t) {
      threads.emplace_back(work);
    }
    work();
  }
  for (size_t i = 0; i < open.size(); ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
    learn(open[i], outcomes[i]);
    if (extent != Extent::bytes_until_full) {
      planned_.insert_or_assign(open[i], std::move(outcomes[i]));
    }
    ++num_planned_;
  }
}

void Search::learn(const FitCandidate& c, const Outcome& outcome) {
  const bool is_between = c.ratio || c.max_live || c.resident || c.recomputed;
  if (!outcome.problem.empty() || is_between) return;
  const int64_t handed_out = outcome.plan.fullest.device_peak();
  if (handed_out <= request_.limits.device) return;
  TooLarge large{.candidate = c, .at_peak = {}};
  for (int l = 0; l < kNumLabels; ++l) {
    large.at_peak[static_cast<size_t>(l)] =
        outcome.plan.fullest.at_peak.at(Tier::device, static_cast<Label>(l)).live;
  }
  too_large_.push_back(large);
}

// 1. of Note [Bounds of the search] and the two after it.
bool Search::cannot_fit(const FitCandidate& c) {
  if (bounds_.floor_of(c).device_bytes > request_.limits.device) return true;
  return std::ranges::any_of(too_large_, [&](const TooLarge& large) {
    return saves_less(c, large.candidate) || cannot_help(large, c);
  });
}

// 2. of Note [Bounds of the search]
bool Search::saves_less(const FitCandidate& c, const FitCandidate& large) const {
  const bool alike = large.mesh() == c.mesh() && large.order == c.order &&
                     large.micro_batch <= c.micro_batch &&
                     (large.accumulation > 1) == (c.accumulation > 1) && large.stage >= c.stage;
  if (!alike) return false;
  // Shards and the groups gathered from them may be more than whole weights.
  const bool has_shards = large.stage == kLastStage && large.at(Saving::weights) == 0;
  if (has_shards && c.stage < kLastStage) return false;
  const int mine = c.at(Saving::recompute);
  const int its = large.at(Saving::recompute);
  const auto is_segment = [&](int level) { return space_.blocks_per_segment(level) > 1; };
  if (mine != its && (mine > its || is_segment(mine) || is_segment(its))) return false;
  for (int s = 1; s < kNumSavings; ++s) {
    if (c.level[static_cast<size_t>(s)] > large.level[static_cast<size_t>(s)]) return false;
  }
  return true;
}

// 3. of Note [Bounds of the search]
bool Search::cannot_help(const TooLarge& large, const FitCandidate& c) const {
  const FitCandidate& from = large.candidate;
  if (from.mesh() != c.mesh() || from.micro_batch != c.micro_batch || from.order != c.order ||
      from.stage != c.stage) {
    return false;
  }
  std::array<bool, kNumLabels> may_change{};
  for (int s = 0; s < kNumSavings; ++s) {
    const int more = c.level[static_cast<size_t>(s)] - from.level[static_cast<size_t>(s)];
    if (more < 0) return false;
    if (more == 0) continue;
    for (const Label label : labels_of(static_cast<Saving>(s))) {
      may_change[static_cast<size_t>(label)] = true;
    }
  }
  int64_t least = 0;
  for (size_t l = 0; l < may_change.size(); ++l) least += may_change[l] ? 0 : large.at_peak[l];
  return least > request_.limits.device;
}

bool is_beaten_by(const FitCandidate& c, const FitCandidate& other) {
  if (other.mesh() != c.mesh() || other.micro_batch != c.micro_batch || other.order != c.order ||
      other.stage != c.stage) {
    return false;
  }
  for (size_t s = 0; s < kNumSavings; ++s) {
    if (other.level[s] > c.level[s]) return false;
  }
  return true;
}

bool Search::is_beaten(const FitCandidate& c) const {
  return std::ranges::any_of(fitting_,
                             [&](const FitCandidate& other) { return is_beaten_by(c, other); });
}

FitScore Search::bound_of(const Node& node) {
  if (!is_timed_) return node.bound;
  const double seconds = bounds_.floor_of(node.candidate).step_seconds;
  return seconds > node.bound[0] ? FitScore{seconds} : node.bound;
}

// The least score of a candidate that has one saving more than a candidate of this score.
FitScore Search::after(const FitScore& score, const FitCandidate& from,
                       const FitCandidate& to) const {
  if (!is_timed_ || score[0] >= kUntimed) return is_timed_ ? FitScore{} : score;
  FitScore bound{score[0]};
  if (from.at(Saving::states) == to.at(Saving::states)) return bound;
  const double update =
      kUpdateBytes * static_cast<double>(space_.num_parameters()) /
      (from.stage >= 1 ? options_.world : 1) /
      std::min(options_.hardware->read_bytes_per_second, options_.hardware->write_bytes_per_second);
  bound[0] = std::max(0.0, bound[0] - update);
  return bound;
}

void Search::push(const FitCandidate& candidate, const FitScore& bound, int depth) {
  if (!seen_.insert(candidate).second) return;
  queue_.push({.bound = bound, .depth = depth, .number = num_found_++, .candidate = candidate});
}

void Search::push_next(const Node& node, const FitScore& bound) {
  for (const FitCandidate& next : space_.next(node.candidate)) {
    push(next, after(bound, node.candidate, next), node.depth + 1);
  }
}

// 6. of Note [Bounds of the search]
void Search::push_orders(const Node& node, const Outcome& found) {
  if (!found.time) return;
  for (const FitCandidate& other : space_.in_other_orders(node.candidate)) {
    push(other, {found.score[0] * bounds_.share_in_order(node.candidate, other)}, node.depth);
  }
}

// The candidate that saves most among all that have the node's root and recomputation, unless it
// was asked for before: if it does not fit, none of them is planned.
std::optional<FitCandidate> Search::corner_of(const Node& node) {
  if (node.depth == 0) return std::nullopt;
  const FitCandidate& c = node.candidate;
  FitCandidate corner = space_.most_saving({.tensor = c.tensor,
                                            .sequence = c.sequence,
                                            .pipe = c.pipe,
                                            .micro_batch = c.micro_batch,
                                            .accumulation = c.accumulation,
                                            .order = c.order,
                                            .stage = c.stage});
  corner.at(Saving::recompute) = c.at(Saving::recompute);
  if (!space_.is_valid(corner)) corner.at(Saving::inputs) = 0;
  if (corner == c || !corners_.insert(corner).second) return std::nullopt;
  return corner;
}

// Adds an answer. Drops answers that save more than another one of their root and are no faster.
void Search::add_answer(const FitCandidate& candidate) {
  answers_.emplace_back(outcome(candidate).score, candidate);
  std::ranges::sort(answers_);
  std::vector<std::pair<FitScore, FitCandidate>> kept;
  for (const auto& [score, one] : answers_) {
    const bool is_needless = std::ranges::any_of(
        kept, [&, &mine = one](const auto& other) { return is_beaten_by(mine, other.second); });
    if (!is_needless) kept.emplace_back(score, one);
  }
  answers_ = std::move(kept);
}

bool Search::is_done(const FitScore& bound) const {
  const auto wanted = static_cast<size_t>(request_.num_answers);
  return answers_.size() >= wanted && bound > answers_[wanted - 1].first;
}

void Search::expand() {
  while (!queue_.empty()) {
    std::vector<Node> round, postponed;
    std::vector<FitCandidate> candidates, corners;
    while (!queue_.empty() && static_cast<int>(round.size() + postponed.size()) < kRound) {
      Node node = queue_.top();
      queue_.pop();
      const FitScore bound = bound_of(node);
      if (bound > node.bound) {  // the bound has grown since the node was queued
        node.bound = bound;
        queue_.push(node);
        continue;
      }
      if (is_done(bound)) {
        queue_ = {};
        break;
      }
      if (is_beaten(node.candidate)) continue;
      if (cannot_fit(node.candidate)) {
        push_next(node, node.bound);
        continue;
      }
      if (const auto corner = corner_of(node)) {
        corners.push_back(*corner);
        postponed.push_back(std::move(node));
        continue;
      }
      candidates.push_back(node.candidate);
      round.push_back(std::move(node));
    }
    if (num_planned_ + static_cast<int64_t>(candidates.size() + corners.size()) >
        request_.max_plans) {
      is_complete_ = false;
      left_ = (round.empty() ? postponed : round).front().bound;
      return;
    }
    plan_all(corners, Extent::bytes_until_full);
    plan_all(candidates);
    for (Node& node : postponed) queue_.push(std::move(node));
    for (const Node& node : round) {
      const Outcome& found = outcome(node.candidate);
      const bool refused = !found.problem.empty();
      if (!refused && found.fits) {
        fitting_.push_back(node.candidate);
        add_answer(node.candidate);
        push_orders(node, found);
        continue;
      }
      const bool is_timed = !refused && has_whole_time(node.candidate);
      push_next(node, is_timed ? std::max(node.bound, found.score) : node.bound);
    }
  }
}

// Halves the way between a value that fits and one that does not.
template <class Set>
void Search::fill_between(size_t answer, double fits, double fails, const Set& set) {
  for (int i = 0; i < kFillSteps; ++i) {
    FitCandidate middle = answers_[answer].second;
    const double value = (fits + fails) / 2;
    set(middle, value);
    plan_all({middle});
    const Outcome& found = outcome(middle);
    if (found.problem.empty() && found.fits) {
      fits = value;
      if (found.score <= answers_[answer].first) answers_[answer] = {found.score, middle};
    } else {
      fails = value;
    }
  }
}

void Search::fill_up(size_t answer) {
  const FitCandidate candidate = answers_[answer].second;
  const int states = candidate.at(Saving::states);
  const files::json::Value file = space_.file_of(candidate);
  const zero::ZeroConfig zero = space_.config_of(file).engine.zero;
  if (space_.blocks_per_segment(candidate.at(Saving::recompute)) == 1 &&
      !space_.is_fixed(kRecomputeBlocksKey)) {
    fill_between(answer, static_cast<double>(space_.num_blocks()), 0.0,
                 [](FitCandidate& c, double value) { c.recomputed = static_cast<int64_t>(value); });
  }
  const bool splits = zero.offload_optimizer.device == zero::OffloadDevice::cpu && states > 0;
  if (splits) {
    const double other = states == 1 ? 0.0 : 0.5;
    fill_between(answer, zero.offload_optimizer.ratio, other,
                 [](FitCandidate& c, double value) { c.ratio = value; });
  }
  if (const int level = candidate.at(Saving::residency); level > 0) {
    FitCandidate above = candidate;
    above.at(Saving::residency) = level - 1;
    const zero::ZeroConfig over = space_.config_of(above).engine.zero;
    if (candidate.accumulation > 1 && !space_.is_fixed(kResidentKey)) {
      const int64_t all =
          space_.num_parameters() * size_of(space_.config_of(file).engine.precision.dtype);
      fill_between(answer, 0.0, static_cast<double>(all),
                   [](FitCandidate& c, double value) { c.resident = static_cast<int64_t>(value); });
    }
    const auto more = static_cast<double>(over.max_live_parameters);
    if (over.max_live_parameters == zero.max_live_parameters) return;
    fill_between(answer, static_cast<double>(zero.max_live_parameters), more,
                 [](FitCandidate& c, double value) { c.max_live = static_cast<int64_t>(value); });
  }
}

// Pushes the roots, without meshes whose ranks cannot share the model.
void Search::push_roots() {
  std::set<std::pair<int, int>> known;
  std::string problem;
  const std::vector<FitCandidate> all = space_.roots();
  for (const FitCandidate& root : all) {
    const auto [shared, is_new] = known.emplace(root.tensor, root.sequence);
    if (!is_new || (root.tensor == 1 && root.sequence == 1)) continue;
    if (bounds_.problem_of(root).empty()) continue;
    problem = bounds_.problem_of(root);
    space_.refuse(root.tensor, root.sequence);
  }
  if (space_.roots().empty()) {
    const bool divides = space_.options().global_batch % space_.options().world == 0;
    throw ConfigError(divides ? problem : space_.undivided());
  }
  for (const FitCandidate& root : space_.roots()) {
    push(root, {is_timed_ ? bounds_.least_seconds(root) : 0.0}, 0);
  }
}

// Reserved bytes vary with the order of sizes, and in a pipeline they may grow in any micro-batch.
// So an answer's bytes come from a plan of all its micro-batches.
void Search::reserve_for_all_micro_batches(Outcome& found) const {
  train::Config config = space_.config_of(found.file);
  config.device_memory_limit.reset();
  if (found.plan.offload_choice) config.engine.offload_step = found.plan.offload_choice->step;
  if (config.mesh.pipe == 1 || config.engine.batch.accumulation <= enough_of(config)) return;
  PlanOptions options = options_;
  options.hardware.reset();
  const Plan plan = make_plan(request_.model, config, options);
  for (const RankPlan& rank : plan.pipe) {
    found.fits = found.fits && is_within(rank.peaks);
    for (int t = 0; t < kNumTiers; ++t) {
      int64_t& most = found.reserved[static_cast<size_t>(t)];
      most = std::max(most, reserved_of(rank.peaks, static_cast<Tier>(t)));
    }
  }
}

// Plans the answers on all ranks of their pipelines.
void Search::plan_answers_whole() {
  std::vector<FitCandidate> candidates;
  for (const auto& [score, candidate] : answers_) candidates.push_back(candidate);
  plan_all(candidates, Extent::whole);
  answers_.clear();
  for (const FitCandidate& candidate : candidates) {
    Outcome& found = planned_.at(candidate);
    if (found.fits) reserve_for_all_micro_batches(found);
    if (found.fits) answers_.emplace_back(found.score, candidate);
  }
  std::ranges::sort(answers_);
}

FitResult Search::run() {
  require(request_.limits.device > 0, "fit: the limit of the device must be positive, not ",
          request_.limits.device);
  push_roots();
  expand();
  FitResult result{.num_candidates = space_.size(),
                   .is_complete = is_complete_,
                   .is_timed = is_timed_,
                   .limits = request_.limits,
                   .global_batch = space_.options().global_batch};
  const size_t kept = std::min(answers_.size(), static_cast<size_t>(request_.num_answers));
  answers_.resize(kept);
  if (kept > 0) fill_up(0);
  plan_answers_whole();
  for (const auto& [score, candidate] : answers_) {
    result.best.push_back(describe_answer(candidate));
  }
  if (result.best.empty()) {
    result.nothing = nearest();
  } else {
    result.best.front().why = reasons(answers_.front().second);
    const double best = answers_.front().first[0];
    if (left_ && is_timed_ && best < kUntimed) {
      result.gap = std::max(0.0, 1.0 - (*left_)[0] / best);
    }
  }
  result.num_planned = num_planned_;
  return result;
}

double share(int64_t bytes, int64_t limit) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(limit, 1));
}

FittedConfig Search::describe_answer(const FitCandidate& candidate) {
  const Outcome& found = outcome(candidate);
  FittedConfig answer{.candidate = candidate,
                      .words = space_.words(candidate),
                      .file = found.file,
                      .score = found.score,
                      .reserved = found.reserved,
                      .time = found.time,
                      .no_time = found.plan.fullest.no_time,
                      .tokens_per_step = space_.options().global_batch * options_.seq};
  if (answer.time) {
    const double flops = found.plan.flops_per_step * static_cast<double>(answer.tokens_per_step) /
                         static_cast<double>(found.plan.tokens_per_step);
    const DType dtype = space_.config_of(found.file).engine.precision.dtype;
    answer.mfu =
        flops * seconds_per_flop(options_, WorkKind::gemm, dtype) / answer.time->step_seconds;
  }
  if (is_timed_ && !answer.time && answer.no_time.empty()) {
    answer.no_time = "the hardware file has no \"disk\"";
  }
  double fullest = 0.0;
  for (int t = 0; t < kNumTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    int64_t bytes = found.reserved[static_cast<size_t>(t)];
    if (request_.limits.one_pool && tier == Tier::device) {
      bytes += found.reserved[static_cast<size_t>(Tier::pinned_host)];
    }
    if (request_.limits.at(tier) == std::numeric_limits<int64_t>::max()) continue;
    const double used = share(bytes, request_.limits.at(tier));
    if (used <= fullest) continue;
    fullest = used;
    answer.binds = fmt::format("{} {:.1f} %", name_of(tier), 100.0 * used);
  }
  return answer;
}

// Each saving of the answer, and the answer without it.
std::vector<std::string> Search::reasons(const FitCandidate& candidate) {
  std::vector<std::pair<std::string, FitCandidate>> without;
  for (int s = 0; s < kNumSavings; ++s) {
    const auto saving = static_cast<Saving>(s);
    if (candidate.at(saving) == 0) continue;
    FitCandidate other = candidate;
    --other.at(saving);
    if (saving == Saving::states) other.ratio.reset();
    if (saving == Saving::residency) other.max_live.reset(), other.resident.reset();
    if (saving == Saving::recompute) other.recomputed.reset();
    if (!space_.is_valid(other)) continue;
    const std::string then = space_.words(saving, other.at(saving));
    without.emplace_back(fmt::format("{} at {}", name_of(saving), then.empty() ? "none" : then),
                         other);
  }
  if (candidate.pipe > 1) {
    FitCandidate other = candidate;
    other.order = FitOrder{};
    if (std::ranges::count(space_.in_other_orders(other), candidate) > 0) {
      without.emplace_back("one part a rank, 1f1b", other);
    }
  }
  for (const FitCandidate& root : space_.roots()) {  // the next larger micro-batch
    if (root.mesh() != candidate.mesh() || root.stage != candidate.stage ||
        root.order != candidate.order || root.micro_batch <= candidate.micro_batch) {
      continue;
    }
    FitCandidate larger = candidate;
    larger.micro_batch = root.micro_batch;
    larger.accumulation = root.accumulation;
    without.emplace_back(fmt::format("micro-batch {} x {}", root.micro_batch, root.accumulation),
                         larger);
    break;
  }
  std::vector<FitCandidate> others;
  for (const auto& [words, other] : without) others.push_back(other);
  plan_all(others, Extent::whole);
  std::vector<std::string> lines;
  for (const auto& [words, other] : without) {
    const Outcome& found = outcome(other);
    if (!found.problem.empty()) continue;
    std::string line = words + ": ";
    if (!found.fits) {
      line += "does not fit,";
      for (int t = 0; t < kNumTiers; ++t) {
        if (found.reserved[static_cast<size_t>(t)] == 0) continue;
        line += fmt::format(" {} {:.2f} MiB", name_of(static_cast<Tier>(t)),
                            static_cast<double>(found.reserved[static_cast<size_t>(t)]) / 0x1p20);
      }
    } else if (found.time) {
      line += fmt::format("{:.3f} ms a step", 1e3 * found.time->step_seconds);
    } else {
      line += "fits";
    }
    lines.push_back(line);
  }
  return lines;
}

double Search::overshoot(const Outcome& found) const {
  if (!found.problem.empty()) return std::numeric_limits<double>::infinity();
  double worst = 0.0;
  auto reserved = found.reserved;
  if (request_.limits.one_pool) reserved[0] += std::exchange(reserved[1], 0);
  for (int t = 0; t < kNumTiers; ++t) {
    worst = std::max(
        worst, share(reserved[static_cast<size_t>(t)], request_.limits.at(static_cast<Tier>(t))));
  }
  return worst;
}

// The candidates that save most, for the smallest micro-batch and for steps with one micro-batch,
// which keep no sums.
std::vector<FitCandidate> Search::smallest() {
  const std::vector<FitCandidate>& roots = space_.roots();
  const int64_t micro_batch =
      std::ranges::min_element(roots, {}, &FitCandidate::micro_batch)->micro_batch;
  const bool only_vertical =
      std::ranges::all_of(roots, [](const FitCandidate& root) { return root.order.vertical; });
  std::vector<FitCandidate> found;
  for (const FitCandidate& root : roots) {
    if (root.micro_batch != micro_batch && root.accumulation != 1) continue;
    if (root.order.vertical != only_vertical) continue;
    for (int level = 0; level < space_.num_levels(Saving::recompute); ++level) {
      FitCandidate one = space_.most_saving(root);
      one.at(Saving::recompute) = level;
      if (space_.is_valid(one)) found.push_back(one);
    }
  }
  if (static_cast<int>(found.size()) <= kMostNearest) return found;
  std::ranges::sort(found, {}, [&](const FitCandidate& one) {
    return std::pair(bounds_.floor_of(one).device_bytes, one);
  });
  found.resize(kMostNearest);
  return found;
}

// Goes down from the smallest that is known, by one kind at a time, to any of its levels.
FitShortfall Search::nearest() {
  plan_all(smallest(), Extent::whole);
  const auto nearest_planned = [&] {
    const std::pair<const FitCandidate, Outcome>* nearest = nullptr;
    for (const auto& one : planned_) {
      if (!one.second.is_whole()) continue;
      if (nearest == nullptr || overshoot(one.second) < overshoot(nearest->second)) nearest = &one;
    }
    return nearest->first;
  };
  FitCandidate best = nearest_planned();
  while (true) {
    std::vector<FitCandidate> around;
    const int64_t now_device = outcome(best).plan.fullest.device_peak();
    for (int s = 0; s < kNumSavings; ++s) {
      for (int level = 0; level < space_.num_levels(static_cast<Saving>(s)); ++level) {
        FitCandidate one = best;
        one.level[static_cast<size_t>(s)] = level;
        if (space_.is_valid(one)) around.push_back(one);
      }
    }
    for (const FitCandidate& root : space_.roots()) {
      FitCandidate one = best;
      one.tensor = root.tensor;
      one.sequence = root.sequence;
      one.pipe = root.pipe;
      one.stage = root.stage;
      one.micro_batch = root.micro_batch;
      one.accumulation = root.accumulation;
      one.order = root.order;
      const bool same_stage = one.stage == best.stage;
      const bool same_batch = one.micro_batch == best.micro_batch;
      const bool nearby =
          one.mesh() == best.mesh() ? same_stage || same_batch : same_stage && same_batch;
      if (nearby && space_.is_valid(one) && bounds_.floor_of(one).device_bytes < now_device) {
        around.push_back(one);
      }
    }
    plan_all(around, Extent::whole);
    const FitCandidate now = nearest_planned();
    if (!(overshoot(outcome(now)) < overshoot(outcome(best)))) break;
    best = now;
  }
  const Outcome& found = outcome(best);
  FitShortfall result{.words = space_.words(best), .reserved = found.reserved};
  auto reserved = found.reserved;
  if (request_.limits.one_pool) reserved[0] += std::exchange(reserved[1], 0);
  for (int t = 0; t < kNumTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    if (reserved[static_cast<size_t>(t)] > request_.limits.at(tier)) result.beyond.push_back(tier);
  }
  std::vector<std::pair<int64_t, std::string_view>> labels;
  for (int l = 0; l < kNumLabels; ++l) {
    const auto label = static_cast<Label>(l);
    const int64_t bytes = found.plan.fullest.at_peak.at(Tier::device, label).live;
    if (bytes > 0) labels.emplace_back(bytes, name_of(label));
  }
  std::ranges::sort(labels, std::greater<>());
  for (const auto& [bytes, name] : labels) {
    result.largest += fmt::format("{}{} {:.2f} MiB", result.largest.empty() ? "" : ", ", name,
                                  static_cast<double>(bytes) / 0x1p20);
  }
  return result;
}

// Values beside `own` that the key may have.
std::vector<files::json::Value> values_beside(const train::Key& key,
                                              const files::json::Value& own) {
  std::vector<files::json::Value> values;
  switch (key.setting.type) {
    case train::KeyType::boolean:
      return {files::json::Value(false), files::json::Value(true)};
    case train::KeyType::choice:
      for (const std::string& choice : key.setting.choices) values.emplace_back(choice);
      return values;
    case train::KeyType::integer: {
      if (key.range.most - key.range.least <= 8.0) {
        for (auto i = static_cast<int64_t>(key.range.least);
             i <= static_cast<int64_t>(key.range.most); ++i) {
          values.emplace_back(i);
        }
        return values;
      }
      const int64_t now = own.is_integer() ? own.as_int64() : 0;
      for (const int64_t value : {now / 4, now / 2, now, 2 * now, 4 * now}) {
        values.emplace_back(value);
      }
      return values;
    }
    case train::KeyType::number:
      for (const double factor : {0.0, 0.25, 0.5, 0.75, 1.0}) values.emplace_back(factor);
      return values;
    default:
      throw ConfigError(
          str("--explain ", key.path, ": its values are no choices, numbers or ", "flags"));
  }
}

const train::Key& find_explained(std::string_view name) {
  if (const train::Key* key = train::find_key(name); key != nullptr) return *key;
  std::vector<const train::Key*> found;
  std::string names;
  for (const train::Key& key : train::config_keys()) {
    if (key.name() != name || key.key_class != train::KeyClass::works) continue;
    found.push_back(&key);
    names += (names.empty() ? "" : ", ") + key.path;
  }
  if (found.size() == 1) return *found.front();
  throw ConfigError(found.empty() ? str("--explain ", name, ": no such key (zinc config keys)")
                                  : str("--explain ", name, " could be ", names));
}

// The answer with this value, less the fewest savings that rule it out; `refused` where no such
// are.
Outcome without_some(const Search& search, const FittedConfig& answer, const train::Key& key,
                     const files::json::Value& value, const Outcome& refused, KeyCost& row) {
  const std::vector<std::vector<Saving>> ways{{Saving::states},
                                              {Saving::weights},
                                              {Saving::inputs},
                                              {Saving::states, Saving::weights},
                                              {Saving::states, Saving::weights, Saving::inputs}};
  for (const std::vector<Saving>& way : ways) {
    FitCandidate candidate = answer.candidate;
    std::string without;
    for (const Saving saving : way) {
      const std::string words = search.space().words(saving, candidate.at(saving));
      if (candidate.at(saving) == 0 || words.empty()) continue;
      without += (without.empty() ? "" : ", ") + words;
      candidate.at(saving) = 0;
      if (saving == Saving::states) candidate.ratio.reset();
    }
    if (without.empty()) continue;
    Outcome found = search.plan(with_key(search.space().file_of(candidate), key.path, value));
    if (!found.problem.empty()) continue;
    row.without = without;
    return found;
  }
  return refused;
}

}  // namespace

int64_t FitLimits::at(Tier tier) const {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  if (tier == Tier::device) return device;
  if (tier == Tier::pinned_host) return host.value_or(kNone);
  return nvme.value_or(kNone);
}

FitResult fit(const FitRequest& request) { return Search(request).run(); }

KeyCosts explain_key(const FitRequest& request, const FittedConfig& answer, std::string_view name) {
  const train::Key& key = find_explained(name);
  if (key.key_class != train::KeyClass::works || key.is_block() || !key.stands_for.empty()) {
    throw ConfigError(str("--explain ", key.path, ": it is no key with a value of its own"));
  }
  const Search search(request);
  const train::Config config = search.space().config_of(answer.file);
  const files::json::Value own = key.setting.get(config, request.plan.world);
  std::vector<files::json::Value> values = values_beside(key, own);
  if (std::ranges::find(values, own) == values.end()) values.push_back(own);
  KeyCosts costs{.path = key.path};
  for (const files::json::Value& value : values) {
    const files::json::Value text = files::json::write(value);
    const bool is_known = std::ranges::any_of(
        costs.rows, [&](const KeyCost& row) { return row.value == text.as_string(); });
    if (is_known) continue;
    KeyCost row{.value = text.as_string(), .is_own = value == own};
    files::json::Value file = answer.file;
    const bool is_micro = key.path == "train_micro_batch_size_per_gpu";
    const bool is_steps = key.path == "gradient_accumulation_steps";
    row.problem = value.is_null() ? "" : train::problem_with(key, value);
    if (row.problem.empty() && (is_micro || is_steps)) {  // the global batch stays
      const int64_t share = config.engine.batch.micro_batch * config.engine.batch.accumulation;
      const int64_t number = value.as_int64();
      if (number < 1 || share % number != 0) continue;
      file = with_key(file,
                      is_micro ? "gradient_accumulation_steps" : "train_micro_batch_size_per_gpu",
                      share / number);
    }
    if (row.problem.empty()) {
      // The key's value, unless the file has it already.
      if (!row.is_own) file = with_key(file, key.path, value);
      Outcome found = search.plan(file);
      if (!found.problem.empty()) found = without_some(search, answer, key, value, found, row);
      row.problem = found.problem;
      row.fits = found.fits;
      row.reserved = found.reserved;
      if (found.time) row.step_seconds = found.time->step_seconds;
    }
    costs.rows.push_back(std::move(row));
  }
  return costs;
}

}  // namespace zinc::plan
