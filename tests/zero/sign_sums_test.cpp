// Gradients that travel as signs, against the formulas of optim/sign_reduction.h and
// optim/one_bit_adam.h element by element.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "comm/local/local.h"
#include "core/context.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace sign_sums_test {

using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int64_t kFreeze = 2;
constexpr float kBeta1 = 0.9f, kShare1 = static_cast<float>(1.0 - 0.9);
constexpr float kBeta2 = 0.999f, kShare2 = static_cast<float>(1.0 - 0.999);
constexpr double kLr = 1e-3;
constexpr auto kEps = static_cast<float>(1e-8);

using Values = std::map<std::string, std::vector<float>>;

// A run of `count` elements that have one scale, in f64 sums of chunks as kernels/finite_norm.h
// states them.
float scale_of(const float* x, int64_t count) {
  double sum = 0.0;
  for (int64_t begin = 0; begin < count; begin += kNormChunk) {
    std::array<double, 16> lanes{};
    for (int64_t i = begin; i < std::min(begin + kNormChunk, count); ++i) {
      lanes[static_cast<size_t>((i - begin) % 16)] += double{x[i]} * double{x[i]};
    }
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    }
    sum += lanes[0];
  }
  return static_cast<float>(std::sqrt(sum / static_cast<double>(count)));
}

// Where scales begin and end: in chunks, or in a whole parameter; a rank's shard ends one too.
std::vector<Range> runs_of(Range parameter, const std::vector<Range>& shards, bool parameters) {
  std::vector<Range> runs;
  for (const Range& shard : shards) {
    const Range here = intersect(parameter, shard);
    const int64_t step = parameters ? std::max<int64_t>(here.size(), 1) : kNormChunk;
    for (int64_t begin = here.begin; begin < here.end; begin += step) {
      runs.push_back({begin - parameter.begin, std::min(begin + step, here.end) - parameter.begin});
    }
  }
  return runs;
}

// One parameter of all ranks.
struct Parameter {
  std::vector<float> w, m, v;
  std::array<std::vector<float>, kRanks> errors;
  std::vector<float> error_of_sum;
  std::vector<Range> sent_runs, sum_runs;  // flat
};

void send(std::vector<float>& x, std::vector<float>& error, const std::vector<Range>& runs) {
  for (const Range& run : runs) {
    const float scale = scale_of(x.data() + run.begin, run.size());
    for (auto i = static_cast<size_t>(run.begin); i < static_cast<size_t>(run.end); ++i) {
      const float sent = x[i] >= 0.0f ? scale : -scale;
      error[i] = x[i] - sent;
      x[i] = sent;
    }
  }
}

// Update `step` of a parameter. gradients: of each rank, of its summed loss; `targets`: of all.
void update(Parameter& p, const std::array<std::vector<float>, kRanks>& gradients, double targets,
            int64_t step) {
  const size_t n = p.w.size();
  if (step <= kFreeze) {
    const auto factor = static_cast<float>(1.0 / targets);
    for (size_t i = 0; i < n; ++i) {
      const float g = (gradients[0][i] + gradients[1][i] + gradients[2][i]) * factor;
      p.m[i] = std::fma(kBeta1, p.m[i], kShare1 * g);
      p.v[i] = std::fma(kBeta2, p.v[i], (kShare2 * g) * g);
      p.w[i] = std::fma(static_cast<float>(-kLr), p.m[i] / (std::sqrt(p.v[i]) + kEps), p.w[i]);
    }
    return;
  }
  std::vector<float> sum(n);
  for (size_t r = 0; r < kRanks; ++r) {
    std::vector<float> x(n);
    const auto share = static_cast<float>((1.0 - 0.9) * (1.0 / targets * kRanks));
    for (size_t i = 0; i < n; ++i) {
      // The momentum of the first time is in the error, not sent before.
      if (step == kFreeze + 1) p.errors[r][i] = kBeta1 * p.m[i];
      const float last = step == kFreeze + 1 ? 0.0f : p.m[i] * kBeta1;
      x[i] = std::fma(share, gradients[r][i], last) + p.errors[r][i];
    }
    send(x, p.errors[r], p.sent_runs);
    const auto part = static_cast<float>(1.0 / kRanks);
    for (size_t i = 0; i < n; ++i) sum[i] = r == 0 ? x[i] * part : sum[i] + x[i] * part;
  }
  for (size_t i = 0; i < n; ++i) sum[i] += p.error_of_sum[i];
  send(sum, p.error_of_sum, p.sum_runs);
  for (size_t i = 0; i < n; ++i) {
    p.m[i] = sum[i];
    const float ratio = p.v[i] > 0.0f ? sum[i] / (std::sqrt(p.v[i]) + kEps) : 0.0f;
    p.w[i] = std::fma(static_cast<float>(-kLr), ratio, p.w[i]);
  }
}

