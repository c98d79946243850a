// The step program: what rewrites make of a record, what the checker refuses, and that an engine
// runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"
#include "zero/program/check.h"
#include "zero/rewrites/step_program.h"

namespace zinc::zero {
namespace step_program_test {

constexpr int64_t kUnbounded = int64_t{1} << 40;

StepPolicy sharded_policy() {
  return {.shards_parameters = true,
          .gathers_ahead = true,
          .prefetch_numel = kUnbounded,
          .max_live_numel = kUnbounded,
          .max_reuse_numel = kUnbounded,
          .reduces_every = true};
}

// A tiny GPT-2 on four ranks, recorded.
class Recorded {
 public:
  // `has_whole`: an update rule takes the weights of the blocks as whole matrices.
  explicit Recorded(const char* frozen = nullptr, bool has_whole = false)
      : scope_(context_), groups_(groups_of(model_, frozen, has_whole)) {}

  StepProgram program(const StepPolicy& policy, const ClientRewrites& client = {},
                      int64_t together = 1) {
    return make_step_program(
        model_, groups_, policy, [&] { return model_.example(2, 8); }, together, client);
  }
  // The program of the record, without ops.
  Program bare(const StepProgram& made) const { return program_of(made.record, false); }
  RewriteInputs inputs(const StepProgram& made) const {
    return {.groups = groups_,
            .policy = made.policy,
            .reduce_order = made.record.reduce_order,
            .use_order = made.record.use_order};
  }
  // The checker's complaint about a program that `made` was turned into; empty: none.
  std::string complaint(const Program& program, const StepProgram& made) const {
    try {
      check(program, bare(made), inputs(made));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }
  const ShardGroups& groups() const { return groups_; }
  int64_t largest_group() const {
    int64_t largest = 0;
    for (const ShardGroup& group : groups_) largest = std::max(largest, group.gathered_numel());
    return largest;
  }

 private:
  static ShardGroups groups_of(nn::Model& model, const char* frozen, bool has_whole) {
    if (frozen != nullptr) model.freeze(frozen);
    LayoutOptions options;
    for (const auto& [name, parameter] : model.named_parameters()) {
      const bool is_matrix = parameter->shape().rank() == 2 && name.find(".h.") != name.npos;
      if (has_whole && is_matrix) options.whole.insert(parameter);
    }
    return make_shard_groups(model, 4, 0, {}, options);
  }

  Context context_{{.num_threads = 1}};
  ContextScope scope_;
  nn::Gpt2 model_{test::tiny_config()};
  ShardGroups groups_;
};

constexpr MicroBatchKind kOnly{.first = true, .last = true};
constexpr MicroBatchKind kMiddle{.first = false, .last = false};

// An op where a timeline has it.
struct Found {
  size_t place = 0;
  bool behind = false;
  Op op;
};

std::vector<Found> ops_in(const Body& body, OpKind kind) {
  std::vector<Found> found;
  const std::vector<const Place*> timeline = body.timeline();
  for (size_t i = 0; i < timeline.size(); ++i) {
    for (const bool behind : {false, true}) {
      for (const Op& op : behind ? timeline[i]->after : timeline[i]->before) {
        if (op.kind == kind) found.push_back({i, behind, op});
      }
    }
  }
  return found;
}

std::vector<int> groups_of(const std::vector<Found>& ops) {
  std::vector<int> groups;
  for (const Found& found : ops) groups.push_back(found.op.group);
  return groups;
}

int64_t most_gathered(const Body& body, const Recorded& recorded) {
  const std::vector<int64_t> curve = gathered_curve(body.timeline(), recorded.groups());
  return *std::max_element(curve.begin(), curve.end());
}

TEST(StepProgramRecord, HasEveryUseWithItsReleaseAndEveryGradientOnce) {
  Recorded recorded;
  const StepProgram made = recorded.program({});
  ByGroup<int> pins(recorded.groups().size(), 0);
  int64_t uses = 0;
  for (const Place& place : made.record.bodies.front().forward) {
    int& of_group = pins[place.event.parameter.group];
    if (place.event.kind == EventKind::use) ++of_group, ++uses;
    if (place.event.kind == EventKind::release) --of_group;
    EXPECT_GE(of_group, 0);
  }
  EXPECT_EQ(pins, ByGroup<int>(pins.size(), 0));
  EXPECT_GT(uses, 4 * 8);  // two norms and four products of every block
  int64_t trained = 0, finished = 0;
  for (const ShardGroup& group : recorded.groups()) trained += group.num_trained_parameters();
  for (const Place& place : made.record.bodies.front().backward) {
    finished += place.event.kind == EventKind::gradient_done ? 1 : 0;
  }
  EXPECT_EQ(finished, trained);
  EXPECT_EQ(made.record.bodies.front().forward.front().event.kind, EventKind::begin);
  EXPECT_EQ(made.record.bodies.front().backward.back().event.kind, EventKind::end);
}

// Rewrites reckon with the figures of a real run: activations at every place, to the byte, and the
// work of a step.
TEST(StepProgramRecord, KnowsTheBytesOfARunAtEveryPlace) {
  for (const int64_t recompute : {int64_t{0}, int64_t{2}}) {
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(test::tiny_config());
      EngineConfig config = test::training_config(1, DType::f32, ReduceSchedule::micro_step);
      config.recompute.every_blocks = recompute;
      const nn::Batch batch = test::make_batch(0);
      config.batch.micro_batch = batch.rows();
      config.batch.sequence = batch.positions();
      std::vector<int64_t> differences;
      EngineOptions options;
      options.on_place = [&](const Phase& phase, size_t place) {
        const EventKind kind = phase[place].event.kind;
        if (kind == EventKind::begin || kind == EventKind::end) return;
        differences.push_back(
            world.context().allocator().report().at(Tier::device, Label::activations).live -
            phase[place].work.activation_bytes);
      };
      Engine engine(model, config, world, std::move(options));
      const Loss loss = engine.forward(batch);
      engine.backward(loss);
      engine.step();
      ASSERT_GT(differences.size(), 100);
      // The batches of the test and of the record, and what they leave of themselves.
      EXPECT_EQ(differences, std::vector<int64_t>(differences.size(), differences.front()));
      int64_t flops = 0;
      for (const Place* place : engine.step_program().program.bodies.at(kOnly).timeline()) {
        flops += place->work.flops;
      }
      const double tokens = static_cast<double>(batch.num_tokens);
      EXPECT_GT(static_cast<double>(flops), model.flops_per_token(batch.positions()) * tokens);
    });
  }
}

TEST(StepProgramPasses, GatherAndReleaseLeavesNothingThatNobodyUses) {
  Recorded recorded;
  const StepProgram made = recorded.program(
      sharded_policy(), {.rewrites = {}, .without = {"keep_resident", "prefetch"}});
  const Body& body = made.program.bodies.at(kOnly);
  EXPECT_EQ(most_gathered(body, recorded), recorded.largest_group());
  EXPECT_EQ(ops_in(body, OpKind::gather).size(), ops_in(body, OpKind::release).size());
}

TEST(StepProgramPasses, KeepResidentGathersEachGroupOnceWhereThereIsRoom) {
  Recorded recorded;
  const StepProgram made = recorded.program(sharded_policy());
  std::vector<int> gathered = groups_of(ops_in(made.program.bodies.at(kOnly), OpKind::gather));
  EXPECT_EQ(gathered, made.record.use_order);
}

TEST(StepProgramPasses, KeepResidentStaysUnderItsBounds) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  policy.gathers_ahead = false;
  const auto gathers = [&] {
    const StepProgram made = recorded.program(policy);
    const Body& body = made.program.bodies.at(kOnly);
    EXPECT_LE(most_gathered(body, recorded),
              std::max(policy.max_live_numel, recorded.largest_group()));
    return ops_in(body, OpKind::gather).size();
  };
  const size_t all_kept = gathers();
  policy.max_live_numel = 2 * recorded.largest_group();
  const size_t two_kept = gathers();
  policy.max_live_numel = 0;
  const size_t none_kept = gathers();
  EXPECT_LT(all_kept, two_kept);
  EXPECT_LT(two_kept, none_kept);
  policy.max_live_numel = kUnbounded;
  policy.max_reuse_numel = 0;
  EXPECT_EQ(gathers(), none_kept);  // uses with nothing between them are one
  const StepProgram made = recorded.program(policy);
  const std::vector<int> order = groups_of(ops_in(made.program.bodies.at(kOnly), OpKind::gather));
  EXPECT_EQ(std::adjacent_find(order.begin(), order.end()), order.end());
}

