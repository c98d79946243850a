// hub/model.h: makes models from configurations, and reads their weights from Hugging Face
// folders. train/weights/save_model.h writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "files/safetensors/folder.h"
#include "hub/model_config.h"
#include "hub/weight_reader.h"
#include "nn/model.h"

namespace zinc::hub {

// Declares the model; no weights exist yet.
std::unique_ptr<nn::Model> make_model(const ModelConfig& config);
// The same, frozen and adapted as config.tuning says.
std::unique_ptr<nn::Model> make_model(const ModelConfigFile& config);

// A Hugging Face folder as the first values of a model.
class FolderWeights : public nn::WeightSource {
 public:
  // Opens the folder and compares it with the model. Throws a DataError that lists everything that
  // is missing, unexpected or of another shape.
  FolderWeights(const std::string& folder, nn::Model& model, const ModelConfig& config);
  // Initialises parameters that config.new_parameters names and the folder does not hold. If the
  // vocabulary has grown (config.stored_vocabulary), the rows of new tokens are the mean of the
  // stored rows, summed in f64.
  FolderWeights(const std::string& folder, nn::Model& model, const ModelConfigFile& config);
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override;
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;
  const std::vector<std::string>& initialised() const { return initialised_; }  // names

 private:
  bool is_initialised(const autograd::Parameter& parameter) const;
  std::vector<double> mean_row_of(const std::string& name, const Shape& stored) const;
  void read_grown(const autograd::Parameter& parameter, int64_t begin, View out) const;

  // A parameter with a row for each token.
  struct Grown {
    Shape stored;                // in the folder
    std::vector<double> mean{};  // mean of the rows
  };

  WeightReader reader_;
  std::vector<std::string> initialised_;
  std::map<std::string, Grown, std::less<>> grown_;
  nn::InitializerSource initial_;
};

struct SaveOptions {
  bool replace = false;  // an existing folder of that name
  int64_t max_shard_bytes = files::kDefaultShardBytes;
  bool allow_damaged = false;  // weights with NaN or infinities
  // A folder whose tokenizer files are copied; empty: none.
  std::string tokenizer_folder{};
};

}  // namespace zinc::hub
