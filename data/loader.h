// data/loader.h: decides which rank trains on which samples, and when.
//
// Note [Order of samples]
// The order belongs to the run, not to its ranks. With n samples in the dataset:
// - Sample p of the run (p = 0, 1, ...) is sample perm_e(p mod n) of the dataset. e = p / n is the
//   epoch. perm_e is a permutation keyed by (seed, epoch): every sample once per epoch, in a new
//   order each time. The last third of an epoch and the first third of the next have no sample in
//   common (of each at most kMostApart samples), so no batch up to that size holds a sample twice.
// - Micro-batch g takes the samples g B ... g B + B - 1. A run that continues with another world
//   counts them from its first sample.
// - Rank r of W trains in its m-th micro-batch on g = m W + r. With A micro-batches per step, g =
//   step A W + micro_step W + r.
//
// So the ranks of any world see together the same micro-batches in the same steps, as long as A W
// and B are the same. Every rank finds its samples without a message. The state of a loader is one
// number.
//
// Note [Groups of like lengths]
// With group_by_length, each kLengthGroup micro-batches that lie whole in one epoch are a group.
// The samples of a group are sorted by length and cut into micro-batches. These then stand in an
// order keyed by (seed, epoch, group). The samples of a micro-batch have nearly equal lengths, so
// there is little padding. The micro-batches of a step have mixed lengths. A micro-batch that
// reaches into the next epoch belongs to no group. All statements above stay true. But a run that
// continues with another B inside a group repeats some samples of that group and leaves out others.
//
// Note [Hidden tokens]
// If a model has to guess tokens (LabelsOf::masked), the hidden tokens are drawn anew every time a
// sample comes. The key is (seed, g, row of the micro-batch), so every world hides the same tokens.
// In an evaluation the key is the sample alone: each evaluation hides the same tokens.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "nn/batch.h"

namespace zinc::data {

inline constexpr int64_t kLengthGroup = 64;  // micro-batches
inline constexpr int64_t kMostApart = 1024;  // samples

struct LoaderOptions {
  int64_t micro_batch = 1;       // B: sequences per rank and micro-batch
  int64_t seq_len = 0;           // T; with pad_multiple the largest T
  int64_t pad_multiple = 0;      // T of each batch: BatchShape
  bool group_by_length = false;  // see Note [Groups of like lengths]
  // Samples of the run; 0: no end. Behind the end, batches are filled with empty rows.
  int64_t end = 0;
  uint64_t seed = 0;
  bool shuffle = true;  // false: the dataset's own order in every epoch
  int rank = 0;
  int world = 1;
  // Batches that a thread reads ahead; 0: next() reads. The order is the same either way.
  int prefetch_batches = 2;
};

// The position of a run in its data. Valid for any world: a run that continues with other ranks, or
// another micro-batch, takes the next sample.
struct LoaderState {
  uint64_t seed = 0;
  int64_t samples = 0;  // taken by all ranks together, without empty rows behind options.end
};

// The micro-batch that begins with sample `first` of the run, as dataset indices; at options.end
// fewer than B. See Note [Order of samples] and Note [Groups of like lengths].
std::vector<int64_t> micro_batch_samples(const Dataset& dataset, const LoaderOptions& options,
                                         int64_t first);

class Loader {
 public:
  // `dataset` must outlive the loader. Throws a DataError if the dataset has fewer samples than one
  // micro-batch of all ranks together, unless options.end gives the number of samples.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // This rank's next micro-batch, as tensors on the current context's device. Never ends: epochs
  // follow each other, and behind options.end come batches without a target. Throws what the
  // dataset throws, and again at every later call.
  nn::Batch next();

  // example_batch() for the batches of next().
  nn::Batch example() const;
  const LoaderOptions& options() const { return options_; }

  double epoch() const;  // how often the dataset was seen, 0 at the start
  int64_t samples_per_epoch() const { return dataset_->num_samples(); }
  LoaderState state() const;
  // Goes to `state`, which may come from another world or micro-batch size: micro-batches are
  // counted from the state's next sample on. Throws InvalidArgument if the state has another seed.
  void restore(const LoaderState& state);
  // Sets options().end. Call before the first next() or restore().
  void set_end(int64_t samples);

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
  int64_t begin_ = 0;             // samples of the run before micro-batch 0
  int64_t next_micro_batch_ = 0;  // number m of this rank's next micro-batch
  std::unique_ptr<Reader> reader_;
};

// The number of samples of `epochs` passes over a dataset; `epochs` may be a fraction. At least
// one.
int64_t samples_of_epochs(double epochs, int64_t num_samples);
// The number of steps of `global_batch` samples that take these samples. Epochs follow each other
// without a gap. The last step reaches into the next epoch, or is short with LoaderOptions::end.
int64_t steps_of_epochs(double epochs, int64_t num_samples, int64_t global_batch);

// The length of a run: its optimizer steps, including those before it was continued, and
// LoaderOptions::end.
struct RunLength {
  int64_t steps = 0;
  int64_t end = 0;
};
// The length of a run that has done `steps_so_far` steps with `samples_so_far` samples, perhaps
// with another global batch, and continues with this one. Equals steps_of_epochs() for a new run.
RunLength length_of_epochs(double epochs, int64_t num_samples, int64_t global_batch,
                           int64_t steps_so_far, int64_t samples_so_far);
RunLength length_of_steps(int64_t steps, int64_t global_batch, int64_t steps_so_far,
                          int64_t samples_so_far);

struct EvaluationOptions {
  int64_t batch = 1;         // B
  int64_t seq_len = 0;       // T, or with pad_multiple the most that it may be
  int64_t pad_multiple = 0;  // T of each batch: BatchShape
  int64_t max_samples = 0;   // 0: all; else so many, evenly spread over the dataset
  int rank = 0;
  int world = 1;
};

// A fixed list of batches, the same in every world: batch j has the same samples whichever rank
// computes it. Rank r takes batches r, r + W, ... in num_rounds() rounds. Every rank has
// num_rounds() rounds; surplus rounds are batches without a target. For a mean that does not depend
// on the world, add the batches' loss sums in the order of batch_index and divide by the sum of
// their targets.
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

}  // namespace zinc::data