int64_t total_bytes(const ShardGroups& groups) {
  int64_t bytes = 0;
  for (const ShardGroup& group : groups) bytes += group.gathered_bytes();
  return bytes;
}

std::set<int> groups_in(const Body& body, OpKind kind, const std::set<int>& of) {
  std::set<int> found;
  for (const int group : groups_of(ops_in(body, kind))) {
    if (of.contains(group)) {
      EXPECT_TRUE(found.insert(group).second);
    }
  }
  return found;
}

TEST(StepProgramPasses, KeepThroughStepGathersAResidentGroupOnceAStep) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  policy.max_live_numel = 0;
  policy.max_reuse_numel = 0;
  policy.repeats = true;
  const StepProgram plain = recorded.program(policy);
  const int64_t total = total_bytes(recorded.groups());
  size_t resident_before = 0;
  for (const int64_t budget : {total / 4, total / 2, total}) {
    policy.resident_bytes = budget;
    const StepProgram made = recorded.program(policy);
    const std::set<int>& resident = made.program.resident;
    int64_t bytes = 0;
    for (const int group : resident) {
      bytes += recorded.groups()[group].gathered_bytes();
    }
    EXPECT_LE(bytes, budget);
    EXPECT_GT(resident.size(), resident_before);
    resident_before = resident.size();
    for (const auto& [kind, body] : made.program.bodies) {
      SCOPED_TRACE(name_of(kind));
      const std::set<int> none;
      EXPECT_EQ(groups_in(body, OpKind::gather, resident), kind.first ? resident : none);
      EXPECT_EQ(groups_in(body, OpKind::release, resident), kind.last ? resident : none);
      // All others come and go as ever.
      const auto others = [&](const Program& program) {
        std::vector<int> order = groups_of(ops_in(program.bodies.at(kind), OpKind::gather));
        std::erase_if(order, [&](int group) { return resident.contains(group); });
        return order;
      };
      EXPECT_LE(others(made.program).size(), others(plain.program).size());
    }
    EXPECT_EQ(groups_of(ops_in(made.program.bodies.at(kMiddle), OpKind::gather)).empty(),
              budget == total);
  }
  EXPECT_EQ(resident_before, recorded.groups().size());
}

