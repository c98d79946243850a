// The page of a step program: bytes and times of the plan's own second step, and how two differ.
#include "plan/planned_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "plan/plan.h"
#include "plan/program_page.h"
#include "zero/program/program.h"

namespace zinc::plan {
namespace planned_program_test {

hub::ModelConfigFile model() {
  nn::Gpt2Config config;
  config.vocab_size = 61;
  config.max_positions = 32;
  config.hidden_size = 48;
  config.num_layers = 3;
  config.num_heads = 4;
  return {.config = config};
}

// Whoever takes longer is seen: every kernel and gather has its seconds. With four threads a rank,
// a gather leaves most of the cores to what goes on beside it.
Hardware slow() {
  return {.name = "slow",
          .source = "specification",
          .device = DeviceKind::cpu,
          .threads = 8,
          .read_bytes_per_second = 1e9,
          .write_bytes_per_second = 1e9,
          .gemm = {.f32 = 1e9, .bf16 = 1e9, .f16 = 1e9},
          .attention = {.f32 = 1e9, .bf16 = 1e9, .f16 = 1e9},
          .other_flops = 1e9,
          .same_host = {.all_gather = {.alpha_seconds = 1e-4, .bytes_per_second = 1e8},
                        .reduce_scatter = {.alpha_seconds = 1e-4, .bytes_per_second = 1e8}}};
}

Plan plan(const std::vector<std::string>& without = {}, int64_t accumulation = 1,
          const optim::OptimizerConfig& optimizer = {}) {
  train::Config config;
  config.engine.optimizer = optimizer;
  config.engine.batch = {.micro_batch = 2, .accumulation = accumulation, .sequence = 24};
  config.engine.zero.stage = 3;
  config.engine.zero.param_persistence_threshold = 0;
  config.engine.zero.max_reuse_distance = 0;
  PlanOptions options{.world = 2, .seq = 24};
  options.backend = "local";
  options.ranks_per_host = 2;
  options.hardware = slow();
  options.program = true;
  options.without_rewrites = without;
  return make_plan(model(), config, options);
}

TEST(PlannedProgram, HasTheBytesAndTimesOfTheStepThatIsPlanned) {
  const Plan planned = plan();
  ASSERT_TRUE(planned.program.has_value());
  int64_t most = 0;
  double last = 0.0;
  std::vector<std::string> bodies;
  for (const PlannedPlace& place : planned.program->places) {
    if (place.event.starts_with("release")) {
      EXPECT_FALSE(place.device_bytes.has_value());
      continue;
    }
    if (bodies.empty() || bodies.back() != place.body) bodies.push_back(place.body);
    ASSERT_TRUE(place.device_bytes.has_value()) << place.event;
    most = std::max(most, *place.device_bytes);
    EXPECT_EQ(place.seconds.has_value(), place.body != "evaluation") << place.event;
    if (!place.seconds) continue;
    EXPECT_GE(*place.seconds, last) << place.event;
    last = *place.seconds;
  }
  EXPECT_EQ(bodies, (std::vector<std::string>{"only", "step", "evaluation"}));
  EXPECT_GT(last, 0.0);
  EXPECT_LE(last, planned.fullest.time->step_seconds);
  // Between places more may be taken, never less.
  EXPECT_GT(most, planned.fullest.device_peak() / 2);
  EXPECT_LE(most, planned.fullest.device_peak());
}

TEST(PlannedProgram, EachPassStandsWithThePlanThatHasIt) {
  const Plan planned = plan();
  const std::vector<PlannedRewrite>& rewrites = planned.program->rewrites;
  ASSERT_EQ(rewrites.size(), 5);
  EXPECT_EQ(rewrites.back().name, "prefetch");
  EXPECT_EQ(rewrites.back().device_peak, planned.fullest.device_peak());
  EXPECT_EQ(*rewrites.back().step_seconds, planned.fullest.time->step_seconds);
  const Plan without = plan({"prefetch"});
  EXPECT_EQ(rewrites[3].device_peak, without.fullest.device_peak());
  // Gathers beside compute: a shorter step for more memory.
  EXPECT_LT(*rewrites[4].step_seconds, 0.99 * *rewrites[3].step_seconds);
  EXPECT_GT(rewrites[4].device_peak, rewrites[3].device_peak);
  // Fewer gathers: a shorter step.
  EXPECT_LT(*rewrites[3].step_seconds, *rewrites[2].step_seconds);
}

TEST(PlannedProgram, BodiesAreThoseOfTheStep) {
  const auto bodies = [](int64_t accumulation) {
    std::vector<std::string> bodies;
    const Plan planned = plan({}, accumulation);
    for (const PlannedPlace& place : planned.program->places) {
      if (std::ranges::find(bodies, place.body) == bodies.end()) bodies.push_back(place.body);
    }
    return bodies;
  };
  EXPECT_EQ(bodies(2), (std::vector<std::string>{"first", "last", "step", "evaluation"}));
  EXPECT_EQ(bodies(3), (std::vector<std::string>{"first", "middle", "last", "step", "evaluation"}));
}

TEST(PlannedProgram, ThePageShowsEveryOp) {
  const Plan planned = plan();
  const std::string page = describe(*planned.program);
  for (const char* const line :
       {"only micro-batch, forward", "only micro-batch, backward", "evaluation", "keep_resident",
        "gather transformer.wte to transformer.ln_f (5)", "release transformer.h.0",
        "reduce transformer.h.2", "\nstep\n", "norm, decide, update", "MiB"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << "\n" << page;
  }
}

TEST(PlannedProgram, ThePageHasAColumnAndAColourForEveryKindOfOp) {
  const std::string_view script = program_page_script();
  for (int i = 0; i <= static_cast<int>(zero::OpKind::join); ++i) {
    const std::string_view name = zero::name_of(static_cast<zero::OpKind>(i));
    EXPECT_NE(script.find(str("'", name, "'")), std::string_view::npos) << name;
    EXPECT_NE(script.find(str(name, ": '#")), std::string_view::npos) << name;
  }
}

TEST(PlannedProgram, ThePageShowsTheOpsOfMatrices) {
  const Plan planned = plan({}, 1, {.kind = optim::OptimizerKind::muon});
  const std::string page = describe(*planned.program);
  // Windows of 4 matrices, as each block has; blocks are updated from the last to the first.
  for (const char* const ops :
       {"direct transformer.h.2 to transformer.h.0 (3), transform transformer.h.2 to "
        "transformer.h.0 (3), update transformer.ln_f to transformer.wte (5)",
        "\ntransform_whole "}) {
    EXPECT_NE(page.find(ops), std::string::npos) << ops << "\n" << page;
  }
}

TEST(PlannedProgram, DifferencesAreTheOpsThatOneOfThemHas) {
  const Plan one = plan();
  const files::json::Value same = files::json::parse(json_of(*one.program), "same.json");
  EXPECT_EQ(describe_difference(*one.program, same), "the programs are the same\n");
  const Plan other = plan({"prefetch"});
  const std::string difference = describe_difference(*other.program, same);
  EXPECT_NE(difference.find("+ gather transformer.h.1 (ahead)"), std::string::npos) << difference;
  EXPECT_NE(difference.find("- gather transformer.h.1 (behind)"), std::string::npos) << difference;
}

// The ops of a place are what the rewrites put there, less what later ones took away.
TEST(PlannedProgram, ChangesOfThePassesMakeTheProgram) {
  const Plan planned = plan();
  const PlannedProgram& program = *planned.program;
  std::vector<std::vector<std::string>> before(program.places.size()), after = before;
  for (const PlannedRewrite& rewrite : program.rewrites) {
    for (const bool added : {false, true}) {
      for (const PlannedChange& change : rewrite.changes) {
        if (change.added != added) continue;
        std::vector<std::string>& ops = (change.behind ? after : before)[change.place];
        if (added) {
          ops.push_back(change.op);
        } else {
          const auto found = std::ranges::find(ops, change.op);
          ASSERT_NE(found, ops.end()) << rewrite.name << " took away " << change.op;
          ops.erase(found);
        }
      }
    }
  }
  for (size_t i = 0; i < program.places.size(); ++i) {
    EXPECT_THAT(before[i], testing::UnorderedElementsAreArray(program.places[i].before));
    EXPECT_THAT(after[i], testing::UnorderedElementsAreArray(program.places[i].after));
  }
}

TEST(PlannedProgram, BytesByLabelAreThoseOfTheDevice) {
  const Plan planned = plan();
  for (const PlannedPlace& place : planned.program->places) {
    int64_t device = 0;
    for (const PlannedBytes& part : place.bytes) {
      if (part.tier == Tier::device) device += part.bytes;
    }
    EXPECT_EQ(device, place.device_bytes.value_or(0)) << place.event;
  }
}

// A stream does one thing after the other, and all it does is in the step.
TEST(PlannedProgram, SpansFillTheStep) {
  const Plan planned = plan({}, 2);
  const StepTime& time = *planned.fullest.time;
  std::map<std::string, double> reached;
  double compute = 0.0, last = 0.0;
  std::set<std::string> seen;
  for (const PlannedSpan& span : planned.program->spans) {
    EXPECT_GE(span.begin, reached[span.stream]) << span.stream;
    EXPECT_GT(span.end, span.begin);
    EXPECT_NE(span.work.empty(), span.waits_for.empty());
    reached[span.stream] = span.end;
    last = std::max(last, span.end);
    seen.insert(span.work.empty() ? "waits" : span.stream);
    if (span.stream == "compute" && !span.work.empty()) compute += span.end - span.begin;
  }
  EXPECT_EQ(seen, (std::set<std::string>{"waits", "compute", "gather", "reduce"}));
  EXPECT_LE(last, time.step_seconds * (1 + 1e-12));
  EXPECT_GT(last, 0.9 * time.step_seconds);
  EXPECT_GE(compute, time.compute_seconds * (1 - 1e-9));
}

TEST(PlannedProgram, ARankThatIsNoneIsRefused) {
  PlanOptions options{.world = 2, .seq = 24};
  options.rank = 2;
  EXPECT_THROW(make_plan(model(), {}, options), InvalidArgument);
}

}  // namespace planned_program_test
}  // namespace zinc::plan
