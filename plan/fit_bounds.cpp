#include "plan/fit_bounds.h"

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "hub/family.h"
#include "parallel/pipeline.h"

// Note [Floors]
// n blocks of L on a rank, P ranks of a pipeline, m micro-batches, D x S ranks that share states:
//
// - a pass of a rank lasts n times a block, and what the embedding and the head take; a step of the
//   pipeline as long as m passes of its slowest rank, and as that waits: bubble() in
//   parallel/pipeline.h. Sharding, offload and smaller buffers add work or waits to that and take
//   none away;
// - sums of gradients go to the network once a step (stages 0 and 1, in the last backward pass) or
//   once a micro-batch, on stage 0 forth and back. None goes before the first forward pass is over,
//   and that is not over before all weights of stage 3 were gathered once. Where they do not stay,
//   they come back once a micro-batch at least. New weights of stages 1 and 2 are gathered when the
//   norm of all sums is known, unless states elsewhere let updates wait for the next forward pass.
//   What else may be hidden is: the step is as long as the longest of these;
// - on the device lie, at some moment together, weights, states and sums of gradients, in so many
//   parts as the stage says and without what goes elsewhere, and the activations of as many
//   micro-batches as a rank keeps at least: min(P - p, m) on rank p.
//
// Neither is rounded to segments or includes what a rank takes for its buffers. The blocks of a
// pipeline's ranks are cut by floating-point operations, as the default does.
namespace zinc::plan {
namespace {

constexpr double kSurely = 0.98;  // of a pass: stages write gradients in different ways
constexpr double kForward = 0.2;  // of a pass, whose backward may compute forward again

// The same model with `blocks` blocks; nullopt: its family has no single number of blocks.
std::optional<hub::ModelConfigFile> with_blocks(const hub::ModelConfigFile& model, int64_t blocks) {
  const hub::Family& family = model.config.family();
  files::json::Object object;
  family.write(model.config.value(), object);
  if (object.find("num_decoder_layers") != nullptr) return std::nullopt;
  for (const char* key : {"num_hidden_layers", "n_layer", "num_layers"}) {
    if (object.find(key) == nullptr) continue;
    object.set(key, blocks);
    try {
      hub::ModelConfigFile few = model;
      few.config = hub::ModelConfig(family, family.parse(files::json::Value(std::move(object))));
      return few;
    } catch (const Error&) {
      return std::nullopt;  // something else counts them too
    }
  }
  return std::nullopt;
}

void side_by_side(int threads, const std::array<std::function<void()>, 2>& works) {
  std::array<std::exception_ptr, 2> errors;
  const auto run = [&](size_t i) {
    try {
      works[i]();
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::jthread other;
    if (threads > 1) other = std::jthread([&] { run(1); });
    run(0);
    if (threads <= 1) run(1);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

double seconds_per_flop(const PlanOptions& options, WorkKind kind, DType dtype) {
  constexpr int64_t kFlops = int64_t{1} << 50;
  const RankSpeed speed(*options.hardware, options.num_threads, options.ranks_per_host);
  const WorkCost cost{.kind = kind, .dtype = dtype, .flops = kFlops};
  const double seconds = speed.seconds("", cost, speed.threads());
  return (seconds - options.hardware->launch_seconds) / static_cast<double>(kFlops);
}

FitBounds::FitBounds(const hub::ModelConfigFile& model, const FitSpace& space,
                     const PlanOptions& options, int threads)
    : model_(model), space_(space), options_(options), threads_(threads) {}

// Plans on the tensor and sequence ranks of one model, without pipeline and ZeRO ranks: nothing is
// sharded.
Plan FitBounds::plan_of(const FitCandidate& c, int64_t blocks) const {
  train::Config config = space_.config_of(c);
  zero::EngineConfig& engine = config.engine;
  const int64_t segment = space_.blocks_per_segment(c.at(Saving::recompute));
  if (segment >= 0) {
    engine.recompute.every_blocks = segment;
    engine.recompute.num_checkpoints = 0;
    engine.recompute.most_blocks.reset();
  }
  engine.recompute.cpu_checkpointing = false;
  engine.recompute.offload = {};
  engine.zero = {};
  engine.gradient_offload = zero::GradientOffload::host;
  engine.pass_order = zero::PassOrder::horizontal;
  engine.cuda_graph = false;
  engine.batch.accumulation = 2;
  engine.pipeline = {};
  config.mesh.pipe = 1;
  config.device_memory_limit.reset();
  PlanOptions options = options_;
  options.world = c.tensor * c.sequence;
  options.evaluate = options.save = false;
  options.program = false;
  options.is_enough = [](const MemoryReport&) { return true; };
  if (blocks == space_.num_blocks()) return make_plan(model_, config, options);
  return make_plan(*with_blocks(model_, blocks), config, options);
}

FitBounds::Slice FitBounds::make_slice(const FitCandidate& c) const {
  const int64_t all = space_.num_blocks();
  const int64_t segment = space_.blocks_per_segment(c.at(Saving::recompute));
  const int64_t few = std::max<int64_t>(segment, 1);
  const bool is_cut = segment >= 0 && 2 * few < all && with_blocks(model_, few).has_value();
  const std::array<int64_t, 2> blocks{is_cut ? few : all, is_cut ? 2 * few : all};
  std::array<RankPlan, 2> plans;
  Slice slice;
  try {
    const auto plan = [&](size_t i) {
      return [&, i] { plans[i] = plan_of(c, blocks[i]).fullest; };
    };
    if (is_cut) {
      side_by_side(threads_, {plan(0), plan(1)});
    } else {
      plan(0)();
      plans[1] = plans[0];
    }
  } catch (const ConfigError& error) {
    slice.problem = error.what();
  } catch (const InvalidArgument& error) {
    slice.problem = error.what();
  }
  if (!slice.problem.empty()) return slice;
  const auto linear = [&](const auto& value) -> Linear {
    const double less = value(plans[0]), more = value(plans[1]);
    const double each = is_cut ? (more - less) / static_cast<double>(few) : 0.0;
    return {.each = each, .rest = less - each * static_cast<double>(blocks[0])};
  };
  const auto bytes = [&](int64_t StandingBytes::*of) {
    return linear([of](const RankPlan& rank) { return static_cast<double>(rank.standing.*of); });
  };
  slice.seconds = linear([](const RankPlan& rank) { return rank.pass_seconds.value_or(0.0); });
  slice.flops = linear([](const RankPlan& rank) { return static_cast<double>(rank.pass_flops); });
  slice.weights = bytes(&StandingBytes::weights);
  slice.states = bytes(&StandingBytes::states);
  slice.gradients = bytes(&StandingBytes::gradients);
  slice.activations = bytes(&StandingBytes::activations);
  return slice;
}

const FitBounds::Slice& FitBounds::slice_of(const FitCandidate& c) {
  const int recompute = c.at(Saving::recompute);
  const Kind kind(c.tensor, c.sequence, c.micro_batch, recompute, c.at(Saving::moments));
  if (const auto found = slices_.find(kind); found != slices_.end()) return found->second;
  first_.emplace(std::tuple(c.tensor, c.sequence, recompute), kind);
  FitCandidate plain{.tensor = c.tensor,
                     .sequence = c.sequence,
                     .micro_batch = c.micro_batch,
                     .accumulation = c.accumulation,
                     .stage = c.stage};
  plain.pipe = c.pipe;  // for the sake of the batch
  if (!space_.is_fixed("zero_optimization.stage")) plain.stage = c.pipe > 1 ? 2 : 3;
  plain.at(Saving::recompute) = recompute;
  plain.at(Saving::moments) = c.at(Saving::moments);
  const Slice& slice = slices_.emplace(kind, make_slice(plain)).first->second;
  if (options_.hardware && slice.problem.empty() && seconds_per_flop_ == 0.0) {
    seconds_per_flop_ = std::numeric_limits<double>::infinity();
    const DType dtype = space_.config_of(plain).engine.precision.dtype;
    for (const WorkKind of : {WorkKind::gemm, WorkKind::attention, WorkKind::other}) {
      seconds_per_flop_ = std::min(seconds_per_flop_, seconds_per_flop(options_, of, dtype));
    }
  }
  return slice;
}

const std::string& FitBounds::problem_of(const FitCandidate& c) { return slice_of(c).problem; }

std::vector<int64_t> FitBounds::blocks_by_rank(const FitCandidate& c, const Slice& slice) const {
  const int64_t all = space_.num_blocks();
  if (c.pipe == 1) return {all};
  std::vector<double> costs(static_cast<size_t>(all), std::max(slice.flops.each, 1.0));
  std::vector<bool> counts(costs.size(), true);
  costs.push_back(std::max(slice.flops.rest, 0.0));
  counts.push_back(false);
  const int parts = c.pipe * c.pipeline().parts;
  const std::vector<int64_t> first = parallel::cut_evenly(costs, counts, parts, c.pipe);
  std::vector<int64_t> blocks(static_cast<size_t>(c.pipe));
  for (size_t p = 0; p + 1 < first.size(); ++p) {
    blocks[p % blocks.size()] += std::min(first[p + 1], all) - std::min(first[p], all);
  }
  return blocks;
}

std::vector<int> FitBounds::telling_ranks(const FitCandidate& c) {
  const std::vector<int64_t> blocks = blocks_by_rank(c, slice_of(c));
  std::vector<int> ranks{0, 1, static_cast<int>(std::ranges::max_element(blocks) - blocks.begin()),
                         c.pipe - 1};
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

double FitBounds::least_seconds(const FitCandidate& c) {
  if (!options_.hardware) return 0.0;
  const auto known = first_.find({c.tensor, c.sequence, c.at(Saving::recompute)});
  const Slice& slice = known == first_.end() ? slice_of(c) : slices_.at(known->second);
  if (!slice.problem.empty()) return 0.0;
  const int64_t sequences = known == first_.end() ? c.micro_batch : std::get<2>(known->second);
  const double flops = slice.flops.at(static_cast<double>(space_.num_blocks())) /
                       static_cast<double>(sequences * c.pipe);
  const double passes = static_cast<double>(c.accumulation) * (1.0 + least_bubble(c));
  return kSurely * flops * static_cast<double>(c.micro_batch) * passes * seconds_per_flop_;
}

double FitBounds::least_bubble(const FitCandidate& c) const {
  double least = parallel::bubble(c.pipeline());
  for (const FitCandidate& other : space_.in_other_orders(c)) {
    least = std::min(least, parallel::bubble(other.pipeline()));
  }
  return least;
}

// Parts of an interleaved pipeline are cut finer, so its slowest rank may have less.
double FitBounds::share_in_order(const FitCandidate& c, const FitCandidate& other) {
  const Slice& slice = slice_of(c);
  const auto seconds = [&](const FitCandidate& one) {
    return slowest_pass(one, slice) * (1.0 + parallel::bubble(one.pipeline()));
  };
  return kSurely * seconds(other) / seconds(c);
}

// Seconds in which ranks with the same part of the model pass around `numel` elements of `size`
// bytes.
double FitBounds::network_seconds(const FitCandidate& c, double numel, double size) const {
  const int shards = options_.world / c.mesh().ranks_per_model();
  if (shards == 1) return 0.0;
  const int apart = c.mesh().ranks_per_model();
  const double bytes = numel * size * (shards - 1) / shards;
  const RankSpeed speed(*options_.hardware, options_.num_threads, options_.ranks_per_host);
  const WorkCost cost{.kind = WorkKind::collective,
                      .bytes_read = static_cast<int64_t>(bytes),
                      .ranks = shards,
                      .near_ranks = std::clamp(options_.ranks_per_host / apart, 1, shards)};
  return std::min(speed.seconds("reduce_scatter", cost, 1), speed.seconds("all_gather", cost, 1));
}

// Seconds of the slowest rank for a micro-batch.
double FitBounds::slowest_pass(const FitCandidate& c, const Slice& slice) const {
  if (slice.seconds.each == 0.0) return slice.seconds.rest / c.pipe;
  const std::vector<int64_t> blocks = blocks_by_rank(c, slice);
  const double head = std::max(slice.flops.rest, 0.0) * seconds_per_flop_;
  double slowest = 0.0;
  for (size_t p = 0; p < blocks.size(); ++p) {
    const auto n = static_cast<double>(blocks[p]);
    double pass = c.pipe == 1 ? slice.seconds.at(n) : slice.seconds.each * n;
    if (c.pipe > 1 && p + 1 == blocks.size()) pass += head;
    slowest = std::max(slowest, pass);
  }
  return slowest;
}

double FitBounds::floor_seconds(const FitCandidate& c, const Slice& slice) const {
  if (!options_.hardware) return 0.0;
  const zero::EngineConfig engine = space_.config_of(c).engine;
  const auto m = static_cast<double>(c.accumulation);
  const auto most = static_cast<double>(std::ranges::max(blocks_by_rank(c, slice)));
  const auto of_largest = [&](const Linear& part) {
    return c.pipe == 1 ? part.at(most) : part.each * most;
  };
  const double pass = of_largest(slice.seconds);
  const double numel =
      of_largest(slice.weights) / static_cast<double>(size_of(engine.precision.dtype));
  const bool vertical = c.order.vertical;
  const bool each_batch = engine.reduce_schedule() == zero::ReduceSchedule::micro_step && !vertical;
  double seconds = slowest_pass(c, slice) * m;
  try {
    const double once =
        network_seconds(c, numel, static_cast<double>(size_of(engine.communication_dtype())));
    const double gather =
        network_seconds(c, numel, static_cast<double>(size_of(engine.precision.dtype)));
    const double back = c.stage == 0 ? std::min(once, gather) : 0.0;
    const double reduce = (once + back) * (each_batch ? m : 1.0);
    const double ahead =
        kForward * pass * (vertical ? m : 1.0) + (each_batch || vertical ? 0.0 : m - 1.0) * pass;
    const bool then_gathers =
        (c.stage == 1 || c.stage == 2) && space_.states_on_device(c.at(Saving::states)) == 1.0;
    seconds = std::max(seconds, ahead + reduce + (then_gathers ? gather : 0.0));
    if (c.stage == 3) {
      const bool come_back = c.at(Saving::residency) > 0 && !vertical;
      seconds = std::max({seconds, gather + reduce, come_back ? gather * m : 0.0});
    }
  } catch (const ConfigError&) {  // the plan says what the file lacks
  }
  return kSurely * seconds * (1.0 + least_bubble(c));
}

int64_t FitBounds::floor_bytes(const FitCandidate& c, const Slice& slice) const {
  const std::vector<int64_t> blocks = blocks_by_rank(c, slice);
  const double shards = options_.world / c.mesh().ranks_per_model();
  const bool cut = slice.weights.each != 0.0;
  double most = 0.0;
  for (size_t p = 0; p < blocks.size(); ++p) {
    const auto n = static_cast<double>(blocks[p]);
    const auto of = [&](const Linear& part) {
      if (c.pipe == 1) return part.at(n);
      return cut ? part.each * n : 0.0;
    };
    double weights = of(slice.weights);
    if (c.at(Saving::weights) > 0) {
      weights = 0.0;
    } else if (c.stage == 3 && c.at(Saving::residency) > 0) {
      weights /= shards;
    }
    const double on_device = space_.states_on_device(c.at(Saving::states));
    const double states = of(slice.states) / (c.stage >= 1 ? shards : 1.0) * on_device;
    double gradients = of(slice.gradients) / (c.stage >= 2 ? shards : 1.0);
    if (c.accumulation == 1 || c.order.vertical || c.at(Saving::states) > 0) gradients = 0.0;
    double kept = slice.activations.each * n;
    if (c.at(Saving::inputs) > 0 || space_.blocks_per_segment(c.at(Saving::recompute)) < 0) {
      kept = 0.0;
    }
    const auto in_flight =
        static_cast<double>(std::min(static_cast<int64_t>(blocks.size() - p), c.accumulation));
    kept *= c.pipe == 1 ? 1.0 : in_flight;
    if (c.pipe == 1 && c.at(Saving::inputs) == 0) kept += std::max(slice.activations.rest, 0.0);
    most = std::max(most, weights + states + gradients + kept);
  }
  return static_cast<int64_t>(most);
}

FitBounds::Floor FitBounds::floor_of(const FitCandidate& c) {
  if (const auto found = floors_.find(c); found != floors_.end()) return found->second;
  const Slice& slice = slice_of(c);
  Floor floor;
  if (slice.problem.empty()) {
    floor = {.step_seconds = floor_seconds(c, slice), .device_bytes = floor_bytes(c, slice)};
  }
  return floors_.emplace(c, floor).first->second;
}

}  // namespace zinc::plan
