// A client's own update rule that looks at whole matrices: optim/whole_rule.h.
#include "optim/whole_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "optim/update_elements.h"
#include "optim/whole_optimizer.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/states_of.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace whole_rule_test {

using test::make_batch;
using test::tiny_config;

// A direction is the momentum; a step has rows of length 1.
class NormalizedRows final : public optim::WholeRule {
 public:
  bool takes(const autograd::Parameter& parameter) const override {
    return parameter.name().find("attn.c_proj") == std::string::npos;
  }
  int num_states() const override { return 1; }
  std::string_view state_name(int) const override { return "momentum_buffer"; }
  void direct(const optim::Update& args, const optim::HyperParameters& hyper,
              StreamRef stream) const override {
    optim::direct_elements(args, num_states(), stream,
                           [hyper]<class A>(A& direction, A gradient, auto& states) {
                             states[0] = A(hyper.momentum) * states[0] + gradient;
                             direction = states[0];
                           });
  }
  void transform(const optim::WholeParameter& parameter, const optim::HyperParameters&,
                 StreamRef stream) const override {
    const View matrix = parameter.direction;
    if (matrix.device().meta) return;
    stream.submit("normalize_rows", [matrix] { normalize<float>(matrix); });
  }
  void apply(const optim::Update& args, const optim::HyperParameters& hyper,
             StreamRef stream) const override {
    optim::update_elements(args, 0, stream, [hyper]<class A>(A& weight, A step, auto&) {
      weight = std::fma(A(-hyper.lr), step + A(hyper.weight_decay) * weight, weight);
    });
  }
  int64_t flops(int64_t rows, int64_t columns) const override { return 3 * rows * columns; }

 private:
  template <class T>
  static void normalize(const View& matrix) {
    const auto columns = static_cast<size_t>(matrix.dim(1));
    for (int64_t row = 0; row < matrix.dim(0); ++row) {
      const std::span<T> values(matrix.data_as<T>() + row * matrix.dim(1), columns);
      T sum = 0;
      for (const T value : values) sum += value * value;
      for (T& value : values) value = sum > 0 ? value / std::sqrt(sum) : T(0);
    }
  }
};

// As docs/own-optimizer.md has it: a step as long as the norm of its parameter.
class Lars final : public optim::WholeRule {
 public:
  Asked asked() const override { return Asked::all; }
  bool takes(const autograd::Parameter&) const override { return true; }
  int num_states() const override { return 1; }
  std::string_view state_name(int) const override { return "momentum_buffer"; }
  Measures measures() const override { return {.weights = true, .directions = true}; }
  bool transforms() const override { return false; }
  void direct(const optim::Update& args, const optim::HyperParameters& hyper,
              StreamRef stream) const override {
    optim::direct_elements(args, num_states(), stream,
                           [hyper]<class A>(A& direction, A gradient, auto& states) {
                             gradient += A(hyper.weight_decay) * direction;
                             direction = states[0] = A(hyper.momentum) * states[0] + gradient;
                           });
  }
  void apply(const optim::Update& args, const optim::HyperParameters& hyper,
             StreamRef stream) const override {
    const double length = std::sqrt(args.sums.directions);
    const double ratio = length > 0.0 ? std::sqrt(args.sums.weights) / length : 1.0;
    optim::update_elements(
        args, 0, stream,
        [rate = hyper.lr * ratio]<class A>(A& weight, A step, auto&) { weight -= A(rate) * step; });
  }
};

class OwnOptimizer final : public optim::Optimizer {
 public:
  explicit OwnOptimizer(std::string_view first_state = "mean") : first_state_(first_state) {}
  std::string_view name() const override { return "RowsAndSigns"; }
  int num_states() const override { return 2; }
  std::string_view state_name(int i) const override { return i == 0 ? first_state_ : "last"; }
  void update(const optim::Update& args, const optim::HyperParameters& hyper,
              StreamRef stream) const override {
    optim::update_elements(args, 2, stream, [hyper]<class A>(A& weight, A gradient, auto& states) {
      states[0] = A(hyper.beta1) * states[0] + A(1.0 - hyper.beta1) * gradient;
      states[1] = gradient;
      weight -= A(hyper.lr) * (states[0] > 0 ? A(1) : states[0] < 0 ? A(-1) : A(0));
    });
  }
  const optim::WholeRule* whole_rule() const override { return &rows_; }

 private:
  std::string_view first_state_;
  NormalizedRows rows_;
};

