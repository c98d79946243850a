// Parity with PyTorch: stored f64 references of a tiny GPT-2 and a tiny Llama
// (tests/reference/make_models.py). Tests run in the source folder.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "comm/local/local.h"
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
      const std::vector<double> expected = reference.doubles("grad." + name);
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

TEST_P(Parity, HundredAdamWStepsMatch) {
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

INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::Values("gpt2", "llama"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace reference_test
}  // namespace zinc
