#include "hub/merged_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>

#include "core/convert.h"
#include "core/error.h"
#include "core/parallel.h"
#include "hub/adapter.h"
#include "hub/model.h"
#include "text/tokenizer_folder.h"

namespace zinc::hub {
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

LoraProduct::LoraProduct(const nn::LoraTerms& terms, const nn::WeightSource& values)
    : rank_(terms.a->shape()[0]), columns_(terms.weight->shape()[1]) {
  std::vector<double> a = all_of(values, *terms.a);  // [rank, in]
  std::vector<double> b = all_of(values, *terms.b);  // [out, rank]
  if (terms.transposed) {
    left_ = turned(a, rank_, terms.a->shape()[1]);
    right_ = turned(b, terms.b->shape()[0], rank_);
  } else {
    left_ = std::move(b);
    right_ = std::move(a);
  }
  for (double& value : left_) value *= terms.scale;
}

void LoraProduct::add_to(int64_t begin, std::span<double> sums) const {
  const auto count = static_cast<int64_t>(sums.size());
  if (count == 0) return;
  const int64_t first = begin / columns_, rows = (begin + count - 1) / columns_ - first + 1;
  const auto add_row = [&](int64_t row) {
    const int64_t from = std::max(begin, row * columns_);
    const int64_t to = std::min(begin + count, (row + 1) * columns_);
    double* sum = &sums[static_cast<size_t>(from - begin)];
    for (int64_t k = 0; k < rank_; ++k) {
      const double left = left_[static_cast<size_t>(row * rank_ + k)];
      const double* right = &right_[static_cast<size_t>(k * columns_ + from % columns_)];
      for (int64_t i = 0; i < to - from; ++i) sum[i] += left * right[i];
    }
  };
  constexpr int64_t kRowsAtOnce = 8;
  parallel_for(rows, kRowsAtOnce, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) add_row(first + row);
  });
}

std::vector<double> row_norms(const nn::LoraTerms& terms, const nn::WeightSource& values,
                              bool with_adapter) {
  constexpr int64_t kPiece = int64_t{1} << 20;  // elements
  const int64_t numel = terms.weight->numel(), columns = terms.weight->shape()[1];
  std::optional<LoraProduct> product;
  if (with_adapter) product.emplace(terms, values);
  std::vector<double> norms(static_cast<size_t>(terms.magnitude->numel()));
  std::vector<double> piece;
  for (int64_t begin = 0; begin < numel; begin += kPiece) {
    const int64_t count = std::min(kPiece, numel - begin);
    piece.resize(static_cast<size_t>(count));
    values.read(*terms.weight, begin, View(piece.data(), DType::f64, Shape{count}, kCpu));
    if (product) product->add_to(begin, piece);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = terms.transposed ? (begin + i) % columns : (begin + i) / columns;
      const double value = piece[static_cast<size_t>(i)];
      norms[static_cast<size_t>(row)] += value * value;
    }
  }
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

MergedWeights::MergedWeights(nn::Module& model, const nn::WeightSource& values) : values_(values) {
  for (const nn::LoraTerms& terms : nn::lora_terms(model)) adapted_.emplace(terms.weight, terms);
}

std::optional<Shape> MergedWeights::shape_of(const autograd::Parameter& parameter) const {
  return values_.shape_of(parameter);
}

const MergedWeights::Merged& MergedWeights::merged_of(const nn::LoraTerms& terms) const {
  if (last_.of == terms.weight) return last_;
  last_ = {.of = terms.weight, .product = LoraProduct(terms, values_), .factors = {}};
  if (terms.magnitude == nullptr) return last_;
  last_.factors = all_of(values_, *terms.magnitude);
  const std::vector<double> norms = row_norms(terms, values_, /*with_adapter=*/true);
  for (size_t row = 0; row < norms.size(); ++row) last_.factors[row] /= norms[row];
  return last_;
}

void MergedWeights::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  const auto found = adapted_.find(&parameter);
  if (found == adapted_.end()) return values_.read(parameter, begin, out);
  const nn::LoraTerms& terms = found->second;
  const Merged& merged = merged_of(terms);
  const int64_t count = out.numel(), columns = parameter.shape()[1];
  std::vector<double> sums(static_cast<size_t>(count));
  values_.read(parameter, begin, View(sums.data(), DType::f64, Shape{count}, kCpu));
  merged.product->add_to(begin, sums);
  if (!merged.factors.empty()) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = terms.transposed ? (begin + i) % columns : (begin + i) / columns;
      sums[static_cast<size_t>(i)] *= merged.factors[static_cast<size_t>(row)];
    }
  }
  // The largest number of the written dtype: 65504 for f16.
  const double largest = out.dtype() == DType::f16 ? 65504.0 : std::numeric_limits<float>::max();
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(sums[static_cast<size_t>(i)]) <= largest) continue;
    throw NumericsError(str("merged ", parameter.name(), "[", begin + i, "] is ",
                            sums[static_cast<size_t>(i)], ", which is no number that ", out.dtype(),
                            " has; nothing was written"));
  }
  convert_elements(ConstView(sums.data(), DType::f64, Shape{count}, kCpu), out);
}

void write_merged(const std::string& folder, const std::string& config_json, DType dtype, bool tied,
                  nn::Module& model, const nn::WeightSource& values,
                  const ModelFolderOptions& options) {
  for (const nn::LoraTerms& terms : nn::lora_terms(model)) {
    if (!tied || !terms.is_embedding) continue;
    throw ConfigError(str(terms.weight->name(),
                          " has an adapter and is the head's weight, too, which has none: "
                          "merging would change the head; use base and adapter as they are"));
  }
  const MergedWeights merged(model, values);
  std::vector<files::TensorSpec> specs;
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
  write_merged(folder, model_config_json(config.config, dtype, config.original), dtype,
               ties_word_embeddings(config.config), *model, values,
               {.max_shard_bytes = options.max_shard_bytes,
                .tokenizer_folder = text::has_tokenizer(adapter) ? adapter : base,
                .names = names});
}

}  // namespace zinc::hub
