// Parity with PyTorch: stored f64 references of tiny models (tests/reference/make_models.py and
// make_encoders.py). Tests run in the source folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "comm/local/local.h"
#include "files/safetensors/folder.h"
#include "files/safetensors/reader.h"
#include "generate/generate.h"
#include "hub/model.h"
#include "nn/attention/kv_cache.h"
#include "train/weights/save_model.h"
#include "zero/engine.h"

namespace zinc {
namespace reference_test {

class Reference {
 public:
  explicit Reference(const std::string& name)
      : folder_("tests/reference/" + name),
        file_(files::SafetensorsFile::open(folder_ + "/reference.safetensors")) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<double> doubles(const std::string& name) const {
    const files::TensorEntry* entry = file_.find(name);
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

  // The tolerance is at least twice the error of PyTorch's own run in the dtype, since rounding in
  // other places is another draw.
  double tolerance(DType dtype, const std::string& name, double promised) const {
    const std::string off = str("off_", dtype, ".", name);
    return has(off) ? std::max(promised, 2.0 * doubles(off)[0]) : promised;
  }

  // The gradient of one of the model's parameters, which may lie in files as a part of another
  // tensor.
  std::vector<double> gradient(const nn::Parameter& parameter) const {
    hub::NameMap names = hub::name_map(hub::read_model_config(folder_).config);
    for (hub::NameRow& row : names.rows) {
      row.ours = "grad." + row.ours;
      row.theirs = "grad." + row.theirs;
    }
    const hub::WeightReader reader(hub::WeightFolder::open(folder_ + "/reference.safetensors"),
                                   names);
    std::vector<double> values(static_cast<size_t>(parameter.numel()));
    reader.read("grad." + parameter.name(), parameter.shape(), 0,
                View(values.data(), DType::f64, Shape{parameter.numel()}));
    return values;
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

  const std::string& folder() const { return folder_; }
  // The model with the stored weights, in the dtype.
  std::unique_ptr<nn::Model> model(DType dtype) const {
    const hub::ModelConfig config = hub::read_model_config(folder_).config;
    std::unique_ptr<nn::Model> model = hub::make_model(config);
    model->set_dtype(dtype);
    model->load(hub::FolderWeights(folder_, *model, config));
    return model;
  }

 private:
  // Slice `index` of [S, ...].
  Tensor slice(const std::string& name, int64_t index) const {
    const files::TensorEntry* entry = file_.find(name);
    Shape shape{entry->shape[1]};
    if (entry->shape.rank() == 3) shape = Shape{entry->shape[1], entry->shape[2]};
    const Tensor tensor = Tensor::empty(shape, DType::i32);
    file_.read(*entry, index * shape.numel(), tensor.view().reshape(Shape{shape.numel()}));
    return tensor;
  }

  std::string folder_;
  files::SafetensorsFile file_;
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
      const std::vector<double> expected = reference.gradient(*parameter);
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
      const std::vector<int32_t> answer = generate::generate_tokens(
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

class DecoderParity : public testing::TestWithParam<const char*> {};

// The logits of each row's last position, for a model that generates; the same with a cache that
// the tokens arrive in piece by piece.
TEST_P(DecoderParity, LastLogitsMatch_WithAndWithoutCache) {
  const Reference reference(GetParam());
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const autograd::NoGrad no_grad;
  const auto model = reference.model(DType::f64);
  model->eval();
  auto& generator = nn::require_interface<nn::CachedCausalLm>(*model, "the test");
  const Tensor ids = reference.batch(0)["input_ids"];
  nn::KvCache cache(ids.dim(1));
  Tensor cached;
  int64_t begin = 0;
  for (const int64_t count : {int64_t{8}, int64_t{1}, int64_t{1}, ids.dim(1) - 10}) {
    cached = generator.next_logits(ids.narrow_view(1, begin, count).clone(), cache);
    begin += count;
  }
  const std::vector<double> whole = generator.next_logits(ids).to_vector<double>();
  const std::vector<double> pieces = cached.to_vector<double>();
  const std::vector<double> expected = reference.doubles("logits");
  ASSERT_EQ(whole.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(whole[i], expected[i], 1e-6) << i;  // logits are f32
    EXPECT_NEAR(pieces[i], whole[i], 1e-6) << i;
  }
}

// Weights and config.json through the engine and back: the bytes of every tensor.
TEST_P(DecoderParity, SavedModel_HasTheBytesOfTheLoadedOne) {
  const Reference reference(GetParam());
  const std::string folder = testing::TempDir() + "zinc_parity_" + GetParam();
  std::filesystem::remove_all(folder);
  comm::run_local_ranks(2, {.num_threads = 1}, [&](comm::World& world) {
    const hub::ModelConfigFile file = hub::read_model_config(reference.folder());
    const auto model = hub::make_model(file.config);
    const hub::FolderWeights weights(reference.folder(), *model, file.config);
    zero::EngineConfig config;
    config.batch.micro_batch = 3;
    config.zero.stage = 3;
    zero::Engine engine(*model, config, world, {.weights = &weights});
    train::save_model(engine, file, folder);
  });
  EXPECT_EQ(hub::read_model_config(folder).config,
            hub::read_model_config(reference.folder()).config);
  const hub::WeightFolder before = hub::WeightFolder::open(reference.folder());
  const hub::WeightFolder after = hub::WeightFolder::open(folder);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& [name, location] : before.tensors()) {
    const hub::WeightFolder::Location* found = after.find(name);
    ASSERT_NE(found, nullptr) << name;
    ASSERT_EQ(found->tensor().shape, location.tensor().shape) << name;
    const int64_t count = location.tensor().shape.numel();
    std::vector<float> old_values(static_cast<size_t>(count)), new_values(old_values);
    location.read(0, View(old_values.data(), DType::f32, Shape{count}));
    found->read(0, View(new_values.data(), DType::f32, Shape{count}));
    EXPECT_TRUE(old_values == new_values) << name;
  }
  std::filesystem::remove_all(folder);
}

constexpr const char* kModels[] = {"gpt2",
                                   "llama",
                                   "mistral",
                                   "qwen2",
                                   "qwen3",
                                   "gpt_neox",
                                   "gpt_neox_serial",
                                   "bloom",
                                   "chatglm",
                                   "bert",
                                   "bert_texts",
                                   "bert_tokens",
                                   "roberta",
                                   "roberta_texts",
                                   "t5",
                                   "t5_v1_1",
                                   "encoder_classifier"};
constexpr int kNumDecoders = 9;  // the first ones

INSTANTIATE_TEST_SUITE_P(Models, DecoderParity, testing::ValuesIn(kModels, kModels + kNumDecoders),
                         [](const auto& info) { return std::string(info.param); });

// Logits are stored of encoders.
INSTANTIATE_TEST_SUITE_P(Models, LogitsParity,
                         testing::ValuesIn(kModels + kNumDecoders, std::end(kModels)),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace reference_test
}  // namespace zinc
