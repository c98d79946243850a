// data/dataset.h: the data that a model is trained on, one sample at a time.
//
// make_dataset(), or an implementation of Dataset, serves any data. The loader orders the samples,
// collates them into batches of one shape, and gives every rank its share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::data {

// One row of a batch.
struct Sample {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  // targets, or nn::kIgnoredLabel: BatchFields::labels
  // The beginning of each token's document in this sequence; empty: one document.
  std::vector<int32_t> document_starts;
  // The values of each tensor of BatchFields::more, one per token.
  std::vector<std::vector<int32_t>> more;
};

// The unit that a sample's labels belong to. It decides the shape of "labels" in a batch.
enum class LabelsOf : uint8_t {
  tokens,  // one per token, such as the token that follows: [B, T]
  row,     // one per sample, such as its class: [B]
  text,    // tokens of another text, such as a summary, at most seq_len: [B, T of that text]
  // The token itself, if it may be hidden: [B, T]. A batch hides a random share of these tokens and
  // keeps the labels of the hidden ones only. See Masking.
  masked,
};
std::string_view name_of(LabelsOf labels);

// The choice of the tokens that a model has to guess, among those with a label, and their
// replacement (Devlin et al. 2019, "BERT", section 3.1): the mask for 80 %, a random token of the
// vocabulary for 10 %, the token itself for 10 %.
struct Masking {
  int32_t mask_token = -1;
  int64_t vocabulary_size = 0;
  double share = 0.15;  // of the tokens; each is drawn independently
};

// The tensors of a dataset's batches; the same in all batches.
struct BatchFields {
  bool lengths = false;          // for models whose attention is not causal
  bool document_starts = false;  // samples fill document_starts
  LabelsOf labels = LabelsOf::tokens;
  int32_t pad_token = 0;            // behind a row's end
  Masking masking{};                // for LabelsOf::masked
  std::vector<std::string> more{};  // further tensors [B, T] i32, padded with 0: "token_type_ids"
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t num_samples() const = 0;
  virtual BatchFields fields() const { return {}; }
  // Fills `sample`, which is empty, with sample `index`: the same for every call and on every rank.
  // Called from the loader's thread, perhaps beside calls from other threads. Throws DataError.
  virtual void read(int64_t index, Sample& sample) const = 0;
  // The number of tokens of sample `index`, if it is known without reading the sample; otherwise 0.
  // May be called beside other calls, as read().
  virtual int64_t length(int64_t index) const {
    static_cast<void>(index);
    return 0;
  }
  // One line for logs: the source of the data and the amount.
  virtual std::string describe() const = 0;
};

// Makes a data set of `num_samples` samples. `read(index)` gives sample `index` under the rules of
// Dataset::read().
std::unique_ptr<Dataset> make_dataset(int64_t num_samples,
                                      std::function<Sample(int64_t index)> read,
                                      BatchFields fields = {});

}  // namespace zinc::data
