// Parity with peft: stored f64 gradients of a LoRA on a tiny GPT-2 (tests/reference/make_peft.py).
// Tests run in the source folder.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "core/context.h"
#include "train/adapter.h"
#include "train/model.h"
#include "train/safetensors/reader.h"

namespace zinc::train {
namespace adapter_parity_test {

constexpr const char* kBase = "tests/reference/gpt2";
constexpr const char* kAdapter = "tests/reference/peft";

std::vector<double> doubles(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::vector<double> values(static_cast<size_t>(entry->shape.numel()));
  file.read(*entry, 0, View(values.data(), DType::f64, Shape{entry->shape.numel()}));
  return values;
}

Tensor first_batch(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  const Tensor tensor = Tensor::empty({entry->shape[1], entry->shape[2]}, DType::i32);
  file.read(*entry, 0, tensor.view().reshape(Shape{tensor.numel()}));
  return tensor;
}

class Peft : public testing::TestWithParam<DType> {};

TEST_P(Peft, GradientsOfItsAdapterMatch) {
  const DType dtype = GetParam();
  // As for whole models: tests/parity/reference_test.cpp.
  const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 8e-7 : 2e-2;
  const SafetensorsFile reference =
      SafetensorsFile::open(std::string(kAdapter) + "/reference.safetensors");
  const SafetensorsFile data = SafetensorsFile::open(std::string(kBase) + "/reference.safetensors");
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const ModelConfigFile config = read_model_config(kBase);
  const auto model = make_model(config.config);
  const FolderWeights base(kBase, *model, config.config);
  apply_tuning(*model, tuning_of_adapter(kAdapter));
  model->set_dtype(dtype);
  model->load(AdaptedWeights(*model, &base, kAdapter));
  nn::Batch batch{.tensors = {{"input_ids", first_batch(data, "input_ids")},
                              {"labels", first_batch(data, "labels")}}};
  int64_t targets = 0;
  for (const int64_t label : batch["labels"].to_vector<int64_t>()) targets += label >= 0 ? 1 : 0;
  const Tensor loss = model->loss(batch);
  autograd::backward(loss);
  EXPECT_NEAR(loss.item() / static_cast<double>(targets), doubles(reference, "loss")[0], tolerance);
  int compared = 0;
  for (const auto& [name, parameter] : model->named_parameters()) {
    ASSERT_EQ(parameter->grad().has_value(), nn::is_lora_parameter(name)) << name;
    if (!parameter->grad()) continue;
    const std::vector<double> expected = doubles(reference, "grad." + name);
    const std::vector<double> actual = parameter->grad()->to_vector<double>();
    ASSERT_EQ(actual.size(), expected.size()) << name;
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(actual[i] / static_cast<double>(targets) - expected[i], 2);
      size += expected[i] * expected[i];
    }
    EXPECT_LE(std::sqrt(difference / size), tolerance) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

INSTANTIATE_TEST_SUITE_P(DTypes, Peft, testing::Values(DType::f64, DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace adapter_parity_test
}  // namespace zinc::train
