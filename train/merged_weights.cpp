#include "train/merged_weights.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "core/error.h"
#include "core/parallel.h"
#include "nn/linear.h"
#include "train/adapter.h"
#include "train/files/convert.h"
#include "train/model.h"
#include "train/text/tokenizer_folder.h"

namespace zinc::train {
namespace {

std::vector<double> all_of(const nn::WeightSource& values, const autograd::Parameter& parameter) {
  std::vector<double> all(static_cast<size_t>(parameter.shape().numel()));
  values.read(parameter, 0, View(all.data(), DType::f64, Shape{parameter.shape().numel()}, kCpu));
  return all;
}

std::vector<double> turned(const std::vector<double>& matrix, int64_t rows, int64_t columns) {
  std::vector<double> result(matrix.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      result[static_cast<size_t>(j * rows + i)] = matrix[static_cast<size_t>(i * columns + j)];
    }
  }
  return result;
}

}  // namespace

MergedWeights::MergedWeights(nn::Module& model, const nn::WeightSource& values) : values_(values) {
  for (nn::Module* module : model.modules()) {
    auto* layer = dynamic_cast<nn::Linear*>(module);
    if (layer != nullptr && layer->adapter() != nullptr) adapted_[&layer->weight()] = layer;
  }
}

std::optional<Shape> MergedWeights::shape_of(const autograd::Parameter& parameter) const {
  return values_.shape_of(parameter);
}

const MergedWeights::Product& MergedWeights::product_of(const autograd::Parameter& weight,
                                                        nn::Linear& layer) const {
  if (last_.of == &weight) return last_;
  nn::LoraAdapter& adapter = *layer.adapter();
  const nn::LinearOptions& options = layer.options();
  const int64_t rank = adapter.down().options().out;
  std::vector<double> a = all_of(values_, adapter.down().weight());  // [rank, in]
  std::vector<double> b = all_of(values_, adapter.up().weight());    // [out, rank]
  for (double& value : b) value *= adapter.scale();
  last_ = {.of = &weight, .rank = rank};
  if (options.layout == autograd::WeightLayout::out_in) {
    last_.columns = options.in;
    last_.left = std::move(b);
    last_.right = std::move(a);
  } else {
    last_.columns = options.out;
    last_.left = turned(a, rank, options.in);
    last_.right = turned(b, options.out, rank);
  }
  return last_;
}

void MergedWeights::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  const auto found = adapted_.find(&parameter);
  if (found == adapted_.end()) return values_.read(parameter, begin, out);
  const Product& product = product_of(parameter, *found->second);
  const int64_t columns = product.columns, count = out.numel();
  std::vector<double> sums(static_cast<size_t>(count));
  values_.read(parameter, begin, View(sums.data(), DType::f64, Shape{count}, kCpu));
  const int64_t first_row = begin / columns, rows = (begin + count - 1) / columns - first_row + 1;
  const auto add_row = [&](int64_t row) {
    const int64_t from = std::max(begin, row * columns);
    const int64_t to = std::min(begin + count, (row + 1) * columns);
    double* sum = &sums[static_cast<size_t>(from - begin)];
    for (int64_t k = 0; k < product.rank; ++k) {
      const double left = product.left[static_cast<size_t>(row * product.rank + k)];
      const double* right = &product.right[static_cast<size_t>(k * columns + from % columns)];
      for (int64_t i = 0; i < to - from; ++i) sum[i] += left * right[i];
    }
  };
  constexpr int64_t kRowsAtOnce = 8;
  parallel_for(rows, kRowsAtOnce, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) add_row(first_row + row);
  });
  convert_elements(ConstView(sums.data(), DType::f64, Shape{count}, kCpu), out);
}

void write_merged(const std::string& folder, const std::string& config_json, DType dtype,
                  nn::Module& model, const nn::WeightSource& values,
                  const ModelFolderOptions& options) {
  const MergedWeights merged(model, values);
  std::vector<TensorSpec> specs;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (nn::is_lora_parameter(name)) continue;
    specs.push_back({.name = name, .dtype = dtype, .shape = parameter->shape()});
  }
  write_model_folder(folder, config_json, specs, options,
                     [&](std::string_view name, int64_t begin, View out) {
                       merged.read(model.parameter(name), begin, out);
                     });
}

void merge_adapter(const std::string& base, const std::string& adapter, const std::string& folder,
                   const MergeOptions& options) {
  const ModelConfigFile config = read_model_config(base);
  const NameMap names = name_map(config.config);
  const std::unique_ptr<nn::Model> model = make_model(config.config);
  const FolderWeights base_weights(base, *model, config.config);
  apply_tuning(*model, tuning_of_adapter(adapter));
  const AdaptedWeights values(*model, &base_weights, names, adapter);
  const DType dtype = options.dtype.value_or(dtype_of_config(config.original));
  write_merged(folder, model_config_json(config.config, dtype, config.original), dtype, *model,
               values,
               {.max_shard_bytes = options.max_shard_bytes,
                .tokenizer_folder = has_tokenizer(adapter) ? adapter : base,
                .names = names});
}

}  // namespace zinc::train