// From the weights that the engine begins with.
std::map<std::string, Parameter> expected(const Values& weights, bool parameter_scales,
                                          int64_t steps) {
  std::map<std::string, Parameter> parameters;
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  nn::Llama model(test::tiny_llama_config());
  const ShardGroups groups = make_shard_groups(model, kRanks, 0);
  for (const ShardGroup& group : groups) {
    for (const Placement& placement : group.placements()) {
      Parameter& p = parameters[placement.parameter->name()];
      p.w = weights.at(placement.parameter->name());
      placement.parameter->adopt_data(Tensor::from<float>(p.w, placement.parameter->shape()));
      p.m = p.v = p.error_of_sum = std::vector<float>(p.w.size());
      p.errors.fill(p.m);
      std::vector<Range> shards;
      for (int r = 0; r < kRanks; ++r) {
        shards.push_back(group.segment(placement.segment).shard(r, kRanks));
      }
      p.sent_runs = runs_of(placement.range(), {placement.range()}, parameter_scales);
      p.sum_runs = runs_of(placement.range(), shards, parameter_scales);
    }
  }
  for (int64_t step = 1; step <= steps; ++step) {
    std::map<std::string, std::array<std::vector<float>, kRanks>> gradients;
    double targets = 0.0;
    for (size_t r = 0; r < kRanks; ++r) {
      const nn::Batch batch = test::make_batch((step - 1) * kRanks + static_cast<int64_t>(r));
      targets += static_cast<double>(batch.num_targets);
      for (nn::Parameter* parameter : model.parameters()) parameter->zero_grad();
      autograd::backward(model.loss(batch), 1.0);
      for (nn::Parameter* parameter : model.parameters()) {
        gradients[parameter->name()][r] = parameter->grad()->to_vector<float>();
      }
    }
    for (nn::Parameter* parameter : model.parameters()) {
      Parameter& p = parameters.at(parameter->name());
      update(p, gradients.at(parameter->name()), targets, step);
      parameter->adopt_data(Tensor::from<float>(p.w, parameter->shape()));
    }
  }
  return parameters;
}

EngineConfig config_of(bool parameter_scales) {
  EngineConfig config;
  config.batch.micro_batch = 2;
  config.gradient.clipping = 0.0;
  config.zero.stage = 1;
  config.zero.param_persistence_threshold = 0;
  config.optimizer = {.kind = optim::OptimizerKind::one_bit_adam,
                      .hyper = {.lr = kLr},
                      .one_bit = {.freeze_step = kFreeze, .parameter_scales = parameter_scales}};
  return config;
}

TEST(SignSums, OneBitAdam_FollowsTheFormulasBitForBit) {
  constexpr int64_t kSteps = kFreeze + 4;
  for (const bool parameter_scales : {false, true}) {
    Values weights;
    comm::run_local_ranks(kRanks, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Llama model(test::tiny_llama_config());
      Engine engine(model, config_of(parameter_scales), world);
      for (const auto& [name, parameter] : model.named_parameters()) {
        const std::vector<float> values = engine.parameter(name).to_vector<float>();
        if (world.is_main()) weights[name] = values;
      }
    });
    const auto wanted = expected(weights, parameter_scales, kSteps);
    comm::run_local_ranks(kRanks, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Llama model(test::tiny_llama_config());
      Engine engine(model, config_of(parameter_scales), world);
      for (int64_t step = 0; step < kSteps; ++step) {
        engine.backward(engine.forward(test::make_batch(step * kRanks + world.rank())));
        engine.step();
      }
      for (const auto& [name, p] : wanted) {
        const auto state = [&](std::string_view kind) {
          return engine.optimizer_state(name, kind).to_vector<float>();
        };
        EXPECT_EQ(state("exp_avg"), p.m) << name;
        EXPECT_EQ(state("exp_avg_sq"), p.v) << name;
        for (size_t r = 0; r < kRanks; ++r) {
          EXPECT_EQ(state(str("sign_error_", r)), p.errors[r]) << name << " of rank " << r;
        }
        EXPECT_EQ(state("sign_error_of_sum"), p.error_of_sum) << name;
        EXPECT_EQ(engine.parameter(name).to_vector<float>(), p.w) << name;
      }
    });
  }
}

// Of 16-bit gradients on stage 0, where nothing else travels.
TEST(SignSums, TravelAsAFifteenthOfTheBytes) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [](comm::World& world) {
    const auto sent_in_step = [&](optim::OptimizerKind kind) {
      nn::LlamaConfig large = test::tiny_llama_config();
      large.hidden_size = 96;
      large.intermediate_size = 256;
      nn::Llama model(large);
      EngineConfig config = config_of(false);
      config.zero.stage = 0;
      config.precision.dtype = DType::bf16;
      config.optimizer.kind = kind;
      Engine engine(model, config, world);
      int64_t before = 0;
      for (int64_t step = 0; step < kFreeze + 2; ++step) {
        before = world.communicator().bytes_sent();
        engine.backward(engine.forward(test::make_batch(step * 2 + world.rank())));
        engine.step();
      }
      return world.communicator().bytes_sent() - before;
    };
    const int64_t whole = sent_in_step(optim::OptimizerKind::adamw);
    const int64_t signs = sent_in_step(optim::OptimizerKind::one_bit_adam);
    EXPECT_GT(signs * 16, whole);
    EXPECT_LT(signs * 15, whole);
  });
}

}  // namespace sign_sums_test
}  // namespace zinc::zero