// A group that is gathered twice as often comes first; among equals the smaller group, whose
// gathers take more time for their bytes. A group that is gathered once gains nothing in a step of
// one micro-batch.
TEST(StepProgramPasses, KeepThroughStepTakesWhatCostsMostTimePerByteFirst) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  policy.max_live_numel = 0;
  policy.max_reuse_numel = 0;
  std::set<std::set<int>> distinct;
  for (const bool repeats : {false, true}) {
    policy.repeats = repeats;
    policy.resident_bytes = 0;
    const StepProgram plain = recorded.program(policy);
    ByGroup<int64_t> gathers(recorded.groups().size(), repeats ? 0 : -1);
    for (const int group : groups_of(ops_in(plain.program.bodies.at(kOnly), OpKind::gather))) {
      ++gathers[group];
    }
    const auto per_byte = [&](int group) {
      const auto bytes = static_cast<double>(recorded.groups()[group].gathered_bytes());
      return static_cast<double>(gathers[group]) *
             (1.0 + static_cast<double>(kGatherOverhead) / bytes);
    };
    const int64_t total = total_bytes(recorded.groups());
    for (int64_t budget = 1; budget <= total; budget += total / 16) {
      policy.resident_bytes = budget;
      std::vector<int> order;
      for (const ShardGroup& group : recorded.groups()) {
        if (gathers[group] > 0) order.push_back(group.index());
      }
      std::ranges::stable_sort(order, std::greater(), per_byte);
      std::set<int> expected;
      int64_t left = budget;
      for (const int group : order) {
        const int64_t bytes = recorded.groups()[group].gathered_bytes();
        if (bytes <= left && expected.insert(group).second) left -= bytes;
      }
      EXPECT_EQ(recorded.program(policy).program.resident, expected) << budget;
      distinct.insert(expected);
    }
  }
  EXPECT_GE(distinct.size(), 6u);
}

TEST(StepProgramPasses, PrefetchKeepsOrderAndBounds) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  policy.max_reuse_numel = 0;
  const std::vector<std::string> no_prefetch{"prefetch"};
  const StepProgram late = recorded.program(policy, {.rewrites = {}, .without = no_prefetch});
  const std::vector<Found> due = ops_in(late.program.bodies.at(kOnly), OpKind::gather);
  int64_t moved_before = 0;
  for (const int64_t most :
       {int64_t{0}, int64_t{1}, recorded.largest_group(), 3 * recorded.largest_group()}) {
    policy.prefetch_numel = most;
    const StepProgram made = recorded.program(policy);
    const std::vector<Found> issued = ops_in(made.program.bodies.at(kOnly), OpKind::gather);
    ASSERT_EQ(groups_of(issued), groups_of(due));
    int64_t moved = 0;
    for (size_t i = 0; i < due.size(); ++i) {
      EXPECT_LE(issued[i].place, due[i].place);
      moved += issued[i].behind ? 1 : 0;
      // Elements that are on their way when this gather is issued.
      int64_t ahead = 0;
      for (size_t j = 0; j <= i; ++j) {
        if (issued[j].behind && due[j].place > issued[i].place) {
          ahead += recorded.groups()[static_cast<size_t>(due[j].op.group)].gathered_numel();
        }
      }
      // One group alone may be larger than the bound.
      const int64_t own = recorded.groups()[static_cast<size_t>(due[i].op.group)].gathered_numel();
      if (issued[i].behind) {
        EXPECT_LE(ahead, std::max(most, own));
      }
    }
    EXPECT_EQ(moved > 0, most > 0);
    EXPECT_GE(moved, moved_before);
    moved_before = moved;
  }
  policy.max_live_numel = 2 * recorded.largest_group();
  const StepProgram bounded = recorded.program(policy);
  EXPECT_LE(most_gathered(bounded.program.bodies.at(kOnly), recorded), policy.max_live_numel);
}

TEST(StepProgramPasses, ReadsComeInTheOrderOfGathersAndAheadOfThem) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  policy.swaps_parameters = true;
  policy.max_reuse_numel = 0;
  policy.prefetch_numel = recorded.largest_group();
  const StepProgram made = recorded.program(policy);
  const Body& body = made.program.bodies.at(kMiddle);
  std::vector<int> asked, gathered;
  for (const Place* place : body.timeline()) {
    for (const auto* ops : {&place->before, &place->after}) {
      for (const Op& op : *ops) {
        if (op.kind == OpKind::read) asked.push_back(op.group);
        if (op.kind != OpKind::gather) continue;
        gathered.push_back(op.group);
        EXPECT_GE(asked.size(), gathered.size());
      }
    }
  }
  EXPECT_EQ(asked, gathered);
  // The disk goes on while nobody computes.
  EXPECT_EQ(made.program.step.back().after.size(), recorded.groups().size());
  // Parameters that an update still changes are not read yet, since the extent would be a matter of
  // timing.
  policy.update = UpdateTime::beside_forward;
  EXPECT_TRUE(recorded.program(policy).program.step.back().after.empty());
}

TEST(StepProgramPasses, GradientsGoOutWhereTheyAreFinishedOrAtTheEnd) {
  Recorded recorded;
  StepPolicy policy;
  const auto reduces = [&](const MicroBatchKind& kind) {
    return ops_in(recorded.program(policy).program.bodies.at(kind), OpKind::reduce);
  };
  EXPECT_EQ(groups_of(reduces(kOnly)), recorded.program(policy).record.reduce_order);
  EXPECT_TRUE(reduces(kMiddle).empty());
  policy.reduces_every = true;
  EXPECT_EQ(groups_of(reduces(kMiddle)), groups_of(reduces(kOnly)));
  EXPECT_LT(reduces(kOnly).front().place, reduces(kOnly).back().place);
  policy.reduces_after_backward = true;
  const std::vector<Found> late = reduces(kOnly);
  EXPECT_EQ(late.front().place, late.back().place);
}

