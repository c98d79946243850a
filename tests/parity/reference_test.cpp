// Parity with PyTorch: stored f64 references of tiny models (tests/reference/make_models.py and
// make_encoders.py). Tests run in the source folder.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "comm/local/local.h"
#include "nn/kv_cache.h"
#include "nn/models/bert.h"
#include "train/model.h"
#include "train/safetensors/folder.h"
#include "train/safetensors/reader.h"
#include "zero/engine.h"

namespace zinc {
namespace reference_test {

// Encoders are made by their configurations: make_encoders.py's sizes.
nn::BertConfig bert_config(nn::BertKind kind, nn::EncoderTask task) {
  const bool roberta = kind == nn::BertKind::roberta;
  return {.kind = kind,
          .task = task,
          .num_classes = 5,
          .vocab_size = 43,
          .max_positions = 16,
          .type_vocab_size = roberta ? 1 : 2,
          .hidden_size = 24,
          .num_layers = 2,
          .num_heads = 3,
          .intermediate_size = 40,
          .layer_norm_epsilon = roberta ? 1e-5 : 1e-12,
          .pad_token = roberta ? 1 : 0};
}

template <nn::BertKind kind, nn::EncoderTask task>
std::unique_ptr<nn::Model> make_bert() {
  return std::make_unique<nn::Bert>(bert_config(kind, task));
}

// A folder of tests/reference.
struct Stored {
  const char* name;
  std::unique_ptr<nn::Model> (*make)() = nullptr;  // null: by the folder's config.json
};

void PrintTo(const Stored& stored, std::ostream* out) { *out << stored.name; }

constexpr Stored kModels[] = {
    {"gpt2"},
    {"llama"},
    {"mistral"},
    {"qwen2"},
    {"qwen3"},
    {"gpt_neox"},
    {"gpt_neox_serial"},
    {"bloom"},
    {"bert", make_bert<nn::BertKind::bert, nn::EncoderTask::masked_lm>},
    {"bert_texts", make_bert<nn::BertKind::bert, nn::EncoderTask::sequence_classification>},
    {"bert_tokens", make_bert<nn::BertKind::bert, nn::EncoderTask::token_classification>},
    {"roberta", make_bert<nn::BertKind::roberta, nn::EncoderTask::masked_lm>},
    {"roberta_texts", make_bert<nn::BertKind::roberta, nn::EncoderTask::sequence_classification>},
};

constexpr int kNumDecoders = 8;  // the first ones

class Reference {
 public:
  explicit Reference(const Stored& stored)
      : stored_(stored),
        folder_(concat("tests/reference/", stored.name)),
        file_(train::SafetensorsFile::open(folder_ + "/reference.safetensors")) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<double> doubles(const std::string& name) const {
    const train::TensorEntry* entry = file_.find(name);
    EXPECT_NE(entry, nullptr) << name;
    std::vector<double> values(static_cast<size_t>(entry->shape.numel()));
    file_.read(*entry, 0, View(values.data(), DType::f64, Shape{entry->shape.numel()}));
    return values;
  }

  // The gradient of one of the model's parameters, which may lie in files as a part of another
  // tensor.
  std::vector<double> gradient(const nn::Parameter& parameter) const {
    if (stored_.make != nullptr) return doubles("grad." + parameter.name());
    train::NameMap names = train::name_map(train::read_model_config(folder_).config);
    for (train::NameRow& row : names.rows) {
      row.ours = "grad." + row.ours;
      row.theirs = "grad." + row.theirs;
    }
    const train::WeightReader reader(train::WeightFolder::open(folder_ + "/reference.safetensors"),
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
  // With the stored weights, in the dtype.
  std::unique_ptr<nn::Model> model(DType dtype) const {
    if (stored_.make == nullptr) {
      const train::ModelConfig config = train::read_model_config(folder_).config;
      std::unique_ptr<nn::Model> model = train::make_model(config);
      model->set_dtype(dtype);
      model->load(train::FolderWeights(folder_, *model, config));
      return model;
    }
    std::unique_ptr<nn::Model> model = stored_.make();
    model->set_dtype(dtype);
    const nn::LoadResult result = model->load_state_dict(weights());
    EXPECT_TRUE(result.ok()) << to_string(result);
    return model;
  }

 private:
  nn::StateDict weights() const {
    const auto file = train::SafetensorsFile::open(folder_ + "/model.safetensors");
    nn::StateDict weights;
    for (const train::TensorEntry& entry : file.header().tensors) {
      const Tensor tensor = Tensor::empty(entry.shape, entry.dtype.value());
      file.read(entry, 0, tensor.view().reshape(Shape{tensor.numel()}));
      weights.emplace(entry.name, tensor);
    }
    return weights;
  }

  // Of [S, ...].
  Tensor slice(const std::string& name, int64_t index) const {
    const train::TensorEntry* entry = file_.find(name);
    Shape shape{entry->shape[1]};
    if (entry->shape.rank() == 3) shape = Shape{entry->shape[1], entry->shape[2]};
    const Tensor tensor = Tensor::empty(shape, DType::i32);
    file_.read(*entry, index * shape.numel(), tensor.view().reshape(Shape{shape.numel()}));
    return tensor;
  }

  Stored stored_;
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

class Parity : public testing::TestWithParam<Stored> {
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
      const double size = norm(expected) > 1e-12 ? norm(expected) : 1.0;
      EXPECT_LE(distance(actual, expected), tolerance * size) << name;
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
class LogitsParity : public testing::TestWithParam<Stored> {};

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
    EXPECT_LE(distance(logits.to_vector<double>(), expected), tolerance * norm(expected))
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

class DecoderParity : public testing::TestWithParam<Stored> {};

// The logits of each row's last position, of a model that generates; and the same with a cache that
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
  const std::string folder = testing::TempDir() + "zinc_parity_" + GetParam().name;
  std::filesystem::remove_all(folder);
  comm::run_local_ranks(2, {.num_threads = 1}, [&](comm::World& world) {
    const train::ModelConfigFile file = train::read_model_config(reference.folder());
    const auto model = train::make_model(file.config);
    const train::FolderWeights weights(reference.folder(), *model, file.config);
    zero::EngineConfig config;
    config.batch.micro_batch = 3;
    config.zero.stage = 3;
    zero::Engine engine(*model, config, world, {.weights = &weights});
    train::save_model(engine, file, folder);
  });
  EXPECT_EQ(train::read_model_config(folder).config,
            train::read_model_config(reference.folder()).config);
  const train::WeightFolder before = train::WeightFolder::open(reference.folder());
  const train::WeightFolder after = train::WeightFolder::open(folder);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& [name, location] : before.tensors()) {
    const train::WeightFolder::Location* found = after.find(name);
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

INSTANTIATE_TEST_SUITE_P(Models, DecoderParity, testing::ValuesIn(kModels, kModels + kNumDecoders),
                         [](const auto& info) { return std::string(info.param.name); });
// Logits are stored of encoders.
INSTANTIATE_TEST_SUITE_P(Models, LogitsParity,
                         testing::ValuesIn(kModels + kNumDecoders, std::end(kModels)),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace reference_test
}  // namespace zinc
