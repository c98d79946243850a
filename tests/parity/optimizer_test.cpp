// Update rules against torch.optim in f64, and schedules against DeepSpeed's own classes: stored
// references, made by tests/reference/optim/make_vectors.py. Tests run in the source folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/block_codes.h"
#include "core/context.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "files/safetensors/reader.h"
#include "hub/model.h"
#include "kernels/decode.h"
#include "optim/factory.h"
#include "optim/muon.h"
#include "optim/schedule.h"
#include "tensor/tensor.h"
#include "train/config/config.h"

namespace zinc {
namespace optimizer_test {

using optim::OptimizerConfig;
using optim::OptimizerKind;

std::vector<double> stored(const files::SafetensorsFile& file, const std::string& name) {
  const files::TensorEntry* entry = file.find(name);
  if (entry == nullptr) throw DataError("no reference called " + name);
  std::vector<double> values(static_cast<size_t>(entry->shape.numel()));
  file.read(*entry, 0, View(values.data(), DType::f64, Shape{entry->shape.numel()}));
  return values;
}

// The same as OPTIMIZERS of the script.
const std::map<std::string, OptimizerConfig>& cases() {
  const optim::HyperParameters adam{
      .lr = 2e-3, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  const auto with = [&](auto change) {
    OptimizerConfig config{.kind = OptimizerKind::adamw, .hyper = adam};
    change(config);
    return config;
  };
  const optim::HyperParameters momentum{.lr = 0.05, .weight_decay = 0.1, .momentum = 0.9};
  static const std::map<std::string, OptimizerConfig> all = {
      {"adamw", with([](auto&) {})},
      {"adamw_no_decay", with([](auto& c) { c.hyper.weight_decay = 0.0; })},
      {"adamw_large_eps", with([](auto& c) { c.hyper.eps = 1e-2; })},
      {"adam_l2", with([](auto& c) { c.kind = OptimizerKind::adam; })},
      {"amsgrad", with([](auto& c) { c.amsgrad = true; })},
      {"amsgrad_l2", with([](auto& c) {
         c.kind = OptimizerKind::adam;
         c.amsgrad = true;
       })},
      {"adagrad", {.kind = OptimizerKind::adagrad, .hyper = {.lr = 0.02, .eps = 1e-10}}},
      {"adagrad_decay",
       {.kind = OptimizerKind::adagrad,
        .hyper = {.lr = 0.02, .weight_decay = 0.1, .eps = 1e-10},
        .lr_decay = 0.1}},
      {"lion", {.kind = OptimizerKind::lion, .hyper = {.lr = 2e-3, .beta2 = 0.99}}},
      {"lion_decay",
       {.kind = OptimizerKind::lion,
        .hyper = {.lr = 2e-3, .weight_decay = 0.1, .beta1 = 0.95, .beta2 = 0.98}}},
      {"sgd", {.kind = OptimizerKind::sgd, .hyper = {.lr = 0.05, .weight_decay = 0.1}}},
      {"sgd_momentum", {.kind = OptimizerKind::sgd, .hyper = momentum}},
      {"sgd_dampening",
       {.kind = OptimizerKind::sgd, .hyper = {.lr = 0.05, .momentum = 0.9}, .dampening = 0.3}},
      {"sgd_nesterov", {.kind = OptimizerKind::sgd, .hyper = momentum, .nesterov = true}},
  };
  return all;
}

class TorchOptimizer : public testing::TestWithParam<std::string> {
 protected:
  // Largest |actual - expected| / (size + floor) over all weights and steps, and the states at the
  // end; size is the largest value that a weight, or a gradient of a state, had.
  double deviation(DType dtype, double floor) {
    const auto file = files::SafetensorsFile::open("tests/reference/optim/optimizers.safetensors");
    const auto rule = optim::make_optimizer(cases().at(GetParam()));
    Context context({.num_threads = 1});
    const ContextScope scope(context);
    const std::vector<double> start = stored(file, "weights");
    const std::vector<double> gradients = stored(file, "gradients");
    const std::vector<double> expected = stored(file, GetParam() + ".weights");
    const auto n = static_cast<int64_t>(start.size());
    const auto steps = static_cast<int64_t>(gradients.size()) / n;
    const Tensor weights = Tensor::from<double>(start, {n}, dtype);
    // A factor of 1/4 on a gradient times 4 is exact.
    const Tensor factor = Tensor::full({1}, 0.25, DType::f32);
    std::vector<Tensor> states;
    for (int i = 0; i < rule->num_states(); ++i) states.push_back(Tensor::zeros({n}, dtype));
    double worst = 0.0;
    const auto compare = [&](const std::vector<double>& actual, const double* reference,
                             const std::vector<double>& path) {
      for (int64_t i = 0; i < n; ++i) {
        double size = std::abs(reference[i]);
        for (int64_t step = 0; step < steps; ++step) {
          size = std::max(size, std::abs(path[static_cast<size_t>(step * n + i)]));
        }
        const double apart = std::abs(actual[static_cast<size_t>(i)] - reference[i]);
        worst = std::max(worst, apart / (size + floor));
      }
    };
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<double> gradient(gradients.begin() + step * n,
                                   gradients.begin() + (step + 1) * n);
      for (double& value : gradient) value *= 4.0;
      const Tensor given = Tensor::from<double>(gradient, {n}, dtype);
      optim::Update update{.weights = weights.view(),
                           .gradient = given.view(),
                           .factor = factor.view(),
                           .step = step + 1};
      for (size_t i = 0; i < states.size(); ++i) update.states[i] = states[i].view();
      rule->update(update, cases().at(GetParam()).hyper, context.compute());
      context.compute()->synchronize();
      compare(weights.to_vector<double>(), expected.data() + step * n, expected);
    }
    for (int i = 0; i < rule->num_states(); ++i) {
      const std::string name = GetParam() + ".state." + std::string(rule->state_name(i));
      compare(states[static_cast<size_t>(i)].to_vector<double>(), stored(file, name).data(),
              gradients);
    }
    return worst;
  }
};

// Twelve updates, each with a rounding that a momentum of 0.9 carries on at most tenfold: 120
// roundings, and as many for torch's own order of operations: 240 x 2^-53 = 3e-14.
TEST_P(TorchOptimizer, F64Matches) { EXPECT_LE(deviation(DType::f64, 1e-16), 3e-14); }

// The same in f32: 120 x 2^-24 = 7e-6.
TEST_P(TorchOptimizer, F32Matches) { EXPECT_LE(deviation(DType::f32, 1e-9), 7e-6); }

INSTANTIATE_TEST_SUITE_P(Cases, TorchOptimizer,
                         testing::Values("adamw", "adamw_no_decay", "adamw_large_eps", "adam_l2",
                                         "amsgrad", "amsgrad_l2", "adagrad", "adagrad_decay",
                                         "lion", "lion_decay", "sgd", "sgd_momentum",
                                         "sgd_dampening", "sgd_nesterov"),
                         [](const auto& info) { return info.param; });

// --- Rules that see whole parameters

// The sum of the squares of all values.
double squares(const Tensor& values) {
  double sum = 0.0;
  for (const double value : values.to_vector<double>()) sum += value * value;
  return sum;
}

// The largest |actual - expected| / |expected - start| in the Frobenius norm behind the updates 1,
// 100 and 200. Update t, from 0, has gradient t % 7 times 1 + t % 5.
double deviation(const optim::WholeRule& rule, const optim::HyperParameters& hyper, DType dtype,
                 const Shape& shape, const std::vector<double>& start,
                 const std::vector<double>& gradients, const std::vector<double>& expected) {
  const StreamRef stream = Context::current().compute();
  const int64_t n = shape.numel();
  const Tensor weights = Tensor::from<double>(start, {n}, dtype);
  const Tensor direction = Tensor::empty({n}, rule.direction_dtype(dtype));
  std::vector<Tensor> states, vectors;
  optim::WholeParameter whole{.direction = direction.view().reshape(shape)};
  for (int i = 0; i < rule.num_states(); ++i) states.push_back(Tensor::full({n}, 0.0, dtype));
  for (int i = 0; i < rule.num_vectors(); ++i) {
    const std::optional<Shape> of = rule.vector_shape(shape, i);
    if (!of) continue;
    vectors.push_back(Tensor::full(*of, 0.0, dtype));
    whole.vectors[static_cast<size_t>(i)] = vectors.back().view();
  }
  const double* stored_weights = expected.data();
  double worst = 0.0;
  for (int64_t t = 0; t < 200; ++t) {
    const auto first = gradients.begin() + t % 7 * n;
    std::vector<double> gradient(first, first + n);
    for (double& value : gradient) value *= static_cast<double>(1 + t % 5);
    const Tensor given = Tensor::from<double>(gradient, {n}, dtype);
    optim::Update update{.weights = weights.view(), .gradient = given.view(), .step = t + 1};
    for (size_t i = 0; i < states.size(); ++i) update.states[i] = states[i].view();
    update.direction = direction.view();
    rule.direct(update, hyper, stream);
    std::vector<double> sums;
    if (rule.measures().weights) sums.push_back(squares(weights));
    if (rule.measures().directions) sums.push_back(squares(direction));
    const Tensor measured = Tensor::from<double>(sums, {std::ssize(sums)}, DType::f64);
    const Tensor rates = Tensor::empty({rule.num_rates()}, dtype);
    whole.step = t + 1;
    if (rule.num_rates() > 0) {
      rule.rates({.sums = measured.view(), .numel = n, .step = t + 1, .rates = rates.view()}, hyper,
                 stream);
      update.rates = rates.view();
    }
    if (rule.transforms()) rule.transform(whole, hyper, stream);
    update.gradient = direction.view();
    rule.apply(update, hyper, stream);
    if (t != 0 && t != 99 && t != 199) continue;
    const std::vector<double> actual = weights.to_vector<double>();
    double apart = 0.0;
    double moved = 0.0;
    for (size_t i = 0; i < actual.size(); ++i) {
      apart += std::pow(actual[i] - stored_weights[i], 2);
      moved += std::pow(start[i] - stored_weights[i], 2);
    }
    worst = std::max(worst, std::sqrt(apart / moved));
    stored_weights += n;
  }
  return worst;
}

// The same as MUONS of the script.
const std::map<std::string, optim::MuonOptions>& muon_cases() {
  static const std::map<std::string, optim::MuonOptions> all = {
      {"muon", {}},
      {"muon_match_rms", {.scale = optim::MuonScale::match_rms}},
      {"muon_plain", {.nesterov = false}},
  };
  return all;
}

class TorchMuon : public testing::TestWithParam<std::string> {
 protected:
  // `kind`: "weights", or "bf16", of the script.
  double deviation_of(DType dtype, DType products, const std::string& kind) {
    const auto file = files::SafetensorsFile::open("tests/reference/optim/optimizers.safetensors");
    optim::MuonOptions options = muon_cases().at(GetParam());
    options.products = products;
    const optim::Muon muon(options);
    Context context({.num_threads = 1});
    const ContextScope scope(context);
    double worst = 0.0;
    for (const Shape& shape : {Shape{6, 10}, Shape{10, 6}}) {
      const std::string name = str(".", shape[0], "x", shape[1], ".");
      worst = std::max(worst, deviation(muon, {.lr = 0.02, .weight_decay = 0.1, .momentum = 0.95},
                                        dtype, shape, stored(file, "muon" + name + "start"),
                                        stored(file, "muon" + name + "gradients"),
                                        stored(file, GetParam() + name + kind)));
    }
    return worst;
  }
};

// The first update moves weights by a hundredth of their size, and rounds them twice, as torch
// does: 4 x 100 roundings of half a unit, less as many cancel. Later ones move them farther.
TEST_P(TorchMuon, F64Matches) {
  EXPECT_LE(deviation_of(DType::f64, DType::bf16, "weights"), 300 * 0x1p-53);
}
TEST_P(TorchMuon, F32Matches) {
  EXPECT_LE(deviation_of(DType::f32, DType::f32, "weights"), 300 * 0x1p-24);
}
// Against torch's own bf16, which rounds the norm too. Its own distance from f64 is 0.02 behind the
// first update and 0.002 later; ours adds as much.
TEST_P(TorchMuon, Bf16Matches) { EXPECT_LE(deviation_of(DType::f32, DType::bf16, "bf16"), 0.04); }

INSTANTIATE_TEST_SUITE_P(Cases, TorchMuon, testing::Values("muon", "muon_match_rms", "muon_plain"),
                         [](const auto& info) { return info.param; });

// LAMB and Adafactor, against tests/reference/optim/make_whole.py. The same as CASES there.
const std::map<std::string, OptimizerConfig>& whole_cases() {
  static const std::map<std::string, OptimizerConfig> all = {
      {"lamb", {.kind = OptimizerKind::lamb, .hyper = {.lr = 0.01, .weight_decay = 0.1}}},
      {"lamb_bounded",
       {.kind = OptimizerKind::lamb,
        .hyper = {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3},
        .lamb = {.least_ratio = 0.3, .most_ratio = 0.9},
        .bias_correction = false}},
      {"adafactor",
       {.kind = OptimizerKind::adafactor,
        .hyper = {.lr = 1.0},
        .adafactor = {.relative_step = true}}},
      {"adafactor_warmup",
       {.kind = OptimizerKind::adafactor,
        .hyper = {.lr = 1.0, .weight_decay = 0.1},
        .adafactor = {.relative_step = true, .warmup_init = true}}},
      {"adafactor_rate",
       {.kind = OptimizerKind::adafactor,
        .hyper = {.lr = 0.02, .weight_decay = 0.1},
        .adafactor = {.clip_threshold = 0.5, .decay_rate = -0.6, .scale_parameter = false}}},
  };
  return all;
}

class WholeReference : public testing::TestWithParam<std::string> {
 protected:
  double deviation_of(DType dtype) {
    const auto file = files::SafetensorsFile::open("tests/reference/optim/whole.safetensors");
    const OptimizerConfig& config = whole_cases().at(GetParam());
    const auto optimizer = optim::make_optimizer(config);
    Context context({.num_threads = 1});
    const ContextScope scope(context);
    double worst = 0.0;
    for (const Shape& shape : {Shape{6, 10}, Shape{10, 6}, Shape{7}, Shape{2, 3, 4}}) {
      std::string name = str(shape[0]);
      for (int dim = 1; dim < shape.rank(); ++dim) name += str("x", shape[dim]);
      worst = std::max(worst,
                       deviation(*optimizer->whole_rule(), config.hyper, dtype, shape,
                                 stored(file, name + ".start"), stored(file, name + ".gradients"),
                                 stored(file, GetParam() + "." + name)));
    }
    return worst;
  }
};

// As TorchMuon: an update moves weights by a hundredth of their size. Adafactor's warm-up begins
// with a millionth: a rounding of f32 weights is then up to a sixteenth of the first update.
TEST_P(WholeReference, F64Matches) { EXPECT_LE(deviation_of(DType::f64), 300 * 0x1p-53); }
TEST_P(WholeReference, F32Matches) {
  EXPECT_LE(deviation_of(DType::f32), (GetParam() == "adafactor_warmup" ? 1e6 : 300) * 0x1p-24);
}

INSTANTIATE_TEST_SUITE_P(Cases, WholeReference,
                         testing::Values("lamb", "lamb_bounded", "adafactor", "adafactor_warmup",
                                         "adafactor_rate"),
                         [](const auto& info) { return info.param; });

// --- ScheduleFreeAdamW, against tests/reference/optim/make_schedule_free.py

struct ScheduleFreeCase {
  bool falls = false;  // from update 101 on half of the rate
  optim::HyperParameters hyper{.lr = 2.5e-3};
  optim::ScheduleFreeOptions options{};
};
// The same as CASES of the script.
const std::map<std::string, ScheduleFreeCase>& schedule_free_cases() {
  static const std::map<std::string, ScheduleFreeCase> all = {
      {"defaults", {}},
      {"decay",
       {.hyper = {.lr = 2.5e-3, .weight_decay = 0.1, .beta1 = 0.95, .beta2 = 0.99, .eps = 1e-6}}},
      {"warmup",
       {.falls = true,
        .hyper = {.lr = 0.01, .weight_decay = 0.1},
        .options = {.warmup_steps = 20, .r = 0.5}}},
      {"power",
       {.falls = true,
        .hyper = {.lr = 0.01},
        .options = {.warmup_steps = 150, .weight_lr_power = 1.0}}},
  };
  return all;
}

class ScheduleFree : public testing::TestWithParam<std::string> {
 protected:
  // The largest |actual - expected| / (|expected| + 1e-9) of y, z, x and exp_avg_sq.
  static double deviation(DType dtype) {
    const auto file =
        files::SafetensorsFile::open("tests/reference/optim/schedule_free.safetensors");
    const auto of_case = [&](const char* name) { return stored(file, GetParam() + "." + name); };
    const ScheduleFreeCase& settings = schedule_free_cases().at(GetParam());
    const auto rule = optim::make_optimizer(
        {.kind = OptimizerKind::schedule_free, .schedule_free = settings.options});
    Context context({.num_threads = 1});
    const ContextScope scope(context);
    const StreamRef stream = context.compute();
    const std::vector<double> start = stored(file, "start");
    const std::vector<double> gradients = stored(file, "gradients");
    const auto n = static_cast<int64_t>(start.size());
    const Tensor y = Tensor::from<double>(start, {n}, dtype);
    const Tensor z = Tensor::from<double>(start, {n}, dtype);
    const Tensor squares = Tensor::zeros({n}, dtype);
    const Tensor x = Tensor::empty({n}, dtype);
    double worst = 0.0;
    const auto compare = [&](const Tensor& actual, const double* expected) {
      const std::vector<double> values = actual.to_vector<double>();
      for (size_t i = 0; i < values.size(); ++i) {
        worst = std::max(worst, std::abs(values[i] - expected[i]) / (std::abs(expected[i]) + 1e-9));
      }
    };
    const std::vector<double> y_at = of_case("y_at");
    const double* next = y_at.data();
    optim::HyperParameters hyper = settings.hyper;
    for (int64_t t = 0; t < 200; ++t) {
      const auto first = gradients.begin() + t % 7 * n;
      std::vector<double> gradient(first, first + n);
      for (double& value : gradient) value *= static_cast<double>(1 + t % 5);
      const Tensor given = Tensor::from<double>(gradient, {n}, dtype);
      hyper.lr = settings.hyper.lr * (settings.falls && t >= 100 ? 0.5 : 1.0);
      hyper.carried = rule->carried(hyper, t + 1);
      optim::Update update{.weights = y.view(), .gradient = given.view(), .step = t + 1};
      update.states = {z.view(), squares.view()};
      rule->update(update, hyper, stream);
      if (t + 1 != 1 && t + 1 != 2 && t + 1 != 100) continue;
      compare(y, next);
      next += n;
    }
    EXPECT_NEAR(hyper.carried[0], of_case("lr_max").front(), 1e-17);
    EXPECT_NEAR(hyper.carried[1] / of_case("weight_sum").front(), 1.0, 1e-14);
    optim::Update evaluated{.weights = y.view(), .model_weights = x.view()};
    evaluated.states = {z.view(), squares.view()};
    rule->evaluated(evaluated, hyper, stream);
    compare(y, of_case("y").data());
    compare(z, of_case("z").data());
    compare(squares, of_case("exp_avg_sq").data());
    compare(x, of_case("x").data());
    return worst;
  }
};

// Each of 200 updates rounds y and z twice by half a unit, of weights that are at most three times
// those at the end: 200 x 4 x 3 half units.
TEST_P(ScheduleFree, F64Matches) { EXPECT_LE(deviation(DType::f64), 2400 * 0x1p-53); }
TEST_P(ScheduleFree, F32Matches) { EXPECT_LE(deviation(DType::f32), 2400 * 0x1p-24); }

INSTANTIATE_TEST_SUITE_P(Cases, ScheduleFree,
                         testing::Values("defaults", "decay", "warmup", "power"),
                         [](const auto& info) { return info.param; });

// --- AdamW with moments in blocks of 8 bits, against tests/reference/optim/make_adam8bit.py

class Adam8bit : public testing::Test {
 protected:
  static constexpr int64_t kN = 1024, kPadding = 100;
  std::vector<float> stored_floats(const std::string& name, int64_t n = kN) {
    std::vector<float> values(static_cast<size_t>(n));
    file_.read(*file_.find(name), 0, View(values.data(), DType::f32, Shape{n}));
    return values;
  }

