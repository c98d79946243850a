// train/data/dataset.h: what a model is trained on, one sample at a time.
//
// Implement Dataset for any data: the loader orders the samples, collates them into batches of one
// shape, and keeps every rank's share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zinc::train {

// One sequence. labels[i] is the target at position i (the token that follows, for language
// modelling) or nn::kIgnoredLabel; as many as tokens.
struct Sample {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;
  // Where the document of each token begins in this sequence; empty: one document.
  std::vector<int32_t> document_starts;

  void clear() {
    tokens.clear();
    labels.clear();
    document_starts.clear();
  }
};

// Which optional tensors the batches of a dataset carry; fixed, so that all batches look alike.
struct BatchFields {
  bool lengths = false;          // for models whose attention is not causal
  bool document_starts = false;  // samples fill document_starts
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t num_samples() const = 0;
  virtual BatchFields fields() const { return {}; }
  // Fills `sample` (empty when called; its capacity is reused) with sample `index`, the same for
  // every call and on every rank. Called from the loader's thread: must be safe beside calls from
  // other threads. Throws DataError.
  virtual void read(int64_t index, Sample& sample) const = 0;
  // Tokens of sample `index`, where they are known without reading it; 0 where they are not. As
  // read(), safe beside other calls.
  virtual int64_t length(int64_t index) const {
    static_cast<void>(index);
    return 0;
  }
  // One line for logs: where the data comes from and how much there is.
  virtual std::string describe() const = 0;
};

}  // namespace zinc::train
