// Parity with PyTorch: stored f64 references of tiny models (tests/reference/make_models.py and
// make_encoders.py). Tests run in the source folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "comm/local/local.h"
#include "nn/kv_cache.h"
#include "train/generate.h"
#include "train/model.h"
#include "train/safetensors/folder.h"
#include "train/safetensors/reader.h"
#include "zero/engine.h"

namespace zinc {
namespace reference_test {

class Reference {
 public:
  explicit Reference(const std::string& name)
      : folder_("tests/reference/" + name),
        file_(train::SafetensorsFile::open(folder_ + "/reference.safetensors")) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<double> doubles(const std::string& name) const {
    const train::TensorEntry* entry = file_.find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry->dtype == DType::i32) {
      const Tensor tensor = Tensor::empty(entry->shape, DType::i32);
      file_.read(*entry, 0, tensor.view().reshape(Shape{entry->shape.numel()}));
      return tensor.to_vector<double>();
    }
    std::vector<double> values(static_cast<size_t>(entry->shape.numel()));
    file_.read(*entry, 0, View(values.data(), DType::f64, Shape{entry->shape.numel()}));
    return values;
  }

  // What PyTorch's own run in the dtype is off is nothing to ask more than; twice, since rounding
  // in other places is another draw.
  double tolerance(DType dtype, const std::string& name, double promised) const {
    const std::string off = concat("off_", dtype, ".", name);
    return has(off) ? std::max(promised, 2.0 * doubles(off)[0]) : promised;
  }

  nn::Batch batch(int64_t index) const {
    nn::Batch batch;
    for (const char* name : {"input_ids", "labels", "lengths", "token_type_ids"}) {
      if (has(name)) batch.tensors.set(name, slice(name, index));
    }
    batch.num_tokens = batch["input_ids"].numel();
    for (const int64_t label : batch["labels"].to_vector<int64_t>()) {
      if (label != nn::kIgnoredLabel) ++batch.num_targets;
    }
    return batch;
  }

  // With the stored weights, in the dtype.
  std::unique_ptr<nn::Model> model(DType dtype) const {
    const train::ModelConfig config = train::read_model_config(folder_).config;
    std::unique_ptr<nn::Model> model = train::make_model(config);
    model->set_dtype(dtype);
    model->load(train::FolderWeights(folder_, *model, config));
    return model;
  }

 private:
  // Of [S, ...].
  Tensor slice(const std::string& name, int64_t index) const {
    const train::TensorEntry* entry = file_.find(name);
    Shape shape{entry->shape[1]};
    if (entry->shape.rank() == 3) shape = Shape{entry->shape[1], entry->shape[2]};
    const Tensor tensor = Tensor::empty(shape, DType::i32);
    file_.read(*entry, index * shape.numel(), tensor.view().reshape(Shape{shape.numel()}));
    return tensor;
  }

  std::string folder_;
  train::SafetensorsFile file_;
};

// L2 norm of actual - expected; elements that are NaN in `expected` are not looked at.
double distance(const std::vector<double>& actual, const std::vector<double>& expected) {
  double sum = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isnan(expected[i])) sum += std::pow(actual[i] - expected[i], 2);
  }
  return std::sqrt(sum);
}

double norm(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += std::isnan(value) ? 0.0 : value * value;
  return std::sqrt(sum);
}

class Parity : public testing::TestWithParam<const char*> {
 protected:
  // Gradients of the mean loss by the resident path, compared tensor by tensor.
  void compare_gradients(DType dtype, double tolerance, double loss_tolerance) {
    const Reference reference(GetParam());
    Context context({.num_threads = 1});
    const ContextScope scope(context);
    const auto model = reference.model(dtype);
    const nn::Batch batch = reference.batch(0);
    const Tensor loss = model->loss(batch);
    autograd::backward(loss);
    const auto targets = static_cast<double>(batch.num_targets);
    EXPECT_NEAR(loss.item() / targets, reference.doubles("loss")[0], loss_tolerance);
    for (const auto& [name, parameter] : model->named_parameters()) {
      const std::vector<double> expected = reference.doubles("grad." + name);
      ASSERT_TRUE(parameter->grad().has_value()) << name;
      std::vector<double> actual = parameter->grad()->to_vector<double>();
      ASSERT_EQ(actual.size(), expected.size()) << name;
      for (double& value : actual) value /= targets;
      // The bias of keys adds the same to all scores of a query: its gradient is 0, and what is
      // left of it is rounding of gradients about 1.
      const double size = norm(expected);
      EXPECT_LE(distance(actual, expected),
                size > 1e-12 ? reference.tolerance(dtype, name, tolerance) * size : tolerance)
          << name;
    }
  }
};

// The reference's own rounding: f64 sums of a few thousand terms.
TEST_P(Parity, F64GradientsMatch) { compare_gradients(DType::f64, 1e-12, 1e-12); }

// 2^-24 times the root of the longest sum (a few thousand) is 4e-6 in the worst direction; errors
// of a whole tensor average to far less, and the project promises 8e-7.
TEST_P(Parity, F32GradientsMatch) { compare_gradients(DType::f32, 8e-7, 1e-6); }

// Weights are exact in bf16, activations and gradients are rounded to 8 bits on the way.
TEST_P(Parity, Bf16GradientsMatch) { compare_gradients(DType::bf16, 2e-2, 2e-2); }

