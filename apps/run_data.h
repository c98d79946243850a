// apps/run_data.h: the data for training and evaluation of a run: windows of a stream of tokens, or
// the examples that files of records hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/run_examples.h"
#include "apps/run_tokenizer.h"
#include "data/dataset.h"

namespace CLI {
class App;
}

namespace zinc::apps {

struct RunDataArguments {
  std::vector<std::string> data;        // --data
  std::vector<std::string> validation;  // --validation: FILE, or NAME=FILE
  double validation_fraction = 0.05;    // of the data, if there is no --validation
  bool evaluates = false;               // all of --data is validation(); there is no training()
  std::string cache;                    // of examples; empty: beside the data
  bool pack = false;
  bool pad_to_longest = false;
  bool group_by_length = false;
  ExampleArguments examples;
};

void add_run_data_options(CLI::App& verb, RunDataArguments& arguments);

// The files of a validation set. Files of one name form one set.
struct ValidationFiles {
  std::string name;  // empty: the only set
  std::vector<std::string> files;
};
// The sets of --validation; none: a part of the data. ConfigError if some files have names and
// others do not.
std::vector<ValidationFiles> validation_files(const RunDataArguments& arguments);
// Names of the sets: one empty name if they have none, or for a part of the data.
std::vector<std::string> validation_names(const RunDataArguments& arguments);

// Called in the order of the declarations. Errors are DataErrors with file and place, ConfigErrors
// with the option.
class RunData {
 public:
  virtual ~RunData() = default;

  // Tokens that the data can have, where they are made of text; 0 where the files do not say.
  virtual int64_t vocabulary_size() const = 0;
  // Adapts the data to the model, and to the longest sample. ConfigError if the model does not
  // learn such data.
  virtual void fit(const hub::ModelConfigFile& model, int64_t seq) = 0;
  // Fields of training(), which need not be open yet.
  virtual data::BatchFields fields() const = 0;
  // A hash that is equal on ranks with the same data.
  virtual uint64_t hash() const = 0;
  // Work that one process of a host does for all its ranks; `say` gets text for a live line. `stop`
  // ends the work.
  virtual void prepare(const std::atomic<bool>& stop,
                       const std::function<void(const std::string&)>& say) = 0;
  virtual void open() = 0;
  virtual const data::Dataset& training() const = 0;
  // In the order of validation_names().
  virtual const std::vector<std::unique_ptr<data::Dataset>>& validation() const = 0;
  // True if samples differ in length, so that batches may be shorter than the longest sample.
  virtual bool has_lengths() const = 0;
  // Batches may hold fewer samples than they have rows for: a set that is smaller than a batch
  // does.
  virtual bool fills_rows() const = 0;
  // A sample in words: "windows of 256 tokens".
  virtual std::string samples_are() const = 0;
  // Lines for the head of a run.
  virtual std::vector<std::string> notes() const = 0;
};

// Chooses the kind of data by the names of the files: .jsonl, .json, .csv and .tsv hold records; so
// do all files if an option was given that only examples have. `arguments` must outlive the result.
std::unique_ptr<RunData> find_run_data(const RunDataArguments& arguments,
                                       const RunTokenizer& tokenizer);

}  // namespace zinc::apps
