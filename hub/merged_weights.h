// hub/merged_weights.h: a base with its adapters added, piece by piece.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "hub/model_folder.h"
#include "nn/lora.h"
#include "nn/module.h"

namespace zinc::hub {

// The product that an adapter adds to its weight, in the weight's shape [rows, columns].
class LoraProduct {
 public:
  LoraProduct(const nn::LoraTerms& terms, const nn::WeightSource& values);
  // Adds elements [begin, begin + n) of the product to `sums`, elements of the weight.
  void add_to(int64_t begin, std::span<double> sums) const;

 private:
  int64_t rank_, columns_;
  std::vector<double> left_, right_;  // [rows, rank] with the scale in it, [rank, columns]
};

// DoRA's |W| or |W + s B A|: norms by row in the sense of y = x W^T, whichever way the weight is
// stored. Reads the weight piece by piece. Equal values give equal norms.
std::vector<double> row_norms(const nn::LoraTerms& terms, const nn::WeightSource& values,
                              bool with_adapter);

// Weights of the model without adapters: for each adapted layer its weight with the adapter added
// (nn::LoraTerms), for other parameters their own values. Reads the values of an adapted model: of
// its base, of its adapters, and of modules trained whole. Sums in f64, rounded as
// WeightFile::read() does. Takes memory for one adapter and one piece.
class MergedWeights : public nn::WeightSource {
 public:
  // `model`: with adapters; its parameters need no values. `model` and `values` must outlive this.
  MergedWeights(nn::Module& model, const nn::WeightSource& values);
  // For parameters that belong to no adapter.
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override;
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;

 private:
  struct Merged {
    const autograd::Parameter* of = nullptr;
    std::optional<LoraProduct> product;
    std::vector<double> factors;  // DoRA's, by row of the sum; empty: none
  };
  const Merged& merged_of(const nn::LoraTerms& terms) const;

  const nn::WeightSource& values_;
  std::map<const autograd::Parameter*, nn::LoraTerms> adapted_;  // by weight
  mutable Merged last_;  // neighbouring reads are of one weight
};

// Writes merged weights, in `dtype`, as a folder that transformers loads. `tied`: the head shares
// the embedding. Throws ConfigError if a shared embedding has an adapter: the head, which has none,
// would change with it.
void write_merged(const std::string& folder, const std::string& config_json, DType dtype, bool tied,
                  nn::Module& model, const nn::WeightSource& values,
                  const ModelFolderOptions& options);

struct MergeOptions {
  // Dtype of the weights: f32 or 16 bits; absent: the dtype in the base's config.
  std::optional<DType> dtype{};
  int64_t max_shard_bytes = files::kDefaultShardBytes;
};

// Writes the model of folder `base` with the adapter of folder `adapter` added, and the tokenizer
// of the adapter or else of the base, as a folder that transformers loads. `folder` must not exist.
// Works piece by piece. Throws a DataError if the adapter belongs to another base.
void merge_adapter(const std::string& base, const std::string& adapter, const std::string& folder,
                   const MergeOptions& options = {});

}  // namespace zinc::hub
