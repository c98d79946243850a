// Parity with PyTorch: stored f64 references of one tiny model of each decoder family
// (tests/reference/make_models.py). Tests run in the source folder.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "comm/local/local.h"
#include "nn/kv_cache.h"
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
        file_(train::SafetensorsFile::open(folder_ + "/reference.safetensors")),
        config_(train::read_model_config(folder_)) {}

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
    train::NameMap names = train::name_map(config());
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
    const Tensor labels = rows("labels", index);
    batch.tensors = {{"input_ids", rows("input_ids", index)}, {"labels", labels}};
    batch.num_tokens = labels.numel();
    for (const int64_t label : labels.to_vector<int64_t>()) {
      if (label != nn::kIgnoredLabel) ++batch.num_targets;
    }
    return batch;
  }

  std::unique_ptr<nn::Model> model() const { return train::make_model(config_.config); }
  const std::string& folder() const { return folder_; }
  const train::ModelConfig& config() const { return config_.config; }

 private:
  Tensor rows(const std::string& name, int64_t index) const {
    const train::TensorEntry* entry = file_.find(name);
    const Shape shape{entry->shape[1], entry->shape[2]};
    const Tensor tensor = Tensor::empty(shape, DType::i32);
    file_.read(*entry, index * shape.numel(), tensor.view().reshape(Shape{shape.numel()}));
    return tensor;
  }

  std::string folder_;
  train::SafetensorsFile file_;
  train::ModelConfigFile config_;
};

class Parity : public testing::TestWithParam<const char*> {
 protected:
  // Gradients of the mean loss by the resident path, compared tensor by tensor.
  void compare_gradients(DType dtype, double tolerance, double loss_tolerance) {
    const Reference reference(GetParam());
    Context context({.num_threads = 1});
    const ContextScope scope(context);
    const auto model = reference.model();
    model->set_dtype(dtype);
    model->load(train::FolderWeights(reference.folder(), *model, reference.config()));
    const nn::Batch batch = reference.batch(0);
    const Tensor loss = model->loss(batch);
    autograd::backward(loss);
    const auto targets = static_cast<double>(batch.num_targets);
    EXPECT_NEAR(loss.item() / targets, reference.doubles("loss")[0], loss_tolerance);
    for (const auto& [name, parameter] : model->named_parameters()) {
      const std::vector<double> expected = reference.gradient(*parameter);
      ASSERT_TRUE(parameter->grad().has_value()) << name;
      const std::vector<double> actual = parameter->grad()->to_vector<double>();
      ASSERT_EQ(actual.size(), expected.size()) << name;
      double difference = 0.0;
      double size = 0.0;
      for (size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(actual[i] / targets - expected[i], 2);
        size += expected[i] * expected[i];
      }
      EXPECT_LE(std::sqrt(difference / size), tolerance) << name;
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

TEST_P(Parity, AdamWStepsMatch) {
  const Reference reference(GetParam());
  const std::vector<double> expected = reference.doubles("losses");
  comm::run_local_ranks(1, {.num_threads = 1}, [&](comm::World& world) {
    const auto model = reference.model();
    const train::FolderWeights weights(reference.folder(), *model, reference.config());
    zero::EngineConfig config;
    config.batch.micro_batch = 3;
    config.optimizer.hyper = {
        .lr = 1e-3, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    zero::Engine engine(*model, config, world, {.weights = &weights});
    for (size_t step = 0; step < expected.size(); ++step) {
      engine.backward(engine.forward(reference.batch(static_cast<int64_t>(step % 4))));
      EXPECT_NEAR(engine.step().loss, expected[step], 1e-4) << "step " << step;
    }
  });
}

// The logits of each row's last position, of a model that generates; and the same with a cache that
// the tokens arrive in piece by piece.
TEST_P(Parity, LastLogitsMatch_WithAndWithoutCache) {
  const Reference reference(GetParam());
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const autograd::NoGrad no_grad;
  const auto model = reference.model();
  model->set_dtype(DType::f64);
  model->load(train::FolderWeights(reference.folder(), *model, reference.config()));
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
TEST_P(Parity, SavedModel_HasTheBytesOfTheLoadedOne) {
  const Reference reference(GetParam());
  const std::string folder = testing::TempDir() + "zinc_parity_" + GetParam();
  std::filesystem::remove_all(folder);
  comm::run_local_ranks(2, {.num_threads = 1}, [&](comm::World& world) {
    const auto model = reference.model();
    const train::FolderWeights weights(reference.folder(), *model, reference.config());
    zero::EngineConfig config;
    config.batch.micro_batch = 3;
    config.zero.stage = 3;
    zero::Engine engine(*model, config, world, {.weights = &weights});
    train::save_model(engine, train::read_model_config(reference.folder()), folder);
  });
  EXPECT_EQ(train::read_model_config(folder).config, reference.config());
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

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox",
                                         "gpt_neox_serial", "bloom"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace reference_test
}  // namespace zinc
