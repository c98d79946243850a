// Every row of the table of settings that exclude each other is broken by one configuration, which
// breaks no other, and kept by its sibling.
#include "zero/config_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace zinc::zero {
namespace config_rules_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Tried {
  EngineConfig config{};
  ConfigFacts facts{};

  ConfigFacts::World& world() {
    if (!facts.world) facts.world.emplace();
    return *facts.world;
  }
};

using Change = std::function<void(Tried&)>;

struct RuleCase {
  std::string_view rule;
  Change sibling;  // of a default configuration: breaks no rule
  Change broken;   // of the sibling: breaks the rule
};

// --- siblings
Change stage(int number) {
  return [number](Tried& s) { s.config.zero.stage = number; };
}
Change determinism(Determinism value) {
  return [value](Tried& s) { s.config.determinism = value; };
}
Change graph(int stage, bool in_world = false) {
  return [stage, in_world](Tried& s) {
    s.config.cuda_graph = true;
    s.config.zero.stage = stage;
    if (in_world) s.world().on_gpu = true;
  };
}
Change pipeline(int64_t micro_batches = 2) {
  return [micro_batches](Tried& s) {
    s.config.pipeline.ranks = 2;
    s.config.batch.accumulation = micro_batches;
  };
}
Change states_on(OffloadDevice device) {
  return [device](Tried& s) {
    s.config.zero.stage = 1;
    s.config.zero.offload_optimizer = {.device = device, .nvme_path = "/disk"};
  };
}
Change parameters_on(OffloadDevice device) {
  return [device](Tried& s) {
    s.config.zero.stage = 3;
    s.config.zero.offload_param.device = device;
    s.config.zero.offload_param.nvme_path = "/disk";
  };
}
Change both(const Change& first, const Change& second) {
  return [first, second](Tried& s) {
    first(s);
    second(s);
  };
}
Change gradients_on_nvme() {
  return both(states_on(OffloadDevice::nvme),
              [](Tried& s) { s.config.gradient_offload = GradientOffload::nvme; });
}

void vertical(Tried& s) { s.config.pass_order = PassOrder::vertical; }
void boundary(Tried& s) { s.config.gradient.reduce_schedule = ReduceSchedule::boundary; }
void own_optimizer(Tried& s) {
  states_on(OffloadDevice::cpu)(s);
  s.config.zero.allow_untested_optimizer = true;
  s.config.zero.force_cpu_optimizer = false;
  s.facts.optimizer = "mine";
}
void bf16_weights(Tried& s) {
  s.config.precision.dtype = DType::bf16;
  s.config.optimizer.narrow_weights = true;
}
void bf16_moments(Tried& s) { s.config.optimizer.moments = optim::Moments::bf16; }
void adam8bit(Tried& s) { s.config.optimizer.kind = optim::OptimizerKind::adam8bit; }
void schedule_free(Tried& s) { s.config.optimizer.kind = optim::OptimizerKind::schedule_free; }
void signs(Tried& s) { s.config.optimizer.kind = optim::OptimizerKind::one_bit_adam; }
void fp8(Tried& s) {
  s.config.fp8 = true;
  s.config.precision.dtype = DType::bf16;
}
void interleaved(Tried& s) {
  pipeline(4)(s);
  s.config.pipeline.interleave = 2;
}
void dynamic(Tried& s) { s.facts.is_dynamic = true; }

