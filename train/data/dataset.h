// train/data/dataset.h: what a model is trained on, one sample at a time.
//
// make_dataset(), or an implementation of Dataset, for any data: the loader orders the samples,
// collates them into batches of one shape, and keeps every rank's share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::train {

// One row of a batch.
struct Sample {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // targets, or nn::kIgnoredLabel: BatchFields::labels
  // Where the document of each token begins in this sequence; empty: one document.
  std::vector<int32_t> document_starts;
  // Of each of BatchFields::more, as many as tokens.
  std::vector<std::vector<int32_t>> more;
};

// What a sample's labels stand for, and so the shape of "labels" in a batch.
enum class LabelsOf : uint8_t {
  tokens,  // one for each token, as the token that follows it: [B, T]
  row,     // one for the sample, as its class: [B]
  text,    // tokens of a text of their own, as a summary, not more than seq_len: [B, T of theirs]
  // The token itself where it may be hidden: [B, T]. Of those a batch hides a drawn share and keeps
  // the labels of these alone: Masking.
  masked,
};
std::string_view name_of(LabelsOf labels);

// Which of the tokens that have a label a model has to guess, and what stands in their place
// (Devlin et al. 2019, "BERT", section 3.1): eight in ten are the mask, one in ten is any token of
// the vocabulary, one in ten stays.
struct Masking {
  int32_t mask_token = -1;
  int64_t vocabulary_size = 0;
  double share = 0.15;  // of the tokens, each drawn by itself
};

// What the batches of a dataset carry; fixed, so that all batches look alike.
struct BatchFields {
  bool lengths = false;          // for models whose attention is not causal
  bool document_starts = false;  // samples fill document_starts
  LabelsOf labels = LabelsOf::tokens;
  int32_t pad_token = 0;            // behind a row's end
  Masking masking{};                // of LabelsOf::masked
  std::vector<std::string> more{};  // further tensors [B, T] i32, padded with 0: "token_type_ids"
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t num_samples() const = 0;
  virtual BatchFields fields() const { return {}; }
  // Fills `sample` (empty when called) with sample `index`, the same for
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

// A data set of `num_samples` that `read` makes: read(index) gives sample `index`, as
// Dataset::read() says.
std::unique_ptr<Dataset> make_dataset(int64_t num_samples,
                                      std::function<Sample(int64_t index)> read,
                                      BatchFields fields = {});

}  // namespace zinc::train