TEST(StepProgramPasses, NewWeightsArePublishedAheadOfTheirUseAndGatheredAfterIt) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  policy.update = UpdateTime::beside_forward;
  for (const size_t ahead : {size_t{0}, size_t{2}}) {
    policy.groups_ahead = ahead;
    const StepProgram made = recorded.program(policy);
    const Body& body = made.program.bodies.at(kOnly);
    EXPECT_EQ(made.program.step.back().after.size(), 2 * ahead);  // an update with each publish
    EXPECT_EQ(ops_in(body, OpKind::publish).size(), recorded.groups().size() - ahead);
    EXPECT_EQ(groups_of(ops_in(body, OpKind::join)), made.record.use_order);
    EXPECT_TRUE(ops_in(made.program.bodies.at(kMiddle), OpKind::publish).empty());
    // Each at the use of the group that is so many uses earlier.
    const std::vector<Found> published = ops_in(body, OpKind::publish);
    const std::vector<Found> joined = ops_in(body, OpKind::join);
    for (size_t i = 0; i < published.size(); ++i) {
      EXPECT_EQ(published[i].op.group, made.record.use_order[i + ahead]);
      EXPECT_EQ(ops_in(body, OpKind::update)[i].op.group, published[i].op.group);
      EXPECT_EQ(published[i].place, joined[i].place) << i << " of " << published.size();
    }
    // More is gathered early where more is published early.
    EXPECT_EQ(ops_in(body, OpKind::gather).front().behind, ahead > 0);
  }
}

std::vector<Op> ops_of_step(const Program& program) {
  std::vector<Op> ops;
  for (const Place& place : program.step) {
    for (const auto* of : {&place.before, &place.after}) {
      ops.insert(ops.end(), of->begin(), of->end());
    }
  }
  return ops;
}

TEST(StepProgramPasses, AnUpdateIsInTheStepUnlessAPassMovesIt) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  const size_t num_groups = recorded.groups().size();
  const std::vector<Op> in_step = ops_of_step(recorded.program(policy).program);
  ASSERT_EQ(in_step.size(), 2 + 3 * num_groups);
  EXPECT_EQ(in_step[0].kind, OpKind::norm);
  EXPECT_EQ(in_step[1].kind, OpKind::decide);
  EXPECT_EQ(in_step[2].kind, OpKind::update);

  policy.update = UpdateTime::during_backward;
  const StepProgram early = recorded.program(policy);
  const Body& body = early.program.bodies.at(kOnly);
  EXPECT_EQ(ops_of_step(early.program).size(), 1 + 2 * num_groups);
  EXPECT_EQ(ops_in(body, OpKind::decide).size(), 1);
  EXPECT_EQ(groups_of(ops_in(body, OpKind::update)), early.record.reduce_order);
  const std::vector<Found> reduced = ops_in(body, OpKind::reduce);
  const std::vector<Found> updated = ops_in(body, OpKind::update);
  for (size_t i = 0; i < updated.size(); ++i) {
    EXPECT_EQ(updated[i].place, reduced[i].place) << updated[i].op.group;
  }
  EXPECT_TRUE(ops_in(early.program.bodies.at(kMiddle), OpKind::update).empty());
  EXPECT_EQ(early.program.update_order(), early.record.reduce_order);
  // Left out, the update is where it was.
  const ClientRewrites without{.rewrites = {}, .without = {"update_early"}};
  EXPECT_EQ(ops_of_step(recorded.program(policy, without).program), in_step);

  policy.update = UpdateTime::beside_forward;
  EXPECT_EQ(ops_of_step(recorded.program(policy).program).size(), 2);
  policy.updates_in_order = true;
  EXPECT_EQ(ops_of_step(recorded.program(policy).program).size(), 2 + num_groups);
  EXPECT_EQ(recorded.program(policy).program.update_order(), early.record.use_order);
}

TEST(StepProgramPasses, MicroBatchesSideBySideAreReducedInTheirOrder) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  const StepProgram made = recorded.program(policy, {}, 3);
  ASSERT_EQ(made.program.bodies.size(), 1);
  const std::vector<Found> reduces = ops_in(made.program.bodies.at(kOnly), OpKind::reduce);
  ASSERT_EQ(reduces.size(), 3 * recorded.groups().size());
  for (size_t i = 0; i < reduces.size(); ++i) {
    EXPECT_EQ(reduces[i].op.micro_batch, static_cast<int64_t>(i % 3));
    EXPECT_EQ(reduces[i].op.group, made.record.reduce_order[i / 3]);
  }
}

// An evaluation between the micro-batches of a step gives resident groups back: they are gathered
// again at their use, and no bit changes.
TEST(StepProgramRun, ResidentGroupsOutliveAnEvaluationBetweenMicroBatches) {
  std::vector<std::vector<float>> weights;
  for (const int64_t bytes : {int64_t{0}, int64_t{60'000}, int64_t{1} << 30}) {
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(test::tiny_config());
      EngineConfig config = test::training_config(3, DType::f32, ReduceSchedule::micro_step);
      config.zero.stage = 3;
      config.zero.param_persistence_threshold = 0;
      config.zero.max_live_parameters = 0;
      config.zero.resident_memory = bytes;
      Engine engine(model, config, world);
      for (int step = 0; step < 2; ++step) {
        for (int i = 0; i < 3; ++i) {
          const Loss loss = engine.forward(test::make_batch(world.rank()));
          if (i == 1) engine.evaluate(test::make_batch(2));
          engine.backward(loss);
          if (i == 0) engine.evaluate(test::make_batch(3));
        }
        engine.step();
      }
      const auto values = engine.parameter("transformer.h.1.attn.c_attn.weight").to_vector<float>();
      if (world.is_main()) weights.push_back(values);
    });
  }
  EXPECT_EQ(weights[1], weights[0]);
  EXPECT_EQ(weights[2], weights[0]);
}

