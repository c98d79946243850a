// train/data/loader.h: which rank trains on which samples, and when.
//
// Note [Order of samples]
// The order is a property of the run, not of its ranks. Sample p of the run (p = 0, 1, ...) is
// sample perm_e(p mod n) of the dataset, where n is its number of samples, e = p / n the epoch and
// perm_e a permutation keyed by (seed, epoch): without replacement within an epoch, and a new order
// in each. Micro-batch g takes the samples g B ... g B + B - 1. Rank r of W trains in its m-th
// micro-batch on g = m W + r; with A micro-batches per step that is step A W + micro_step W + r.
// So the ranks of any world together see the same micro-batches in the same steps as long as A W
// and B are the same, every rank computes its samples without a word from the others, and the
// state of a loader is one number.
//
// Note [Batches of like lengths]
// With like_lengths the samples of each window of kLengthWindow micro-batches of that order are
// sorted by length and cut into micro-batches, which then stand in an order keyed by (seed,
// window). So samples of a micro-batch are nearly as long as each other and little is padding, the
// micro-batches of a step are of mixed lengths, and all above stays true; a run that goes on with
// another B inside a window repeats some samples of that window and leaves out others.
//
// Note [Hidden tokens]
// Where a model has to guess tokens (LabelsOf::masked), which are hidden is drawn anew whenever a
// sample comes, keyed by (seed, g, row of the micro-batch): equal in every world as the order is.
// In an evaluation it is keyed by the sample alone: each evaluation hides the same ones.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "nn/batch.h"
#include "train/data/dataset.h"

namespace zinc::train {

inline constexpr int64_t kLengthWindow = 64;  // micro-batches

struct LoaderOptions {
  int64_t micro_batch = 1;    // B: sequences per rank and micro-batch
  int64_t seq_len = 0;        // T, or with pad_multiple the most that it may be
  int64_t pad_multiple = 0;   // T of each batch: BatchShape
  bool like_lengths = false;  // see Note [Batches of like lengths]
  // Samples of the run; 0: without end. What is left over at the end are batches with empty rows.
  int64_t end = 0;
  uint64_t seed = 0;
  bool shuffle = true;  // false: the dataset's own order in every epoch
  int rank = 0;
  int world = 1;
  // Batches that a thread reads ahead; 0: next() reads. The order is the same.
  int prefetch_batches = 2;
};

// Where a run stands in its data. Valid for any world: a run that goes on with other ranks or
// another micro-batch goes on with the next sample.
struct LoaderState {
  uint64_t seed = 0;
  int64_t samples = 0;  // taken by all ranks together
};

// Samples of micro-batch `global_micro_batch` as dataset indices, fewer than B at options.end; see
// Note [Order of samples]. options.like_lengths is not looked at.
std::vector<int64_t> micro_batch_samples(int64_t num_samples, const LoaderOptions& options,
                                         int64_t global_micro_batch);
// The same with it: Note [Batches of like lengths].
std::vector<int64_t> micro_batch_samples(const Dataset& dataset, const LoaderOptions& options,
                                         int64_t global_micro_batch);

class Loader {
 public:
  // `dataset` must outlive the loader. DataError where the dataset has fewer samples than one
  // micro-batch of every rank together needs, unless options.end says how many there will be.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // This rank's next micro-batch, as tensors on the current context's device. Never ends: epochs
  // follow each other, and behind options.end batches without a target. Throws what the dataset
  // throws, and again at every later call.
  nn::Batch next();

  // example_batch() of what next() gives.
  nn::Batch example() const;
  const LoaderOptions& options() const { return options_; }

  double epoch() const;  // how often the dataset was seen, 0 at the start
  int64_t samples_per_epoch() const { return dataset_->num_samples(); }
  LoaderState state() const;
  // Goes to `state`: the same seed, and samples a multiple of world x micro-batch
  // (InvalidArgument).
  void restore(const LoaderState& state);

  // for (const nn::Batch& batch : loader): calls next() for ever.
  class Iterator {
   public:
    using value_type = nn::Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(Loader& loader) : loader_(&loader), batch_(loader.next()) {}
    const nn::Batch& operator*() const { return batch_; }
    Iterator& operator++() {
      batch_ = loader_->next();
      return *this;
    }
    friend bool operator==(const Iterator&, std::default_sentinel_t) { return false; }

   private:
    Loader* loader_;
    nn::Batch batch_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  class Reader;
  void start_reader();

  const Dataset* dataset_;
  LoaderOptions options_;
  int64_t next_micro_batch_ = 0;  // of this rank: m
  std::unique_ptr<Reader> reader_;
};

// Samples of `epochs` passes over a dataset, which may be a fraction; at least one.
int64_t samples_of_epochs(double epochs, int64_t num_samples);
// Steps of `global_batch` samples in which they are taken. Epochs follow each other without a gap;
// the last step goes on into the next one, or is short with LoaderOptions::end.
int64_t steps_of_epochs(double epochs, int64_t num_samples, int64_t global_batch);

struct EvaluationOptions {
  int64_t batch = 1;         // B
  int64_t seq_len = 0;       // T, or with pad_multiple the most that it may be
  int64_t pad_multiple = 0;  // T of each batch: BatchShape
  int64_t max_samples = 0;   // 0: all; else so many, evenly spread over the dataset
  int rank = 0;
  int world = 1;
};

// A fixed list of batches, the same in every world: batch j has the same samples whoever computes
// it. Rank r takes batches r, r + W, ... in num_rounds() rounds; every rank has as many rounds, the
// surplus ones are batches without a target. A world-independent mean adds the batches' loss sums
// in the order of batch_index and divides by the sum of their targets.
class EvaluationSet {
 public:
  EvaluationSet(const Dataset& dataset, const EvaluationOptions& options);

  int64_t num_samples() const { return num_samples_; }
  int64_t num_batches() const;
  int64_t num_rounds() const;
  int64_t batch_index(int64_t round) const { return round * options_.world + options_.rank; }
  nn::Batch batch(int64_t round) const;

 private:
  const Dataset* dataset_;
  EvaluationOptions options_;
  int64_t num_samples_;
};

}  // namespace zinc::train
