// train/merged_weights.h: a base with its adapters added, piece by piece.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "nn/lora.h"
#include "nn/module.h"
#include "train/hub/model_folder.h"

namespace zinc::train {

// What an adapter adds to its weight, of the weight's shape [rows, columns].
class LoraProduct {
 public:
  LoraProduct(const nn::LoraTerms& terms, const nn::WeightSource& values);
  // sums: elements [begin, begin + n) of the weight; the product's are added.
  void add_to(int64_t begin, std::span<double> sums) const;

 private:
  int64_t rank_, columns_;
  std::vector<double> left_, right_;  // [rows, rank] with the scale in it, [rank, columns]
};

// |W| or |W + s B A| of DoRA: by row of the sum as y = x W^T has it, whatever way the weight lies.
// Reads the weight piece by piece. Equal for equal values.
std::vector<double> row_norms(const nn::LoraTerms& terms, const nn::WeightSource& values,
                              bool with_adapter);

// The weight of each adapted layer with its adapter added (nn::LoraTerms), and the values
// themselves of all others, as weights of the model without adapters. Reads from a source of an
// adapted model's values: its base's, its adapters' and those that were trained whole. Sums in f64,
// rounded as WeightFile::read() does. Takes memory for one adapter and one piece.
class MergedWeights : public nn::WeightSource {
 public:
  // `model`: adapted; its parameters need no values. Both outlive this.
  MergedWeights(nn::Module& model, const nn::WeightSource& values);
  // Of a parameter that is none of an adapter's.
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
  std::map<const autograd::Parameter*, nn::LoraTerms> adapted_;  // by their weights
  mutable Merged last_;  // neighbouring reads are of one weight
};

// Writes them as a folder that transformers loads, of `dtype`. `tied`: whether the head shares the
// embedding. ConfigError where a shared embedding has an adapter: the head, which has none, would
// change with it.
void write_merged(const std::string& folder, const std::string& config_json, DType dtype, bool tied,
                  nn::Module& model, const nn::WeightSource& values,
                  const ModelFolderOptions& options);

struct MergeOptions {
  std::optional<DType>
      dtype{};  // of the weights: f32 or 16 bits; absent: that of the base's config
  int64_t max_shard_bytes = kDefaultShardBytes;
};

// Writes the model of folder `base` with the adapter of folder `adapter` added, and the tokenizer
// of the adapter, or else of the base, as a folder that transformers loads. `folder` must not
// exist. Piece by piece. DataError where the adapter is one of another base.
void merge_adapter(const std::string& base, const std::string& adapter, const std::string& folder,
                   const MergeOptions& options = {});

}  // namespace zinc::train