// An optimizer with this rule.
class OfRule final : public optim::Optimizer {
 public:
  explicit OfRule(std::unique_ptr<optim::WholeRule> rule) : rule_(std::move(rule)) {}
  std::string_view name() const override { return "OfRule"; }
  int num_states() const override { return 0; }
  std::string_view state_name(int) const override { return ""; }
  void update(const optim::Update&, const optim::HyperParameters&, StreamRef) const override {}
  const optim::WholeRule* whole_rule() const override { return rule_.get(); }

 private:
  const std::unique_ptr<optim::WholeRule> rule_;
};

bool is_matrix(const std::string& name, const nn::Parameter& parameter) {
  return parameter.shape().rank() == 2 && name.find(".h.") != std::string::npos &&
         name.find("attn.c_proj") == std::string::npos;
}

struct Found {
  std::vector<double> losses;
  std::vector<float> values;  // weights, and their states
  bool operator==(const Found&) const = default;
};

EngineConfig config_of(int stage, DType dtype) {
  EngineConfig config = test::training_config(2, dtype, ReduceSchedule::micro_step);
  config.zero.stage = stage;
  config.zero.allow_untested_optimizer = true;
  config.zero.force_cpu_optimizer = false;
  config.optimizer.hyper = {.lr = 1e-2, .weight_decay = 0.1};
  config.optimizer.matrix_hyper = {.lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9};
  return config;
}

std::unique_ptr<optim::Optimizer> own() { return std::make_unique<OwnOptimizer>(); }
std::unique_ptr<optim::Optimizer> lars() {
  return std::make_unique<optim::WholeOptimizer>("LARS", std::make_unique<Lars>());
}

Found train(const EngineConfig& config, int world_size, int64_t rows_of_step = 4,
            std::unique_ptr<optim::Optimizer> (*make)() = own) {
  Found all;
  comm::run_local_ranks(world_size, {.seed = 5, .num_threads = 2}, [&](comm::World& world) {
    Found mine;
    nn::Gpt2 model(tiny_config());
    EngineOptions options;
    options.optimizer = make();
    EngineConfig own = config;
    own.batch.accumulation = rows_of_step / world.size();
    Engine engine(model, own, world, std::move(options));
    for (int64_t i = 0; i < 3 * own.batch.accumulation; ++i) {
      engine.backward(engine.forward(make_batch(i * world.size() + world.rank())));
      mine.losses.push_back(engine.step().loss);
    }
    std::erase_if(mine.losses, [](double loss) { return !std::isfinite(loss); });
    mine.values = test::weights_of(engine);
    for (const auto& [name, parameter] : model.named_parameters()) {
      const auto states = test::states_of(engine, name);
      EXPECT_EQ(states.contains("momentum_buffer"), make == lars || is_matrix(name, *parameter));
      for (const auto& [kind, state] : states) {
        const auto values = state.to_vector<float>();
        mine.values.insert(mine.values.end(), values.begin(), values.end());
      }
    }
    if (world.is_main()) all = std::move(mine);
  });
  return all;
}

TEST(AWholeRule, GivesTheSameBitsOnEveryStageAndTier) {
  const offload::SwapFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Found wanted = train(config_of(0, dtype), 2);
    ASSERT_GT(wanted.values.size(), 1000u);
    for (const int stage : {1, 2, 3}) {
      EXPECT_TRUE(train(config_of(stage, dtype), 2) == wanted) << str(dtype, " stage ", stage);
    }
    EngineConfig config = config_of(2, dtype);
    config.zero.sub_group_size = 5000;
    config.zero.offload_optimizer = {.device = OffloadDevice::cpu};
    EXPECT_TRUE(train(config, 2) == wanted) << str(dtype, " in host memory");
    config.zero.offload_optimizer.ratio = 0.4;
    EXPECT_TRUE(train(config, 2) == wanted) << str(dtype, " split");
    config.offload_step = OffloadStep::device;
    EXPECT_TRUE(train(config, 2) == wanted) << str(dtype, " updated on the device");
    config.offload_step = OffloadStep::host;
    config.zero.offload_optimizer = {
        .device = OffloadDevice::nvme, .nvme_path = folder.path(), .pipeline_read = true};
    EXPECT_TRUE(train(config, 2) == wanted) << str(dtype, " in swap space");
    config.gradient_offload = GradientOffload::nvme;
    EXPECT_TRUE(train(config, 2) == wanted) << str(dtype, " with gradients in swap space");
  }
}

