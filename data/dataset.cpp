#include "data/dataset.h"

#include <utility>

#include "core/error.h"

namespace zinc::data {
namespace {

class FunctionDataset : public Dataset {
 public:
  FunctionDataset(int64_t num_samples, std::function<Sample(int64_t)> read, BatchFields fields)
      : num_samples_(num_samples), read_(std::move(read)), fields_(std::move(fields)) {}

  int64_t num_samples() const override { return num_samples_; }
  BatchFields fields() const override { return fields_; }
  void read(int64_t index, Sample& sample) const override { sample = read_(index); }
  std::string describe() const override { return str(num_samples_, " samples"); }

 private:
  int64_t num_samples_;
  std::function<Sample(int64_t)> read_;
  BatchFields fields_;
};

}  // namespace

std::string_view name_of(LabelsOf labels) {
  switch (labels) {
    case LabelsOf::tokens:
      return "tokens";
    case LabelsOf::row:
      return "row";
    case LabelsOf::masked:
      return "masked";
    case LabelsOf::text:
      return "text";
  }
  return "?";
}

std::unique_ptr<Dataset> make_dataset(int64_t num_samples,
                                      std::function<Sample(int64_t index)> read,
                                      BatchFields fields) {
  require(num_samples > 0, "make_dataset: ", num_samples, " samples");
  return std::make_unique<FunctionDataset>(num_samples, std::move(read), std::move(fields));
}

}  // namespace zinc::data