std::vector<RuleCase> reduction_cases() {
  using D = Determinism;
  const Change native = [](Tried& s) {
    s.config.gradient.reduce_algorithm = ReduceAlgorithm::native;
  };
  return {
      {"boundary on stage 2", stage(2), boundary},
      {"division without native sums",
       both(native, [](Tried& s) { s.config.gradient.prescale = true; }),
       [](Tried& s) { s.config.gradient.reduce_algorithm = ReduceAlgorithm::ordered; }},
      {"boundary and vertical", vertical, boundary},
      {"determinism and native sums", determinism(D::world), native},
      {"determinism and grad_accum_dtype",
       both(determinism(D::world),
            [](Tried& s) { s.config.gradient.accumulation_dtype = DType::f32; }),
       [](Tried& s) { s.config.gradient.accumulation_dtype = DType::bf16; }},
      {"determinism and boundary", determinism(D::mesh), boundary},
      {"determinism and mean of means", determinism(D::world),
       [](Tried& s) { s.config.gradient.loss_reduction = LossReduction::micro_batch; }},
      {"determinism mesh and shared tokens", determinism(D::mesh),
       [](Tried& s) { s.config.tensor_sequence_parallel = true; }},
      {"determinism mesh and sequence ranks", determinism(D::mesh),
       [](Tried& s) { s.world().mesh.sequence = 2; }},
      {"determinism mesh and tensor ranks",
       both(determinism(D::mesh), [](Tried& s) { s.world().mesh.tensor = 4; }),
       [](Tried& s) { s.world().mesh.tensor = 3; }},
      {"determinism and odd worlds",
       both(determinism(D::world), [](Tried& s) { s.world().shards = 4; }),
       [](Tried& s) { s.world().shards = 3; }},
      {"signs on stage 3", signs, stage(3)},
      {"signs and determinism", signs, determinism(D::world)},
      {"signs and micro_step", signs,
       [](Tried& s) { s.config.gradient.reduce_schedule = ReduceSchedule::micro_step; }},
      {"signs and vertical", signs, vertical},
      {"signs and grad_accum_dtype", signs,
       [](Tried& s) { s.config.gradient.accumulation_dtype = DType::bf16; }},
      {"signs of f64", signs, [](Tried& s) { s.config.precision.dtype = DType::f64; }},
      {"signs and bf16 moments", signs, bf16_moments},
      {"signs and amsgrad", signs, [](Tried& s) { s.config.optimizer.amsgrad = true; }},
      {"signs and own sums", signs, [](Tried& s) { s.facts.has_own_sums = true; }},
      {"signs and tensor ranks", signs, [](Tried& s) { s.world().mesh.tensor = 2; }},
      {"signs and sequence ranks", signs, [](Tried& s) { s.world().mesh.sequence = 2; }},
      {"signs in a pipeline", signs, pipeline(2)},
      {"fp8 without bf16", fp8, [](Tried& s) { s.config.precision.dtype = DType::f32; }},
      {"fp8 and determinism", fp8, determinism(D::world)},
      {"bf16 moments of f64", bf16_moments,
       [](Tried& s) { s.config.precision.dtype = DType::f64; }},
      {"bf16 moments of SGD", bf16_moments,
       [](Tried& s) { s.config.optimizer.kind = optim::OptimizerKind::sgd; }},
      {"bf16 moments of Adafactor", bf16_moments,
       [](Tried& s) { s.config.optimizer.kind = optim::OptimizerKind::adafactor; }},
      {"bf16 moments and amsgrad", bf16_moments,
       [](Tried& s) { s.config.optimizer.amsgrad = true; }},
      {"bf16 moments of Adam8bit", bf16_moments, adam8bit},
      {"bf16 moments of ScheduleFreeAdamW", bf16_moments, schedule_free},
      {"bf16 master weights of another model", bf16_weights,
       [](Tried& s) { s.config.precision.dtype = DType::f32; }},
      {"bf16 master weights of Adam8bit", bf16_weights, adam8bit},
      {"bf16 master weights of ScheduleFreeAdamW", bf16_weights, schedule_free},
      {"Adam8bit and amsgrad", adam8bit, [](Tried& s) { s.config.optimizer.amsgrad = true; }},
      {"Adam8bit of f64", adam8bit, [](Tried& s) { s.config.precision.dtype = DType::f64; }},
      {"Adam8bit on every mesh", adam8bit, determinism(D::mesh)},
  };
}

std::vector<RuleCase> tier_cases() {
  using O = OffloadDevice;
  return {
      {"offload_optimizer on stage 0", states_on(O::cpu), stage(0)},
      {"states on NVMe without a path", states_on(O::nvme),
       [](Tried& s) { s.config.zero.offload_optimizer.nvme_path.clear(); }},
      {"part of the states on NVMe", states_on(O::nvme),
       [](Tried& s) { s.config.zero.offload_optimizer.ratio = 0.5; }},
      {"update on the device",
       both(states_on(O::cpu), [](Tried& s) { s.config.offload_step = OffloadStep::device; }),
       states_on(O::nvme)},
      {"offload_param below stage 3", parameters_on(O::cpu), stage(2)},
      {"parameters on NVMe without a path", parameters_on(O::nvme),
       [](Tried& s) { s.config.zero.offload_param.nvme_path.clear(); }},
      {"gradients on NVMe without states", gradients_on_nvme(), states_on(O::cpu)},
      {"gradients on NVMe and determinism",
       both(gradients_on_nvme(), determinism(Determinism::world)),
       [](Tried& s) { s.config.batch.accumulation = 2; }},
      {"own sums off the device",
       [](Tried& s) {
         s.config.zero.stage = 1;
         s.facts.has_own_sums = true;
       },
       states_on(OffloadDevice::cpu)},
      {"own optimizer untested", own_optimizer,
       [](Tried& s) { s.config.zero.allow_untested_optimizer = false; }},
      {"own optimizer off the device", own_optimizer,
       [](Tried& s) { s.config.zero.force_cpu_optimizer = true; }},
  };
}