TEST(AWholeRule, ThatMeasures_GivesTheSameBitsOnEveryStageTierAndWorld) {
  const offload::SwapFolder folder;
  EngineConfig config = config_of(0, DType::bf16);
  config.determinism = Determinism::world;
  config.optimizer.hyper = {.lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9};
  const Found wanted = train(config, 1, 4, lars);
  ASSERT_GT(wanted.values.size(), 1000u);
  for (const int stage : {1, 2, 3}) {
    config.zero.stage = stage;
    for (const int world : {1, 2, 4}) {
      EXPECT_EQ(train(config, world, 4, lars).values, wanted.values) << stage << ' ' << world;
    }
  }
  config.zero.sub_group_size = 5000;
  config.zero.offload_optimizer = {.device = OffloadDevice::cpu, .ratio = 0.4};
  EXPECT_EQ(train(config, 2, 4, lars).values, wanted.values) << "split";
  config.zero.offload_optimizer = {
      .device = OffloadDevice::nvme, .nvme_path = folder.path(), .pipeline_read = true};
  EXPECT_EQ(train(config, 2, 4, lars).values, wanted.values) << "in swap space";
  config.zero.offload_optimizer.pipeline_write = true;
  EXPECT_EQ(train(config, 2, 4, lars).values, wanted.values) << "written behind";
}

// The lengths of the steps of all parameters, in learning rates, over the lengths of weights. Those
// of weights of 0 are left out.
void expect_steps_of_norm(const EngineConfig& config, int world_size, double wanted,
                          std::unique_ptr<optim::Optimizer> (*make)() = nullptr) {
  comm::run_local_ranks(world_size, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineOptions options;
    if (make != nullptr) options.optimizer = make();
    Engine engine(model, config, world, std::move(options));
    std::map<std::string, std::vector<double>> before;
    for (const auto& [name, parameter] : model.named_parameters()) {
      before[name] = engine.parameter(name).to_vector<double>();
    }
    engine.backward(engine.forward(make_batch(world.rank())));
    engine.step();
    size_t compared = 0;
    for (const auto& [name, from] : before) {
      const std::vector<double> to = engine.parameter(name).to_vector<double>();
      double length = 0.0, moved = 0.0;
      for (size_t i = 0; i < from.size(); ++i) {
        length += from[i] * from[i];
        moved += (from[i] - to[i]) * (from[i] - to[i]);
      }
      if (length == 0.0) continue;
      EXPECT_NEAR(std::sqrt(moved / length) / config.optimizer.hyper.lr, wanted, 1e-4) << name;
      ++compared;
    }
    EXPECT_GT(compared, 5u);
  });
}

TEST(AWholeRule, ThatMeasures_StepsByTheNormOfEachParameter) {
  EngineConfig config = config_of(2, DType::f32);
  config.batch.accumulation = 1;
  config.optimizer.hyper = {.lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9};
  for (const int world_size : {1, 3}) expect_steps_of_norm(config, world_size, 1.0, lars);
  // Behind one update the correction of LAMB's moments is sqrt(1 - beta2) / (1 - beta1).
  config.optimizer.kind = optim::OptimizerKind::lamb;
  config.optimizer.lamb = {.least_ratio = 1e-9, .most_ratio = 1e9};
  for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
    config.zero.offload_optimizer.device = device;
    for (const int world_size : {1, 3}) {
      expect_steps_of_norm(config, world_size, std::sqrt(1.0 - 0.999) / (1.0 - 0.9));
    }
  }
}

// The lengths of the rows of the first step, in learning rates.
std::vector<double> row_lengths(const std::string& name, double decay) {
  std::vector<double> lengths;
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineConfig config = config_of(2, DType::f32);
    config.batch.accumulation = 1;
    config.optimizer.hyper.lr = 0.5;
    config.optimizer.matrix_hyper = {.lr = 1e-2, .weight_decay = decay, .momentum = 0.9};
    EngineOptions options;
    options.optimizer = std::make_unique<OwnOptimizer>();
    Engine engine(model, config, world, std::move(options));
    const Tensor before = engine.parameter(name);
    engine.backward(engine.forward(make_batch(world.rank())));
    engine.step();
    const std::vector<float> from = before.to_vector<float>();
    const std::vector<float> to = engine.parameter(name).to_vector<float>();
    if (!world.is_main()) return;
    const auto columns = static_cast<size_t>(before.dim(1));
    for (size_t i = 0; i < from.size(); ++i) {
      if (i % columns == 0) lengths.push_back(0.0);
      const double step = (double{from[i]} * (1.0 - 1e-2 * decay) - double{to[i]}) / 1e-2;
      lengths.back() += step * step;
    }
    for (double& length : lengths) length = std::sqrt(length);
  });
  return lengths;
}