// Records that no model makes, and policies of all kinds: whatever rewrites make of them is right.
TEST(StepProgramPasses, RandomRecordsAndPoliciesPassTheChecker) {
  Recorded recorded;
  const ShardGroups& groups = recorded.groups();
  const int num_groups = static_cast<int>(groups.size());
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    const auto phase = [&](bool backward) {
      Phase places{{.event = {.kind = EventKind::begin}}};
      std::vector<ParameterIndex> open;
      std::vector<ParameterIndex> unfinished;
      for (const ShardGroup& group : groups) {
        for (int i = 0; backward && i < group.num_trained_parameters(); ++i) {
          unfinished.push_back({group.index(), i});
        }
      }
      std::shuffle(unfinished.begin(), unfinished.end(), random);
      for (int64_t n = below(60); n > 0 || !open.empty(); --n) {
        if (!unfinished.empty() && below(2) == 0) {
          places.push_back({.event = {EventKind::gradient_done, unfinished.back()}});
          unfinished.pop_back();
        }
        if (n > 0 && (open.size() < 3 && below(2) == 0)) {
          const ParameterIndex used{static_cast<int>(below(num_groups)), 0};
          places.push_back({.event = {EventKind::use, used}});
          open.push_back(used);
        } else if (!open.empty()) {
          const auto at = open.begin() + below(static_cast<int64_t>(open.size()));
          places.push_back({.event = {EventKind::release, *at}});
          open.erase(at);
        }
      }
      // The remaining parameters took no part.
      places.push_back({.event = {.kind = EventKind::end}});
      return places;
    };
    Record record{.bodies = {{.forward = phase(false), .backward = phase(true)}},
                  .evaluation = phase(false)};
    for (int g = 0; g < num_groups; ++g) {
      record.use_order.push_back(g);
      if (groups[static_cast<size_t>(g)].num_trained_parameters() > 0) {
        record.reduce_order.push_back(g);
      }
    }
    std::shuffle(record.use_order.begin(), record.use_order.end(), random);
    std::shuffle(record.reduce_order.begin(), record.reduce_order.end(), random);
    const auto bound = [&] {
      return below(3) == 0 ? kUnbounded : below(4 * recorded.largest_group());
    };
    const StepPolicy policy{.shards_parameters = below(4) > 0,
                            .swaps_parameters = below(2) == 0,
                            .gathers_ahead = below(4) > 0,
                            .prefetch_numel = bound(),
                            .max_live_numel = bound(),
                            .max_reuse_numel = bound(),
                            .reduces_every = below(2) == 0,
                            .reduces_after_backward = below(4) == 0,
                            .update = static_cast<UpdateTime>(below(3)),
                            .groups_ahead = static_cast<size_t>(below(3)),
                            .updates_in_order = below(2) == 0};
    const RewriteInputs inputs{.groups = groups,
                               .policy = policy,
                               .reduce_order = record.reduce_order,
                               .use_order = record.use_order};
    const Program bare = program_of(record, false);
    Program program = bare;
    std::set<ProgramOps> given;
    run_rewrites(program, choose_rewrites(policy), inputs, given);
    EXPECT_NO_THROW(check(program, bare, inputs)) << "seed " << seed;
  }
}

// A program with one thing wrong, and words of what is said of it.
struct Wrong {
  std::string name;
  std::function<void(Program&)> damage;
  std::string words;
};

Body& only(Program& program) { return program.bodies.at(kOnly); }

// Takes the first op of the kind out of the body.
Op take_out(Body& body, OpKind kind) {
  for (Place* place : body.timeline()) {
    for (auto* ops : {&place->before, &place->after}) {
      const auto found = std::ranges::find_if(*ops, [&](const Op& op) { return op.kind == kind; });
      if (found == ops->end()) continue;
      const Op op = *found;
      ops->erase(found);
      return op;
    }
  }
  return {};
}

Place& first_place(Phase& phase, EventKind kind) {
  return *std::ranges::find_if(phase, [&](const Place& place) { return place.event.kind == kind; });
}

std::vector<Wrong> wrong_programs() {
  return {
      {"a gather is missing", [](Program& p) { take_out(only(p), OpKind::gather); },
       "is not gathered"},
      {"a release is missing", [](Program& p) { take_out(only(p), OpKind::release); },
       "gathered already"},
      {"a group stays",
       [](Program& p) {
         only(p).backward.back().before.push_back({OpKind::gather, 0});
       },
       "is gathered still"},
      {"a group is given back in use",
       [](Program& p) {
         Place& use = first_place(only(p).forward, EventKind::use);
         use.after.push_back({OpKind::release, use.event.parameter.group});
       },
       "the group is in use"},
      {"a gather at a release",
       [](Program& p) {
         first_place(only(p).forward, EventKind::release).after.push_back({OpKind::gather, 5});
       },
       "only releases may stand behind a release"},
      {"a reduce is missing", [](Program& p) { take_out(only(p), OpKind::reduce); },
       "it is the turn"},
      {"a reduce comes early",
       [](Program& p) {
         const Op op = take_out(only(p), OpKind::reduce);
         only(p).backward.front().after.push_back(op);
       },
       "its gradients are not finished"},
      {"a reduce comes twice",
       [](Program& p) {
         const Op op = take_out(only(p), OpKind::reduce);
         only(p).backward.back().before.insert(only(p).backward.back().before.begin(), {op, op});
       },
       "it is the turn"},
      {"reduces change places",
       [](Program& p) {
         const Op first = take_out(only(p), OpKind::reduce);
         const Op second = take_out(only(p), OpKind::reduce);
         std::vector<Op>& ops = only(p).backward.back().before;
         ops.insert(ops.begin(), {second, first});
       },
       "it is the turn"},
      {"an update is not published", [](Program& p) { take_out(only(p), OpKind::publish); },
       "the group was not published"},
      {"an update is published late",
       [](Program& p) {
         only(p).backward.back().before.push_back(take_out(only(p), OpKind::publish));
       },
       "the group was not published"},
      {"an event is missing",
       [](Program& p) { only(p).forward.erase(only(p).forward.begin() + 1); },
       "places instead of the record's"},
      {"an event is another",
       [](Program& p) { first_place(only(p).forward, EventKind::use).event.parameter.group = 3; },
       "instead of use of"},
      {"no such group",
       [](Program& p) {
         only(p).forward.front().after.push_back({OpKind::gather, 99});
       },
       "there is no such group"},
  };
}