std::vector<RuleCase> recomputation_cases() {
  const Change recomputes = [](Tried& s) {
    s.facts.model = "tiny";
    s.facts.recomputes = true;
  };
  const Change does_not = [](Tried& s) { s.facts.recomputes = false; };
  const Change by_number = [](Tried& s) { s.config.recompute.num_checkpoints = 2; };
  const Change every_block = [](Tried& s) { s.config.recompute.every_blocks = 1; };
  const Change inputs_on_nvme = [](Tried& s) {
    s.config.recompute.offload = {.device = OffloadDevice::nvme, .nvme_path = "/disk"};
  };
  return {
      {"two numbers of checkpoints", by_number, every_block},
      {"number_checkpoints of a model without blocks", both(by_number, recomputes), does_not},
      {"recompute_every_blocks of a model without blocks", both(every_block, recomputes), does_not},
      {"inputs on NVMe without a path", inputs_on_nvme,
       [](Tried& s) { s.config.recompute.offload.nvme_path.clear(); }},
      {"inputs in two tiers", [](Tried& s) { s.config.recompute.cpu_checkpointing = true; },
       inputs_on_nvme},
      {"inputs sliced twice", [](Tried& s) { s.config.tensor_sequence_parallel = true; },
       [](Tried& s) { s.config.recompute.partition_activations = true; }},
      {"vertical without stages", both(vertical, [](Tried& s) { s.facts.has_stages = true; }),
       [](Tried& s) { s.facts.has_stages = false; }},
  };
}

std::vector<RuleCase> graph_cases() {
  return {
      {"graph and micro_step", both(graph(1), boundary),
       [](Tried& s) { s.config.gradient.reduce_schedule = ReduceSchedule::micro_step; }},
      {"graph and determinism", graph(2), determinism(Determinism::world)},
      {"graph and vertical", graph(2), vertical},
      {"graph and offload_optimizer", graph(1), states_on(OffloadDevice::cpu)},
      {"graph and offload_param", graph(3), parameters_on(OffloadDevice::cpu)},
      {"graph and resident_memory", graph(3), [](Tried& s) { s.config.zero.resident_memory = 1; }},
      {"graph and inputs off the device", graph(0),
       [](Tried& s) { s.config.recompute.cpu_checkpointing = true; }},
      {"graph and packed inputs", graph(0),
       [](Tried& s) { s.config.recompute.contiguous_memory_optimization = true; }},
      {"graph and phases", graph(0), [](Tried& s) { s.config.wall_clock_breakdown = true; }},
      {"graph of a dynamic model", graph(0), dynamic},
      {"graph and tensor ranks", graph(0, true), [](Tried& s) { s.world().mesh.tensor = 2; }},
      {"graph and sequence ranks", graph(0, true), [](Tried& s) { s.world().mesh.sequence = 2; }},
      {"graph and pipeline", graph(0), pipeline()},
      {"graph without a GPU", graph(0, true), [](Tried& s) { s.world().on_gpu = false; }},
      {"graph on stage 3 without NCCL", graph(3, true),
       [](Tried& s) { s.world().gathers_in_streams = false; }},
  };
}

std::vector<RuleCase> pipeline_cases() {
  const Change zero_bubble = [](Tried& s) {
    s.config.pipeline.schedule = parallel::PipelineSchedule::zero_bubble;
  };
  return {
      {"pipeline on stage 3", both(pipeline(), stage(2)), stage(3)},
      {"pipeline and vertical", pipeline(), vertical},
      {"pipeline and moved inputs", pipeline(),
       [](Tried& s) { s.config.recompute.contiguous_memory_optimization = true; }},
      {"pipeline of a dynamic model", pipeline(), dynamic},
      {"pipeline with shared parameters off the device",
       both(pipeline(), states_on(OffloadDevice::cpu)),
       [](Tried& s) { s.facts.shared_parameter = "wte.weight"; }},
      {"interleaving without a pipeline", interleaved,
       [](Tried& s) { s.config.pipeline.ranks = 1; }},
      {"interleaving and other schedules", interleaved,
       [](Tried& s) { s.config.pipeline.schedule = parallel::PipelineSchedule::gpipe; }},
      {"interleaving and odd accumulation", interleaved,
       [](Tried& s) { s.config.batch.accumulation = 3; }},
      {"zero bubble and recomputation", both(pipeline(), zero_bubble),
       [](Tried& s) { s.config.recompute.every_blocks = 1; }},
      {"gradients on NVMe and interleaving", both(gradients_on_nvme(), pipeline(4)), interleaved},
      {"gradients on NVMe and zero bubble", both(gradients_on_nvme(), pipeline()), zero_bubble},
  };
}

