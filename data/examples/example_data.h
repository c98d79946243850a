// data/examples/example_data.h: examples as datasets: all of them, a part, or packed into rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/examples/example_file.h"
#include "data/permutation.h"

namespace zinc::data {

// A sample is an example without its last token, which is only a target; or an example's text, with
// the answer or class as labels; or a whole text whose tokens are to be guessed. A cheap value; the
// files are shared.
class ExampleData final : public Dataset {
 public:
  // All examples of the files in a row; at least one file. fields.labels is that of the settings
  // that they were made with.
  explicit ExampleData(std::vector<std::shared_ptr<const ExampleFile>> files,
                       BatchFields fields = {});

  // {the rest, round(fraction * num_samples()) of the examples, at least one}. The choice depends
  // on the number of examples alone, so it is the same in every run. 0 < fraction < 1. DataError
  // where there are fewer than two examples.
  std::pair<ExampleData, ExampleData> split(double fraction) const;

  int64_t num_samples() const override { return end_ - begin_; }
  BatchFields fields() const override { return fields_; }
  int64_t length(int64_t index) const override;
  void read(int64_t index, Sample& sample) const override;
  std::string describe() const override;

 private:
  // The file and index of a sample.
  std::pair<const ExampleFile*, int64_t> place(int64_t index) const;

  std::vector<std::shared_ptr<const ExampleFile>> files_;
  BatchFields fields_;
  std::vector<int64_t> first_;                // example of each file, then the number of all
  std::shared_ptr<const Permutation> order_;  // null: in the files' order
  int64_t begin_ = 0, end_ = 0;               // range in the order
};

// Several neighbouring examples in a sample, as many as there is room for. Each is a separate
// document: attention does not cross its borders. Positions go on along the row. A model that sees
// only distances inside a document (rotary positions) computes each example as if it were alone.
class PackedExamples final : public Dataset {
 public:
  // InvalidArgument where an example is longer than `room`, or is read whole.
  PackedExamples(ExampleData examples, int64_t room);

  int64_t num_samples() const override { return static_cast<int64_t>(first_.size()) - 1; }
  BatchFields fields() const override { return {.document_starts = true}; }
  int64_t length(int64_t index) const override;
  void read(int64_t index, Sample& sample) const override;
  std::string describe() const override;

 private:
  ExampleData examples_;
  int64_t room_;
  std::vector<int64_t> first_;  // example of each sample, then the number of all
};

}  // namespace zinc::data