TEST(StepProgramCheck, RefusesWhatIsWrongAndNamesThePlace) {
  Recorded recorded;
  StepPolicy policy = sharded_policy();
  policy.max_reuse_numel = 0;
  policy.prefetch_numel = 0;
  policy.update = UpdateTime::beside_forward;
  const StepProgram made = recorded.program(policy);
  check(made.program, recorded.bare(made), recorded.inputs(made));
  for (const Wrong& wrong : wrong_programs()) {
    Program program = made.program;
    wrong.damage(program);
    const std::string message = recorded.complaint(program, made);
    EXPECT_NE(message.find(wrong.words), std::string::npos) << wrong.name << ": " << message;
    EXPECT_NE(message.find("step program, only micro-batch"), std::string::npos) << message;
  }
}

// Moves the first such op of the step into the last backward passes of a step: to the front of what
// follows the begin, or the end.
void move_from_step(Program& program, OpKind kind, EventKind to) {
  std::vector<Op>& ops = program.step.front().after;
  const auto found = std::ranges::find_if(ops, [&](const Op& op) { return op.kind == kind; });
  const Op op = *found;
  ops.erase(found);
  for (auto& [of, body] : program.bodies) {
    if (!of.last) continue;
    std::vector<Op>& after = first_place(body.backward, to).after;
    after.insert(after.begin(), op);
  }
}

void take_from_step(Program& program, OpKind kind) {
  std::erase_if(program.step.front().after, [&](const Op& op) { return op.kind == kind; });
}

struct WrongStep {
  std::string name;
  UpdateTime update = UpdateTime::in_step;
  std::function<void(Program&)> damage;
  std::string words;
};

std::vector<WrongStep> wrong_steps() {
  const UpdateTime in_step = UpdateTime::in_step;
  const UpdateTime early = UpdateTime::during_backward;
  const UpdateTime late = UpdateTime::beside_forward;
  return {
      {"a norm in backward", in_step,
       [](Program& p) { move_from_step(p, OpKind::norm, EventKind::begin); },
       "micro-batch, at begin: norm: it has its place in the step"},
      {"a norm behind backward", in_step,
       [](Program& p) { move_from_step(p, OpKind::norm, EventKind::end); },
       "at end: norm: it has its place in the step"},
      {"no norm", early, [](Program& p) { take_from_step(p, OpKind::norm); },
       "step, at end: the norm is missing"},
      {"a decision ahead of the norm", in_step,
       [](Program& p) { std::swap(p.step.front().after[0], p.step.front().after[1]); },
       "step, at begin: decide: the norm, or the check for overflows, decides"},
      {"no decision", in_step, [](Program& p) { take_from_step(p, OpKind::decide); },
       "nothing has decided yet"},
      {"no decision, updates beside the next passes", late,
       [](Program& p) { take_from_step(p, OpKind::decide); }, "nothing decides over the step"},
      {"a publish in passes without an update", in_step,
       [](Program& p) {
         only(p).forward.front().after.push_back({OpKind::publish, 0});
       },
       "no update is under way that this pass may end"},
      {"groups published in another order", in_step,
       [](Program& p) {
         std::vector<Op>& ops = p.step.front().after;
         const auto is_publish = [](const Op& op) { return op.kind == OpKind::publish; };
         const auto first = std::ranges::find_if(ops, is_publish);
         std::iter_swap(first, std::find_if(first + 1, ops.end(), is_publish));
       },
       "groups are published in the order of their first use"},
      {"two decisions", early, [](Program& p) { p.step.front().after.push_back({OpKind::decide}); },
       "step, at begin: decide: there is one in a step"},
      {"a decision in a middle micro-batch", early,
       [](Program& p) { p.bodies.at(kMiddle).backward.front().after.push_back({OpKind::decide}); },
       "more micro-batches of the step are to come"},
      {"an update ahead of its reduction", early,
       [](Program& p) {
         only(p).backward.front().after.push_back(take_out(only(p), OpKind::update));
       },
       "its gradients are not reduced"},
      {"an update ahead of the decision", early,
       [](Program& p) {
         const Op op = take_out(only(p), OpKind::decide);
         only(p).backward.back().after.push_back(op);
       },
       "nothing has decided yet"},
      {"an update during backward where the norm decides", in_step,
       [](Program& p) { move_from_step(p, OpKind::update, EventKind::end); },
       "nothing has decided yet"},
      {"an update is missing", early, [](Program& p) { take_out(only(p), OpKind::update); },
       "the group was not updated"},
      {"an update comes twice", early,
       [](Program& p) {
         p.step.front().after.insert(p.step.front().after.begin(),
                                     {OpKind::update, ops_in(only(p), OpKind::update)[0].op.group});
       },
       "its update has begun already"},
      {"an updated group is used", late,
       [](Program& p) {
         const Op op = take_out(only(p), OpKind::publish);
         only(p).forward.back().before.push_back(op);
         take_out(only(p), OpKind::join);
       },
       "update was not published"},
      {"a gather in the step", in_step,
       [](Program& p) {
         p.step.front().after.push_back({OpKind::gather, 1});
       },
       "it has its place in a pass"},
      {"new weights are not sent", in_step,
       [](Program& p) {
         take_from_step(p, OpKind::join);
         take_from_step(p, OpKind::publish);
       },
       "was not published"},
  };
}