std::vector<RuleCase> all_cases() {
  std::vector<RuleCase> all;
  for (const auto& part :
       {reduction_cases(), tier_cases(), recomputation_cases(), graph_cases(), pipeline_cases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<std::string_view> names_of(const std::vector<const ConfigRule*>& rules) {
  std::vector<std::string_view> names;
  for (const ConfigRule* rule : rules) names.push_back(rule->name);
  return names;
}

// A name in braces that nothing fills.
bool has_open_name(const std::string& text) {
  for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    if (at + 1 < text.size() && text[at + 1] >= 'a' && text[at + 1] <= 'z') return true;
  }
  return false;
}

TEST(ConfigRules, EachRow_IsBrokenByOneConfiguration_AndKeptByItsSibling) {
  std::map<std::string_view, RuleCase> cases;
  for (const RuleCase& one : all_cases()) {
    EXPECT_TRUE(cases.emplace(one.rule, one).second) << one.rule << ": two cases";
  }
  for (const ConfigRule& rule : config_rules()) {
    SCOPED_TRACE(rule.name);
    const auto found = cases.find(rule.name);
    if (found == cases.end()) {
      ADD_FAILURE() << "no configuration of this test breaks the row";
      continue;
    }
    Tried setup;
    found->second.sibling(setup);
    EXPECT_THAT(value_problems(setup.config), IsEmpty());
    EXPECT_THAT(names_of(broken_rules({setup.config, setup.facts})), IsEmpty());
    EXPECT_NO_THROW(validate(setup.config, setup.facts));
    found->second.broken(setup);
    EXPECT_THAT(value_problems(setup.config), IsEmpty());
    EXPECT_THAT(names_of(broken_rules({setup.config, setup.facts})), ElementsAre(rule.name));
    const std::string message = rule.message({setup.config, setup.facts});
    EXPECT_FALSE(has_open_name(message)) << message;
    EXPECT_THROW(validate(setup.config, setup.facts), ConfigError);
    cases.erase(found);
  }
  for (const auto& one : cases) ADD_FAILURE() << one.first << ": a case of no row";
}

TEST(ConfigRules, EachRow_NamesKeysBothSidesAndTheCure) {
  std::set<std::string_view> names;
  for (const ConfigRule& rule : config_rules()) {
    SCOPED_TRACE(rule.name);
    EXPECT_TRUE(names.insert(rule.name).second) << "two rows of one name";
    EXPECT_FALSE(rule.keys[0].empty());
    ASSERT_NE(rule.when, nullptr);
    EXPECT_NE(rule.not_with == nullptr, rule.needs == nullptr);
    EXPECT_FALSE(rule.what.empty() || rule.cure.empty());
    for (const std::string_view text : {rule.what, rule.why, rule.cure}) {
      EXPECT_FALSE(has_open_name(text_on_page(text))) << text;
    }
  }
}

TEST(ConfigRules, WithoutFacts_BreakNothingThatFactsDecide) {
  for (const RuleCase& one : all_cases()) {
    Tried setup;
    one.sibling(setup);
    EXPECT_THAT(names_of(broken_rules({setup.config, ConfigFacts{}})), IsEmpty()) << one.rule;
  }
}

TEST(ConfigRules, AllThatIsWrong_IsReportedTogether_WithTheValuesInForce) {
  EngineConfig config;
  config.batch.micro_batch = 0;
  config.determinism = Determinism::mesh;
  config.gradient.reduce_algorithm = ReduceAlgorithm::native;
  config.zero.offload_param.device = OffloadDevice::cpu;
  try {
    validate(config);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the micro-batch must be positive, not 0\n"));
    EXPECT_THAT(error.what(),
                HasSubstr("\"determinism\": \"mesh\" needs \"reduce_algorithm\": \"ordered\": "));
    EXPECT_THAT(error.what(), HasSubstr("; leave reduce_algorithm out\n"));
    EXPECT_THAT(error.what(), HasSubstr("offload_param needs ZeRO stage 3: "));
  }
}

}  // namespace config_rules_test
}  // namespace zinc::zero
