// train/merged_weights.h: a base with its adapters added, piece by piece.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "nn/lora.h"
#include "nn/module.h"
#include "train/hub/model_folder.h"

namespace zinc::train {

// W + s B A of each adapted weight and the values themselves of all others, as weights of the model
// without adapters. Reads from a source of an adapted model's values: its base's, its adapters' and
// those that were trained whole. Sums in f64, rounded as WeightFile::read() does. Takes memory for
// one adapter and one piece.
class MergedWeights : public nn::WeightSource {
 public:
  // `model`: adapted; its parameters need no values. Both outlive this.
  MergedWeights(nn::Module& model, const nn::WeightSource& values);
  // Of a parameter that is none of an adapter's.
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override;
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;

 private:
  // A product [rows, rank] x [rank, columns] of the weight's shape.
  struct Product {
    const autograd::Parameter* of = nullptr;
    int64_t rank = 0, columns = 0;
    std::vector<double> left, right;  // left has the adapter's scale in it
  };
  const Product& product_of(const autograd::Parameter& weight, nn::Linear& layer) const;

  const nn::WeightSource& values_;
  std::map<const autograd::Parameter*, nn::Linear*> adapted_;
  mutable Product last_;  // neighbouring reads are of one weight
};

// Writes them as a folder that transformers loads, of `dtype`.
void write_merged(const std::string& folder, const std::string& config_json, DType dtype,
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