TEST(StepProgramCheck, RefusesAStepThatIsWrongAndNamesThePlace) {
  Recorded recorded;
  for (const WrongStep& wrong : wrong_steps()) {
    StepPolicy policy = sharded_policy();
    policy.max_reuse_numel = 0;
    policy.prefetch_numel = 0;
    policy.update = wrong.update;
    const StepProgram made = recorded.program(policy);
    Program program = made.program;
    wrong.damage(program);
    const std::string message = recorded.complaint(program, made);
    EXPECT_NE(message.find(wrong.words), std::string::npos) << wrong.name << ": " << message;
  }
}

// With windows of two groups: eight matrices for four ranks.
std::vector<WrongStep> wrong_steps_of_matrices() {
  const auto is = [](OpKind kind) { return [kind](const Op& op) { return op.kind == kind; }; };
  const auto step = [](Program& p) -> std::vector<Op>& { return p.step.front().after; };
  return {
      {.name = "directions ahead of the decision",
       .damage =
           [=](Program& p) {
             const auto direct = std::ranges::find_if(step(p), is(OpKind::direct));
             std::swap(*std::ranges::find_if(step(p), is(OpKind::decide)), *direct);
           },
       .words = "nothing has decided yet"},
      {.name = "directions in a pass",
       .damage = [](Program& p) { move_from_step(p, OpKind::direct, EventKind::end); },
       .words = "it has its place in the step"},
      {.name = "directions twice",
       .damage =
           [=](Program& p) {
             const auto direct = std::ranges::find_if(step(p), is(OpKind::direct));
             step(p).insert(direct, Op(*direct));
           },
       .words = "its directions are made already"},
      {.name = "directions of a group without matrices",
       .damage =
           [=](Program& p) {
             const auto direct = std::ranges::find_if(step(p), is(OpKind::direct));
             step(p).insert(direct, {OpKind::direct, 0});
           },
       .words = "the group has no matrices"},
      {.name = "no steps",
       .damage = [](Program& p) { take_from_step(p, OpKind::transform); },
       .words = "the steps of its matrices are not made"},
      {.name = "the steps of another group",
       .damage =
           [=](Program& p) {
             const auto transform = std::ranges::find_if(step(p), is(OpKind::transform));
             transform->group = std::ranges::find_if(step(p), is(OpKind::direct))->group;
           },
       .words = "it stands for the group whose directions were made last"},
      {.name = "a window within another",
       .damage =
           [=](Program& p) {
             const auto update =
                 std::ranges::find_if(std::ranges::find_if(step(p), is(OpKind::transform)),
                                      step(p).end(), is(OpKind::update));
             const Op late = *update;
             step(p).erase(update);
             step(p).insert(std::ranges::find_if(step(p), is(OpKind::publish)), late);
           },
       .words = "groups of the transform before it are not updated yet"},
  };
}

TEST(StepProgramCheck, RefusesAStepThatIsWrongForMatricesAndNamesThePlace) {
  Recorded recorded(nullptr, true);
  for (const WrongStep& wrong : wrong_steps_of_matrices()) {
    StepPolicy policy = sharded_policy();
    policy.sees_whole = true;
    const StepProgram made = recorded.program(policy);
    ASSERT_EQ(made.program.whole_windows().size(), 2u);
    Program program = made.program;
    wrong.damage(program);
    const std::string message = recorded.complaint(program, made);
    EXPECT_NE(message.find(wrong.words), std::string::npos) << wrong.name << ": " << message;
  }
}

TEST(StepProgramCheck, RefusesAnUpdateOfAFrozenGroup) {
  Recorded recorded("transformer.h.0.*");
  StepPolicy policy = sharded_policy();
  policy.update = UpdateTime::in_step;
  const StepProgram made = recorded.program(policy);
  Program program = made.program;
  std::vector<Op>& ops = program.step.front().after;
  const auto decide = std::ranges::find(ops, OpKind::decide, &Op::kind);
  const auto frozen = std::ranges::find_if(recorded.groups(), [](const ShardGroup& group) {
    return group.num_trained_parameters() == 0;
  });
  ASSERT_NE(frozen, recorded.groups().end());
  ops.insert(decide + 1, {OpKind::update, frozen->index()});
  const std::string message = recorded.complaint(program, made);
  EXPECT_NE(message.find("the group is not trained"), std::string::npos) << message;
}

TEST(StepProgramHash, ChangesWithEveryOp) {
  Recorded recorded;
  const StepProgram made = recorded.program(sharded_policy());
  EXPECT_EQ(made.hash, recorded.program(sharded_policy()).hash);
  for (const OpKind kind : {OpKind::gather, OpKind::release, OpKind::reduce}) {
    Program program = made.program;
    take_out(only(program), kind);
    EXPECT_NE(program.hash(), made.program.hash()) << name_of(kind);
  }
}