// Logits are f32: 2^-24, and the sums that f32 models make before.
class LogitsParity : public testing::TestWithParam<const char*> {};

TEST_P(LogitsParity, LogitsMatch) {
  const Reference reference(GetParam());
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const autograd::NoGrad no_grad;
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f64, 1e-7}, std::pair{DType::f32, 8e-7}, std::pair{DType::bf16, 2e-2}}) {
    const auto model = reference.model(dtype);
    const Tensor logits = nn::require_interface<nn::HasOutputs>(*model, "logits")
                              .outputs(reference.batch(0))["logits"];
    EXPECT_EQ(logits.dtype(), DType::f32);
    const std::vector<double> expected = reference.doubles("logits");
    ASSERT_EQ(logits.numel(), static_cast<int64_t>(expected.size()));
    EXPECT_LE(distance(logits.to_vector<double>(), expected),
              reference.tolerance(dtype, "logits", tolerance) * norm(expected))
        << name_of(dtype);
  }
}

TEST_P(Parity, AdamWStepsMatch) {
  const Reference reference(GetParam());
  const std::vector<double> expected = reference.doubles("losses");
  comm::run_local_ranks(1, {.num_threads = 1}, [&](comm::World& world) {
    const auto model = reference.model(DType::f32);
    zero::EngineConfig config;
    config.batch.micro_batch = 3;
    config.optimizer.hyper = {
        .lr = 1e-3, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    zero::Engine engine(*model, config, world);
    for (size_t step = 0; step < expected.size(); ++step) {
      engine.backward(engine.forward(reference.batch(static_cast<int64_t>(step % 4))));
      EXPECT_NEAR(engine.step().loss, expected[step], 1e-4) << "step " << step;
    }
  });
}

class Generation : public testing::TestWithParam<const char*> {};

// All texts of a batch side by side, their answers one token after the other.
TEST_P(Generation, GreedyTokensMatch) {
  const Reference reference(GetParam());
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const autograd::NoGrad no_grad;
  const auto model = reference.model(DType::f32);
  auto& lm = nn::require_interface<nn::EncoderDecoderLm>(*model, "the test");
  const nn::Batch batch = reference.batch(0);
  const int64_t B = batch.rows();
  const std::vector<double> expected = reference.doubles("greedy");
  const int64_t length = static_cast<int64_t>(expected.size()) / B;
  nn::KvCache cache(length);
  lm.encode(batch, cache);
  std::vector<int64_t> last(static_cast<size_t>(B), lm.decoder_start_token());
  std::vector<bool> ended(static_cast<size_t>(B));
  for (int64_t t = 1; t < length; ++t) {
    const Tensor logits =
        lm.next_logits(Tensor::from<int64_t>(last, Shape{B, 1}, DType::i32), cache);
    const std::vector<float> values = logits.to_vector<float>();
    const int64_t V = logits.dim(1);
    for (int64_t b = 0; b < B; ++b) {
      const auto row = values.begin() + b * V;
      const auto i = static_cast<size_t>(b);
      last[i] = ended[i] ? 0 : std::max_element(row, row + V) - row;
      EXPECT_EQ(last[i], static_cast<int64_t>(expected[static_cast<size_t>(b * length + t)]))
          << "text " << b << ", token " << t;
      ended[i] = ended[i] || last[i] == 1;
    }
  }
}

// One text after the other by an engine, with parameters on two ranks.
TEST_P(Generation, AnswersOfAnEngineMatch) {
  const Reference reference(GetParam());
  comm::run_local_ranks(2, {.num_threads = 1}, [&](comm::World& world) {
    const auto model = reference.model(DType::f32);
    const nn::Batch batch = reference.batch(0);
    const std::vector<double> expected = reference.doubles("greedy");
    zero::EngineConfig config;
    config.zero.stage = 3;
    zero::Engine engine(*model, config, world);
    const std::vector<int64_t> wide = batch["input_ids"].to_vector<int64_t>();
    const std::vector<int32_t> ids(wide.begin(), wide.end());
    const std::vector<int64_t> lengths = batch["lengths"].to_vector<int64_t>();
    const size_t T = ids.size() / lengths.size(), N = expected.size() / lengths.size();
    for (size_t b = 0; b < lengths.size(); ++b) {
      const std::span text(ids.data() + b * T, static_cast<size_t>(lengths[b]));
      const std::vector<int32_t> answer = train::generate(
          engine, text,
          {.max_tokens = static_cast<int64_t>(N) - 1, .sampling = {.temperature = 0.0}});
      const std::vector<double> got(answer.begin(), answer.end());
      const auto row = expected.begin() + static_cast<std::ptrdiff_t>(b * N);
      EXPECT_EQ(got, std::vector<double>(row + 1, row + static_cast<std::ptrdiff_t>(N))) << b;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Generation, testing::Values("t5", "t5_v1_1"),
                         [](const auto& info) { return std::string(info.param); });

constexpr const char* kModels[] = {
    "gpt2",    "llama",         "bert", "bert_texts", "bert_tokens",
    "roberta", "roberta_texts", "t5",   "t5_v1_1",    "encoder_classifier"};

// Logits are stored of encoders.
INSTANTIATE_TEST_SUITE_P(Models, LogitsParity, testing::ValuesIn(kModels + 2, std::end(kModels)),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace reference_test
}  // namespace zinc