TEST(AWholeRule, SeesWholeRowsAndItsOwnHyperParameters) {
  for (const char* const name :
       {"transformer.h.0.attn.c_attn.weight", "transformer.h.1.mlp.c_proj.weight"}) {
    const std::vector<double> lengths = row_lengths(name, 0.1);
    ASSERT_GT(lengths.size(), 1u);
    // The weights are rounded to 24 bits, and a step is 1e-2 of them.
    for (const double length : lengths) EXPECT_NEAR(length, 1.0, 1e-4) << name;
  }
}

TEST(AWholeRule, OfAnother_IsNoStateOfAParameter) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineOptions options;
    options.optimizer = std::make_unique<OwnOptimizer>();
    Engine engine(model, config_of(0, DType::f32), world, std::move(options));
    const auto message = [&](const char* parameter, const char* state) {
      try {
        engine.optimizer_state(parameter, state);
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    EXPECT_NE(message("transformer.h.0.mlp.c_fc.weight", "mean").find("as a whole"),
              std::string::npos);
    EXPECT_NE(message("transformer.wte.weight", "momentum_buffer").find("element by element"),
              std::string::npos);
  });
}

// Owners go through a skipped step for its memory alone.
TEST(AWholeRule, InASkippedStep_ChangesNoStateOfAWholeParameter) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineConfig config = config_of(2, DType::f16);
    config.batch.accumulation = 1;
    config.optimizer.kind = optim::OptimizerKind::adafactor;
    config.precision.loss_scale.initial_scale_power = 40;
    Engine engine(model, config, world);
    const auto norm_of_states = [&] {
      double sum = 0.0;
      for (const auto& [name, parameter] : model.named_parameters()) {
        for (const auto& [kind, state] : test::states_of(engine, name)) {
          for (const double value : state.to_vector<double>()) sum += value;
        }
      }
      return sum;
    };
    for (StepOutcome outcome{}; outcome != StepOutcome::applied;) {
      engine.backward(engine.forward(make_batch(world.rank())));
      outcome = engine.step().outcome;
      EXPECT_EQ(norm_of_states() > 0.0, outcome == StepOutcome::applied);
    }
    EXPECT_GT(engine.state().skipped(), 2);
  });
}

TEST(AWholeRule, HasTheStatesOfItsKindAndNoOthers) {
  using optim::OptimizerKind;
  const auto names_of = [](OptimizerKind kind, const char* parameter) {
    std::string names;
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(tiny_config());
      EngineConfig config = config_of(0, DType::f32);
      config.optimizer.kind = kind;
      Engine engine(model, config, world);
      for (const auto& [name, state] : test::states_of(engine, parameter)) {
        names += str(name, " ", state.shape(), "; ");
      }
    });
    return names;
  };
  const char* const matrix = "transformer.h.0.mlp.c_fc.weight";
  const char* const vector = "transformer.h.0.mlp.c_fc.bias";
  EXPECT_EQ(names_of(OptimizerKind::adafactor, matrix),
            "exp_avg_sq_col [96]; exp_avg_sq_row [24]; ");
  EXPECT_EQ(names_of(OptimizerKind::adafactor, vector), "exp_avg_sq [96]; ");
  EXPECT_EQ(names_of(OptimizerKind::lamb, matrix), "exp_avg [24, 96]; exp_avg_sq [24, 96]; ");
}

class FiveVectors final : public optim::WholeRule {
 public:
  bool takes(const autograd::Parameter&) const override { return false; }
  int num_states() const override { return 0; }
  std::string_view state_name(int) const override { return ""; }
  int num_vectors() const override { return 5; }
  std::string_view vector_name(int i) const override {
    constexpr std::array kNames{"a", "b", "c", "d", "e"};
    return kNames[static_cast<size_t>(i)];
  }
  void direct(const optim::Update&, const optim::HyperParameters&, StreamRef) const override {}
  void apply(const optim::Update&, const optim::HyperParameters&, StreamRef) const override {}
};

TEST(AWholeRule, ThatCannotBe_IsRefusedBeforeTheFirstStep) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    const auto message = [&](std::unique_ptr<optim::WholeRule> rule, DType weights) {
      try {
        EngineOptions options;
        if (rule == nullptr) {
          rule = std::make_unique<Lars>();
          options.optimizer =
              std::make_unique<optim::WholeOptimizer>("LARS", std::move(rule), DType::f32, weights);
        } else {
          options.optimizer = std::make_unique<OfRule>(std::move(rule));
        }
        Engine engine(model, config_of(0, DType::f32), world, std::move(options));
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    EXPECT_NE(message(std::make_unique<FiveVectors>(), DType::f32).find("5 vectors; at most 4"),
              std::string::npos);
    EXPECT_NE(message(nullptr, DType::bf16).find("set precision.dtype to bf16"), std::string::npos);
  });
}