TEST(StepProgramClient, APassThatNeedsWhatNobodyGivesIsNamed) {
  Recorded recorded;
  const Rewrite needy{.name = "needy",
                      .needs = {ProgramOps::pipeline},
                      .apply = [](Program&, const RewriteInputs&) {}};
  try {
    recorded.program(sharded_policy(), {.rewrites = {needy}, .without = {}});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("rewrite 'needy' needs 'pipeline'"),
              std::string::npos);
  }
}

EngineConfig stage_3() {
  EngineConfig config = test::training_config(1, DType::f32, ReduceSchedule::micro_step);
  config.zero.stage = 3;
  config.zero.param_persistence_threshold = 0;
  return config;
}

// Every gather at the last moment.
Rewrite at_the_last_moment() {
  return {.name = "at the last moment",
          .needs = {ProgramOps::gathers},
          .apply = [](Program& program, const RewriteInputs&) {
            for (auto& [kind, body] : program.bodies) {
              std::vector<Op> open;
              for (Place* place : body.timeline()) {
                if (place->event.kind == EventKind::use) {
                  const int group = place->event.parameter.group;
                  const auto due =
                      std::ranges::find_if(open, [&](const Op& op) { return op.group == group; });
                  if (due != open.end()) {
                    place->before.push_back(*due);
                    open.erase(due);
                  }
                }
                std::erase_if(place->after, [&](const Op& op) {
                  if (op.kind == OpKind::gather) open.push_back(op);
                  return op.kind == OpKind::gather;
                });
              }
            }
          }};
}

struct Ran {
  std::vector<float> weights;
  std::vector<std::string> seen;  // on rank 0: places of the last step, with their ops
};

Ran train(const EngineConfig& config, const std::vector<Rewrite>& rewrites = {},
          const std::vector<std::string>& without = {}) {
  Ran ran;
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    EngineOptions options;
    options.rewrites = rewrites;
    options.without_rewrites = without;
    std::vector<std::string> seen;
    const ShardGroups* groups = nullptr;
    options.on_place = [&](const Phase& phase, size_t place) {
      std::string text = describe(phase[place].event, *groups);
      for (const auto* ops : {&phase[place].before, &phase[place].after}) {
        for (const Op& op : *ops) text += str("; ", describe(op, *groups));
      }
      seen.push_back(text);
    };
    Engine engine(model, config, world, std::move(options));
    groups = engine.step_program().groups;
    for (int step = 0; step < 3; ++step) {
      seen.clear();
      engine.backward(engine.forward(test::make_batch(step * 2 + world.rank())));
      engine.step();
    }
    const std::vector<float> weights = test::weights_of(engine);
    if (world.is_main()) ran = {weights, seen};
  });
  return ran;
}

TEST(StepProgramClient, APassOfAClientIsRunAndKeepsTheBits) {
  const Ran plain = train(stage_3());
  const Ran late = train(stage_3(), {at_the_last_moment()});
  EXPECT_EQ(plain.weights, late.weights);
  EXPECT_NE(plain.seen, late.seen);
  EXPECT_EQ(plain.seen.size(), late.seen.size());
  const Ran without = train(stage_3(), {}, {"prefetch", "keep_resident"});
  EXPECT_EQ(plain.weights, without.weights);
}

// The order in which groups are updated is a client's too.
TEST(StepProgramClient, APassThatUpdatesInAnotherOrderKeepsTheBits) {
  const Rewrite backwards{.name = "backwards",
                          .needs = {ProgramOps::updates},
                          .apply = [](Program& program, const RewriteInputs&) {
                            std::vector<Op>& ops = program.step.front().after;
                            const auto updates = std::ranges::partition_point(
                                ops, [](const Op& op) { return op.kind < OpKind::update; });
                            std::reverse(updates,
                                         std::ranges::find_if(updates, ops.end(), [](const Op& op) {
                                           return op.kind > OpKind::update;
                                         }));
                          }};
  for (const OffloadDevice states : {OffloadDevice::none, OffloadDevice::cpu}) {
    EngineConfig config = stage_3();
    config.zero.offload_optimizer.device = states;
    const Ran plain = train(config);
    const Ran ran = train(config, {backwards});
    EXPECT_EQ(plain.weights, ran.weights);
    EXPECT_NE(plain.seen, ran.seen);
  }
}

TEST(StepProgramClient, APassThatBreaksTheProgramIsNamedAndNoEngineIsMade) {
  const Rewrite broken{.name = "forgetful", .apply = [](Program& program, const RewriteInputs&) {
                         take_out(only(program), OpKind::gather);
                       }};
  try {
    train(stage_3(), {broken});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("rewrite 'forgetful'"), std::string::npos) << message;
    EXPECT_NE(message.find("is not gathered"), std::string::npos) << message;
  }
}

TEST(StepProgramClient, APassThatIsLeftOutHasToExist) {
  try {
    train(stage_3(), {}, {"prefecth"});
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("'prefecth'; they are: reduce_gradients"), std::string::npos) << message;
  }
}

TEST(StepProgramRun, VisitsEveryPlaceInOrder) {
  const Ran ran = train(stage_3());
  ASSERT_FALSE(ran.seen.empty());
  EXPECT_EQ(ran.seen.front().substr(0, 5), "begin");
  EXPECT_EQ(ran.seen.back().substr(0, 3), "end");
  const auto with = [&](const std::string& word) {
    return std::ranges::count_if(
        ran.seen, [&](const std::string& place) { return place.find(word) != std::string::npos; });
  };
  EXPECT_EQ(with("begin"), 3);  // forward, backward, step
  EXPECT_EQ(with("end"), 3);
  EXPECT_EQ(with("norm; decide; update"), 1);
  EXPECT_GT(with("gather"), 0);
  EXPECT_GT(with("reduce"), 0);
}

}  // namespace step_program_test
}  // namespace zinc::zero