 private:
  const files::SafetensorsFile file_ =
      files::SafetensorsFile::open("tests/reference/optim/adam8bit.safetensors");
};

TEST_F(Adam8bit, MapsAreBitsandbytes) {
  EXPECT_TRUE(std::ranges::equal(stored_floats("signed_map", 256), kDynamicMap));
  EXPECT_TRUE(std::ranges::equal(stored_floats("unsigned_map", 256), kUnsignedMap));
}

// To the bit: the reference rounds each operation as f32 does.
TEST_F(Adam8bit, TwoHundredStepsHaveTheBitsOfTheReference) {
  const OptimizerConfig config{.kind = OptimizerKind::adam8bit,
                               .hyper = {.lr = 1e-3, .weight_decay = 0.1}};
  const auto rule = optim::make_optimizer(config);
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const Tensor weights = Tensor::from<float>(stored_floats("weights"), {kN}, DType::f32);
  std::vector<Tensor> states;
  for (int i = 0; i < 2; ++i) {
    states.push_back(Tensor::zeros({encoded_bytes(*rule->state_blocks(i), kN)}, DType::u8));
  }
  for (int64_t step = 1; step <= 200; ++step) {
    std::vector<float> gradient(kN, 0.0f);
    for (int64_t i = 0; i < kN - kPadding; ++i) {
      const int64_t whole = (step * 7919 + i * 104729 + step * i * 31) % 2003 - 1001;
      gradient[static_cast<size_t>(i)] =
          std::ldexp(static_cast<float>(whole), static_cast<int>(-10 - i % 13));
    }
    const Tensor given = Tensor::from<float>(gradient, {kN}, DType::f32);
    rule->update({.weights = weights.view(),
                  .gradient = given.view(),
                  .states = {states[0].view(), states[1].view()},
                  .step = step},
                 config.hyper, context.compute());
    context.compute()->synchronize();
    if (step != 1 && step != 20 && step != 200) continue;
    const std::string at = str('.', step);
    EXPECT_EQ(weights.to_vector<float>(), stored_floats("weights" + at)) << step;
    for (int i = 0; i < 2; ++i) {
      const Tensor moment = Tensor::empty({kN}, DType::f32);
      kernels::decode_on_host({.x = states[static_cast<size_t>(i)].view(),
                               .format = *rule->state_blocks(i),
                               .y = moment.view()});
      EXPECT_EQ(moment.to_vector<float>(), stored_floats(std::string(rule->state_name(i)) + at))
          << step;
    }
  }
}

// torch's parameter groups are made by hand; DeepSpeed's users leave biases and norms out of the
// decay.
TEST(ParameterGroups, NormsAndBiasesOfRealModelsDoNotDecay) {
  for (const char* folder : {"tests/reference/gpt2", "tests/reference/llama"}) {
    const auto model = hub::make_model(hub::read_model_config(folder).config);
    int decaying = 0;
    for (const auto& [name, parameter] : model->named_parameters()) {
      const bool norm =
          name.find("ln_") != std::string::npos || name.find("norm") != std::string::npos;
      EXPECT_EQ(parameter->decays(), !norm && !name.ends_with(".bias")) << name;
      decaying += parameter->decays() ? 1 : 0;
    }
    EXPECT_GE(decaying, 10) << folder;
  }
}

// --- schedules, through the configuration reader

struct ScheduleCase {
  std::string text;  // of the scheduler block
  optim::Schedule schedule;
  std::vector<double> lrs;
  std::vector<double> beta1;  // empty: not moved
  std::vector<double> beta2;
};

std::vector<double> numbers(const files::json::Value& root, std::string_view key) {
  std::vector<double> values;
  if (const files::json::Value* list = root.find(key)) {
    for (const auto& value : list->as_array()) values.push_back(value.as_double());
  }
  return values;
}

std::vector<ScheduleCase> schedule_cases() {
  const auto root = files::json::parse_file("tests/reference/optim/schedules.json");
  std::vector<ScheduleCase> result;
  for (const auto& value : root.as_array()) {
    files::json::Object config;
    config.set("train_batch_size", 1);
    config.set("scheduler", value.at("scheduler"));
    files::json::Object params;
    params.set("lr", value.at("lr"));
    files::json::Object optimizer;
    optimizer.set("type", "AdamW");
    optimizer.set("params", params);
    config.set("optimizer", optimizer);
    const std::string text = files::json::write(config);
    const train::Config read = train::parse_config(text, "case.json", 1);
    result.push_back({text, optim::Schedule(read.engine.schedule, read.engine.optimizer),
                      numbers(value, "lrs"), numbers(value, "beta1"), numbers(value, "beta2")});
  }
  return result;
}

TEST(Schedules, EveryUpdateRunsWithDeepSpeedsRate) {
  size_t updates = 0;
  for (ScheduleCase& c : schedule_cases()) {
    for (size_t n = 0; n < c.lrs.size(); ++n, ++updates) {
      optim::HyperParameters hyper{.beta1 = 0.9, .beta2 = 0.999};
      c.schedule.apply(hyper);
      // The same formula in f64, in another order of operations.
      ASSERT_NEAR(hyper.lr, c.lrs[n], 1e-15) << c.text << " update " << n;
      EXPECT_EQ(c.schedule.lr(), hyper.lr);
      ASSERT_NEAR(hyper.beta1, c.beta1.empty() ? 0.9 : c.beta1[n], 1e-14)
          << c.text << " update " << n;
      ASSERT_EQ(hyper.beta2, c.beta2.empty() ? 0.999 : c.beta2[n]) << c.text << " update " << n;
      c.schedule.advance();
    }
  }
  EXPECT_GT(updates, 1'400U);
}

}  // namespace optimizer_test
}  // namespace zinc