// `failing` names the call that ends in an error: the third of its kind.
class FailingRows final : public optim::WholeRule {
 public:
  explicit FailingRows(std::string_view failing) : failing_(failing) {}
  bool takes(const autograd::Parameter& parameter) const override { return rows_.takes(parameter); }
  int num_states() const override { return rows_.num_states(); }
  std::string_view state_name(int i) const override { return rows_.state_name(i); }
  void direct(const optim::Update& args, const optim::HyperParameters& hyper,
              StreamRef stream) const override {
    count("direct");
    rows_.direct(args, hyper, stream);
  }
  void transform(const optim::WholeParameter& parameter, const optim::HyperParameters& hyper,
                 StreamRef stream) const override {
    count("transform");
    rows_.transform(parameter, hyper, stream);
  }
  void apply(const optim::Update& args, const optim::HyperParameters& hyper,
             StreamRef stream) const override {
    count("apply");
    rows_.apply(args, hyper, stream);
  }
  int64_t flops(int64_t rows, int64_t columns) const override { return rows_.flops(rows, columns); }

 private:
  void count(std::string_view call) const {
    if (call == failing_ && ++calls_ == 3) throw NumericsError("call 3 has burst");
  }

  NormalizedRows rows_;
  std::string_view failing_;
  mutable int calls_ = 0;
};

class FailingOptimizer final : public optim::Optimizer {
 public:
  explicit FailingOptimizer(std::string_view failing) : failing_(failing) {}
  std::string_view name() const override { return own_.name(); }
  int num_states() const override { return own_.num_states(); }
  std::string_view state_name(int i) const override { return own_.state_name(i); }
  void update(const optim::Update& args, const optim::HyperParameters& hyper,
              StreamRef stream) const override {
    own_.update(args, hyper, stream);
  }
  const optim::WholeRule* whole_rule() const override { return &failing_; }

 private:
  OwnOptimizer own_;
  FailingRows failing_;
};

// Tiles and copies that are under way when it fails end before their memory goes.
TEST(AWholeRule, ThatFails_IsTheErrorOfItsStepAndOfAnyOtherUpdate) {
  const offload::SwapFolder folder;
  for (const OffloadDevice states :
       {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme}) {
    for (const char* const failing : {"direct", "transform", "apply"}) {
      SCOPED_TRACE(str(name_of(states), ", ", failing));
      comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
        nn::Gpt2 model(tiny_config());
        EngineConfig config = config_of(2, DType::bf16);
        config.batch.accumulation = 1;
        config.zero.sub_group_size = 2048;
        config.zero.offload_optimizer = {.device = states,
                                         .nvme_path = folder.path(),
                                         .pipeline_read = true,
                                         .pipeline_write = true};
        EngineOptions options;
        options.optimizer = std::make_unique<FailingOptimizer>(failing);
        Engine engine(model, config, world, std::move(options));
        engine.backward(engine.forward(make_batch(0)));
        const auto expect_error = [](const auto& use) {
          try {
            use();
            ADD_FAILURE() << "nothing was thrown";
          } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("has burst"), std::string::npos)
                << error.what();
          }
        };
        expect_error([&] { engine.step(); });
        expect_error([&] { engine.finish_update(); });
      });
      EXPECT_TRUE(folder.is_empty());
    }
  }
}

TEST(AWholeRule, HasStatesUnderNamesOfTheirOwn) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineOptions options;
    options.optimizer = std::make_unique<OwnOptimizer>("momentum_buffer");
    std::string message;
    try {
      const Engine engine(model, config_of(0, DType::f32), world, std::move(options));
    } catch (const InvalidArgument& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("two states are called 'momentum_buffer'"), std::string::npos)
        << message;
  });
}

// Owners, windows and pieces differ with the number of ranks.
TEST(AWholeRule, GivesTheSameWeightsOnEveryWorld) {
  EngineConfig config = config_of(2, DType::f32);
  config.gradient.reduce_algorithm = ReduceAlgorithm::ordered;
  config.determinism = Determinism::world;
  const Found wanted = train(config, 1);
  EXPECT_EQ(train(config, 2).values, wanted.values);
  EXPECT_EQ(train(config, 4).values, wanted.values);
}

}  // namespace whole_rule_test
}  // namespace zinc::zero
