#include "data/examples/example_data.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/philox.h"
#include "files/atomic_file.h"

namespace zinc::data {

ExampleData::ExampleData(std::vector<std::shared_ptr<const ExampleFile>> files, BatchFields fields)
    : files_(std::move(files)), fields_(std::move(fields)), first_{0} {
  require(!files_.empty(), "example data: there are no files");
  for (const auto& file : files_) first_.push_back(first_.back() + file->num_examples());
  end_ = first_.back();
}

std::pair<ExampleData, ExampleData> ExampleData::split(double fraction) const {
  require(fraction > 0.0 && fraction < 1.0, "example data: the fraction must lie in (0, 1), not ",
          fraction);
  require(order_ == nullptr, "example data: is split already");
  const int64_t all = num_samples();
  if (all < 2) {
    throw DataError(str(describe(),
                        ": too few examples to keep some for validation; give a "
                        "file by --validation"));
  }
  const int64_t part =
      std::clamp<int64_t>(std::llround(fraction * static_cast<double>(all)), 1, all - 1);
  std::pair<ExampleData, ExampleData> both{*this, *this};
  const auto order =
      std::make_shared<const Permutation>(all, make_random_key(0, Purpose::data_order, 0, 0, 1));
  both.first.order_ = both.second.order_ = order;
  both.first.begin_ = both.second.end_ = part;
  return both;
}

std::pair<const ExampleFile*, int64_t> ExampleData::place(int64_t index) const {
  require(0 <= index && index < num_samples(), "example data: sample ", index, " of ",
          num_samples());
  const int64_t example = order_ == nullptr ? begin_ + index : (*order_)[begin_ + index];
  const auto after = std::upper_bound(first_.begin(), first_.end(), example);
  const auto file = static_cast<size_t>(after - first_.begin()) - 1;
  return {files_[file].get(), example - first_[file]};
}

int64_t ExampleData::length(int64_t index) const {
  const auto [file, example] = place(index);
  switch (fields_.labels) {
    case LabelsOf::tokens:
      return file->length(example) - 1;
    case LabelsOf::masked:
      return file->length(example);
    case LabelsOf::row:
    case LabelsOf::text:
      break;
  }
  return file->length_apart(example);
}

void ExampleData::read(int64_t index, Sample& sample) const {
  const auto [file, example] = place(index);
  switch (fields_.labels) {
    case LabelsOf::tokens:
      return file->append_to(example, sample);
    case LabelsOf::masked:
      return file->append_whole_to(example, sample);
    case LabelsOf::row:
    case LabelsOf::text:
      return file->append_apart_to(example, sample);
  }
}

std::string ExampleData::describe() const {
  const std::string name =
      files_.size() == 1 ? files::file_name(files_.front()->path()) : str(files_.size(), " files");
  return str(name, ", ", num_samples(), " examples");
}

PackedExamples::PackedExamples(ExampleData examples, int64_t room)
    : examples_(std::move(examples)), room_(room), first_{0} {
  require(examples_.fields().labels == LabelsOf::tokens,
          "packed examples: a text that is read whole needs a row of its own");
  int64_t used = 0;
  for (int64_t i = 0; i < examples_.num_samples(); ++i) {
    const int64_t length = examples_.length(i);
    require(length <= room, "packed examples: example ", i, " has ", length,
            " tokens, a row has room for ", room);
    if (used + length > room) {
      first_.push_back(i);
      used = 0;
    }
    used += length;
  }
  first_.push_back(examples_.num_samples());
}

int64_t PackedExamples::length(int64_t index) const {
  int64_t length = 0;
  for (int64_t i = first_[static_cast<size_t>(index)]; i < first_[static_cast<size_t>(index) + 1];
       ++i) {
    length += examples_.length(i);
  }
  return length;
}

void PackedExamples::read(int64_t index, Sample& sample) const {
  require(0 <= index && index < num_samples(), "packed examples: sample ", index, " of ",
          num_samples());
  for (int64_t i = first_[static_cast<size_t>(index)]; i < first_[static_cast<size_t>(index) + 1];
       ++i) {
    const auto start = static_cast<int32_t>(sample.tokens.size());
    examples_.read(i, sample);
    sample.document_starts.resize(sample.tokens.size(), start);
  }
}

std::string PackedExamples::describe() const {
  return str(examples_.describe(), " in ", num_samples(), " rows of ", room_, " tokens");
}

}  // namespace zinc::data
