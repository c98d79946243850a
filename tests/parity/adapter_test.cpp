// Parity with peft: adapters that it saved, with their f64 gradients and what they merge to
// (tests/reference/make_peft.py).
// Tests run in the source folder.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/backward.h"
#include "core/context.h"
#include "files/safetensors/reader.h"
#include "hub/adapter.h"
#include "hub/merged_weights.h"
#include "hub/model.h"
#include "tests/files/scratch_folder.h"

namespace zinc::train {
namespace adapter_parity_test {

// Adapters below tests/reference/peft, and the models that they are of.
struct Case {
  const char* name;
  const char* base;
  double bounds = 1.0;  // times those of whole models
  friend std::ostream& operator<<(std::ostream& os, const Case& c) { return os << c.name; }
};
constexpr Case kCases[] = {{"gpt2", "gpt2"},
                           {"bloom", "bloom"},
                           {"gpt_neox", "gpt_neox"},
                           {"embedding", "llama"},
                           {"tied_embedding", "gpt2"},
                           {"dora", "llama", 2.0},
                           {"dora_transposed", "gpt2"},
                           {"patterns", "llama", 2.0}};

std::string base_of(const Case& c) { return str("tests/reference/", c.base); }
std::string adapter_of(const Case& c) { return str("tests/reference/peft/", c.name); }

std::vector<double> doubles(const files::SafetensorsFile& file, const std::string& name) {
  const files::TensorEntry* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::vector<double> values(static_cast<size_t>(entry->shape.numel()));
  file.read(*entry, 0, View(values.data(), DType::f64, Shape{entry->shape.numel()}));
  return values;
}

Tensor first_batch(const files::SafetensorsFile& file, const std::string& name) {
  const files::TensorEntry* entry = file.find(name);
  const Tensor tensor = Tensor::empty({entry->shape[1], entry->shape[2]}, DType::i32);
  file.read(*entry, 0, tensor.view().reshape(Shape{tensor.numel()}));
  return tensor;
}

// An adapted model with peft's values.
std::unique_ptr<nn::Model> adapted_model(const Case& c, DType dtype) {
  const hub::ModelConfigFile config = hub::read_model_config(base_of(c));
  std::unique_ptr<nn::Model> model = hub::make_model(config.config);
  const hub::FolderWeights base(base_of(c), *model, config.config);
  hub::apply_tuning(*model, hub::tuning_of_adapter(adapter_of(c)));
  model->set_dtype(dtype);
  model->load(hub::AdaptedWeights(*model, &base, hub::name_map(config.config), adapter_of(c)));
  return model;
}

// The difference relative to the root of the sum of squares.
double relative_difference(const std::vector<double>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(actual[i] - expected[i], 2);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

class Peft : public testing::TestWithParam<std::tuple<Case, DType>> {};

TEST_P(Peft, GradientsOfItsAdapterMatch) {
  const auto& [c, dtype] = GetParam();
  // The bounds of whole models (tests/parity/reference_test.cpp). Two cases have twice as much: the
  // products of random adapters are as large as those of the weights, and each is rounded, in DoRA
  // also the norms. peft's own gradients lie up to 1.13e-6 (f32) and 3.4e-2 (bf16) from its f64
  // gradients, both in "patterns".
  const double tolerance = c.bounds * (dtype == DType::f64   ? 1e-13
                                       : dtype == DType::f32 ? 8e-7
                                                             : 2e-2);
  const std::string file = adapter_of(c) + "/reference.safetensors";
  const files::SafetensorsFile reference = files::SafetensorsFile::open(file);
  const files::SafetensorsFile data =
      files::SafetensorsFile::open(base_of(c) + "/reference.safetensors");
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const auto model = adapted_model(c, dtype);
  nn::Batch batch{.tensors = {{"input_ids", first_batch(data, "input_ids")},
                              {"labels", first_batch(data, "labels")}}};
  int64_t targets = 0;
  for (const int64_t label : batch["labels"].to_vector<int64_t>()) targets += label >= 0 ? 1 : 0;
  const Tensor loss = model->loss(batch);
  autograd::backward(loss);
  EXPECT_NEAR(loss.item() / static_cast<double>(targets), doubles(reference, "loss")[0], tolerance);
  hub::NameMap names =
      hub::adapter_names(hub::name_map(hub::read_model_config(base_of(c)).config), *model);
  names.prefixes = {"grad."};
  const hub::WeightReader gradients(hub::WeightFolder::open(file), names);
  for (const auto& [name, parameter] : model->named_parameters()) {
    ASSERT_EQ(parameter->grad().has_value(), nn::is_lora_parameter(name)) << name;
    if (!parameter->grad()) continue;
    const int64_t numel = parameter->numel();
    std::vector<double> expected(static_cast<size_t>(numel));
    gradients.read(name, parameter->shape(), 0, View(expected.data(), DType::f64, Shape{numel}));
    std::vector<double> actual = parameter->grad()->to_vector<double>();
    for (double& value : actual) value /= static_cast<double>(targets);
    EXPECT_LE(relative_difference(actual, expected), tolerance) << name;
  }
}

// Compares with merge_and_unload() in f64.
TEST_P(Peft, MergesToTheSameWeights) {
  const auto& [c, dtype] = GetParam();
  if (dtype == DType::f64) return;  // a merged model has at most 32 bits
  const files::ScratchFolder folder;
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const auto merge = [&] {
    hub::merge_adapter(base_of(c), adapter_of(c), folder / "merged", {.dtype = dtype});
  };
  if (std::string_view(c.name) == "tied_embedding") {
    EXPECT_THROW(merge(), ConfigError);  // the head would change with the table
    return;
  }
  merge();
  const files::SafetensorsFile merged =
      files::SafetensorsFile::open(folder / "merged/model.safetensors");
  const files::SafetensorsFile base =
      files::SafetensorsFile::open(base_of(c) + "/model.safetensors");
  const files::SafetensorsFile reference =
      files::SafetensorsFile::open(adapter_of(c) + "/reference.safetensors");
  ASSERT_EQ(merged.header().tensors.size(), base.header().tensors.size());
  // One rounding to the result's dtype, of values that peft's sums in another order may have moved
  // across a rounding's border.
  const double tolerance = dtype == DType::f32 ? 0x1p-23 : 0x1p-8;
  int compared = 0;
  for (const files::TensorEntry& tensor : base.header().tensors) {
    if (reference.find("merged." + tensor.name) == nullptr) continue;
    const std::vector<double> expected = doubles(reference, "merged." + tensor.name);
    const std::vector<double> actual = doubles(merged, tensor.name);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance * std::abs(expected[i])) << tensor.name << i;
    }
    EXPECT_GT(relative_difference(expected, doubles(base, tensor.name)), 0.01);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

// The way back: peft's own file, to the last bit.
TEST_P(Peft, AdapterIsSavedAsPeftSavesIt) {
  const auto& [c, dtype] = GetParam();
  if (dtype == DType::f64) return;  // an adapter is f32; its values are exact in bf16
  const files::ScratchFolder folder;
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const auto model = adapted_model(c, dtype);
  const hub::NameMap names = hub::name_map(hub::read_model_config(base_of(c)).config);
  const hub::AdapterConfig config = hub::read_adapter_config(adapter_of(c));
  hub::AdapterFolderWriter writer(folder / "saved", config, *model, names);
  for (const auto& [name, parameter] : model->named_parameters()) {
    if (parameter->requires_grad())
      writer.write(name, 0, parameter->data().view().reshape(Shape{parameter->numel()}));
  }
  writer.commit();
  EXPECT_EQ(hub::read_adapter_config(folder / "saved").lora, config.lora);
  const files::SafetensorsFile saved =
      files::SafetensorsFile::open(folder / "saved/adapter_model.safetensors");
  const files::SafetensorsFile theirs =
      files::SafetensorsFile::open(adapter_of(c) + "/adapter_model.safetensors");
  for (const files::TensorEntry& tensor : theirs.header().tensors) {
    if (tensor.name.find(".base_layer.") != std::string::npos) continue;
    EXPECT_EQ(doubles(saved, tensor.name), doubles(theirs, tensor.name)) << tensor.name;
  }
  for (const files::TensorEntry& tensor : saved.header().tensors) {
    EXPECT_NE(theirs.find(tensor.name), nullptr) << tensor.name;
  }
}

// The head of a base with tied weights is the table, which peft would copy.
TEST(PeftTies, ATiedTableThatIsTrainedWhole_IsRefused) {
  Context context({.num_threads = 1});
  const ContextScope scope(context);
  const hub::ModelConfigFile config = hub::read_model_config("tests/reference/gpt2");
  const std::unique_ptr<nn::Model> model = hub::make_model(config.config);
  hub::apply_tuning(*model, {.lora = hub::parse_lora("targets=c_attn,modules_to_save=wte")});
  try {
    hub::AdaptedWeights(*model, nullptr, hub::name_map(config.config), "");
    ADD_FAILURE() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("modules_to_save names transformer.wte.weight"),
              std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Peft,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(DType::f64, DType::f32, DType::bf16)),
                         [](const auto& info) {
                           return std::string(str(std::get<0>(info.param).name, "_",
                                                  name_of(std::get<1>(info.param))));
                         });

}  // namespace adapter_parity_test
}  // namespace zinc::train
