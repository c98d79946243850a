#include "data/loader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/philox.h"
#include "data/collate.h"
#include "data/permutation.h"

namespace zinc::data {
namespace {

constexpr uint64_t kGroupsSite = 2;  // 0: the order of samples; 1: the split of ExampleData
constexpr uint64_t kTrainingSite = 0, kEvaluationSite = 1;  // for Purpose::masking

// The samples of one epoch in their order: Note [Order of samples].
class EpochOrder {
 public:
  EpochOrder(int64_t num_samples, const LoaderOptions& options, int64_t epoch)
      : options_(options),
        num_samples_(num_samples),
        epoch_(epoch),
        apart_(epoch > 0 && options.shuffle ? std::min(num_samples / 3, kMostApart) : 0),
        order_(permutation(epoch)) {}

  int64_t operator[](int64_t place) {
    if (!options_.shuffle) return place;
    if (place >= 2 * apart_) return order_[place];
    if (first_.empty()) arrange_first();
    return first_[static_cast<size_t>(place)];
  }

 private:
  Permutation permutation(int64_t epoch) const {
    return {num_samples_, make_random_key(options_.seed, Purpose::data_order,
                                          static_cast<uint64_t>(epoch), 0, 0)};
  }

  // Gives the first `apart` places to samples that did not end the epoch before. There are enough
  // of these among the next `apart` places, and the last third stays as it is.
  void arrange_first() {
    const Permutation before = permutation(epoch_ - 1);
    std::unordered_set<int64_t> recent;
    for (int64_t place = num_samples_ - apart_; place < num_samples_; ++place) {
      recent.insert(before[place]);
    }
    for (int64_t place = 0; place < 2 * apart_; ++place) first_.push_back(order_[place]);
    auto other = first_.begin() + apart_;
    for (auto sample = first_.begin(); sample != first_.begin() + apart_; ++sample) {
      if (!recent.contains(*sample)) continue;
      while (recent.contains(*other)) ++other;
      std::swap(*sample, *other++);
    }
  }

  const LoaderOptions& options_;
  int64_t num_samples_;
  int64_t epoch_;
  int64_t apart_;
  Permutation order_;
  std::vector<int64_t> first_;  // for the first 2 apart_ places; empty: not asked for yet
};

// Samples `first` to `last` of the run.
std::vector<int64_t> samples_between(int64_t num_samples, const LoaderOptions& options,
                                     int64_t first, int64_t last) {
  std::vector<int64_t> samples;
  for (int64_t p = first; p < last;) {
    const int64_t epoch = p / num_samples;
    EpochOrder order(num_samples, options, epoch);
    for (; p < last && p / num_samples == epoch; ++p) samples.push_back(order[p % num_samples]);
  }
  return samples;
}

}  // namespace

std::vector<int64_t> micro_batch_samples(const Dataset& dataset, const LoaderOptions& options,
                                         int64_t first) {
  const int64_t all = dataset.num_samples();
  const int64_t B = options.micro_batch;
  const int64_t last = options.end > 0 ? std::clamp(options.end, first, first + B) : first + B;
  const int64_t epoch = first / all;
  if (!options.group_by_length || (first + B - 1) / all != epoch) {
    return samples_between(all, options, first, last);
  }
  // Within the epoch: its first whole micro-batch, the number of micro-batches, and the index of
  // the present one.
  const int64_t begin = epoch * all + (first - epoch * all) % B;
  const int64_t micro_batches = ((epoch + 1) * all - begin) / B;
  const int64_t index = (first - begin) / B;
  const int64_t group = index / kLengthGroup;
  const int64_t size = std::min(kLengthGroup, micro_batches - group * kLengthGroup);
  const int64_t group_begin = begin + group * kLengthGroup * B;
  const std::vector<int64_t> samples =
      samples_between(all, options, group_begin, group_begin + size * B);
  // (length, place), so that equal lengths keep their order.
  std::vector<std::pair<int64_t, int64_t>> by_length;
  for (size_t i = 0; i < samples.size(); ++i) {
    by_length.emplace_back(dataset.length(samples[i]), static_cast<int64_t>(i));
  }
  std::sort(by_length.begin(), by_length.end());
  const Permutation order(
      size, make_random_key(options.seed, Purpose::data_order, static_cast<uint64_t>(epoch),
                            static_cast<uint64_t>(group), kGroupsSite));
  const int64_t chosen_begin = order[index % kLengthGroup] * B;
  std::vector<int64_t> chosen;
  for (int64_t i = chosen_begin; i < chosen_begin + (last - first); ++i) {
    chosen.push_back(samples[static_cast<size_t>(by_length[static_cast<size_t>(i)].second)]);
  }
  return chosen;
}

// Hands out the batches m, m + 1, ... in order; with a depth, a thread reads them ahead.
class Loader::Reader {
 public:
  using Read = std::function<HostBatch(int64_t)>;

  Reader(Read read, int64_t first, int depth)
      : read_(std::move(read)), next_(first), depth_(static_cast<size_t>(depth)) {
    if (depth_ > 0) thread_ = std::thread([this] { run(); });
  }

  ~Reader() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  HostBatch take() {
    if (depth_ == 0) {
      HostBatch batch = read_(next_);
      ++next_;
      return batch;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || failure_ != nullptr; });
    if (ready_.empty()) std::rethrow_exception(failure_);
    HostBatch batch = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

 private:
  void run() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [&] { return stopping_ || ready_.size() < depth_; });
      if (stopping_) return;
      lock.unlock();
      HostBatch batch;
      std::exception_ptr failure;
      try {
        batch = read_(next_++);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
      if (failure == nullptr) ready_.push_back(std::move(batch));
      changed_.notify_all();
      if (failure != nullptr) return;
    }
  }

  Read read_;
  int64_t next_;  // used by the thread, or by take() where there is none
  size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<HostBatch> ready_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : dataset_(&dataset), options_(options) {
  require(options.micro_batch >= 1 && options.seq_len >= 1, "loader: micro-batch ",
          options.micro_batch, " and sequence length ", options.seq_len, " must be positive");
  require(0 <= options.rank && options.rank < options.world, "loader: rank ", options.rank, " of ",
          options.world);
  require(options.prefetch_batches >= 0, "loader: prefetch_batches must not be negative");
  const int64_t needed = options.micro_batch * options.world;
  require(dataset.num_samples() > 0, "loader: ", dataset.describe(), " has no samples");
  if (dataset.num_samples() < needed && options.end == 0) {
    throw DataError(str(dataset.describe(), ": too little data: ", dataset.num_samples(),
                        " sequences, but ", options.world, " ranks with micro-batch ",
                        options.micro_batch, " take ", needed,
                        " at a time; use fewer ranks, a smaller micro-batch, shorter sequences "
                        "or more data"));
  }
  start_reader();
}

Loader::~Loader() = default;

void Loader::start_reader() {
  reader_ = nullptr;
  const auto read = [dataset = dataset_, options = options_, begin = begin_](int64_t micro_batch) {
    const int64_t place = micro_batch * options.world + options.rank;
    const int64_t global = (begin + options.micro_batch - 1) / options.micro_batch + place;
    const std::vector<int64_t> samples =
        micro_batch_samples(*dataset, options, begin + place * options.micro_batch);
    std::vector<RandomKey> keys;
    for (size_t row = 0; row < samples.size(); ++row) {
      keys.push_back(make_random_key(options.seed, Purpose::masking, row,
                                     static_cast<uint64_t>(global), kTrainingSite));
    }
    HostBatch batch = collate(*dataset, samples,
                              {.batch_size = options.micro_batch,
                               .seq_len = options.seq_len,
                               .pad_multiple = options.pad_multiple},
                              keys);
    batch.global_micro_batch = global;
    return batch;
  };
  reader_ = std::make_unique<Reader>(read, next_micro_batch_, options_.prefetch_batches);
}

nn::Batch Loader::next() {
  const HostBatch host = reader_->take();
  ++next_micro_batch_;
  return to_batch(host);
}

nn::Batch Loader::example() const {
  return example_batch(dataset_->fields(),
                       {.batch_size = options_.micro_batch, .seq_len = options_.seq_len});
}

LoaderState Loader::state() const {
  const int64_t rows = next_micro_batch_ * options_.world * options_.micro_batch;
  const int64_t rest = options_.end > 0 ? std::max<int64_t>(0, options_.end - begin_) : rows;
  return {.seed = options_.seed, .samples = begin_ + std::min(rows, rest)};
}

double Loader::epoch() const {
  return static_cast<double>(state().samples) / static_cast<double>(dataset_->num_samples());
}

void Loader::restore(const LoaderState& state) {
  require(state.seed == options_.seed, "loader: the state has seed ", state.seed,
          ", this loader seed ", options_.seed, ": their orders differ");
  require(state.samples >= 0, "loader: the state stands at sample ", state.samples);
  begin_ = state.samples;
  next_micro_batch_ = 0;
  start_reader();
}

void Loader::set_end(int64_t samples) {
  require(samples >= 0, "loader: cannot end at sample ", samples);
  options_.end = samples;
  start_reader();
}

int64_t samples_of_epochs(double epochs, int64_t num_samples) {
  require(epochs > 0.0 && num_samples > 0 && epochs * static_cast<double>(num_samples) < 0x1p53,
          "loader: ", epochs, " epochs of ", num_samples, " samples");
  return std::max<int64_t>(1, std::llround(epochs * static_cast<double>(num_samples)));
}

int64_t steps_of_epochs(double epochs, int64_t num_samples, int64_t global_batch) {
  require(global_batch > 0, "loader: steps of ", global_batch, " samples");
  const int64_t samples = samples_of_epochs(epochs, num_samples);
  return (samples + global_batch - 1) / global_batch;
}

RunLength length_of_epochs(double epochs, int64_t num_samples, int64_t global_batch,
                           int64_t steps_so_far, int64_t samples_so_far) {
  require(global_batch > 0, "loader: steps of ", global_batch, " samples");
  const int64_t end = samples_of_epochs(epochs, num_samples);
  const int64_t rest = std::max<int64_t>(0, end - samples_so_far);
  return {.steps = steps_so_far + (rest + global_batch - 1) / global_batch, .end = end};
}

RunLength length_of_steps(int64_t steps, int64_t global_batch, int64_t steps_so_far,
                          int64_t samples_so_far) {
  const int64_t rest = std::max<int64_t>(0, steps - steps_so_far);
  return {.steps = steps, .end = samples_so_far + rest * global_batch};
}

EvaluationSet::EvaluationSet(const Dataset& dataset, const EvaluationOptions& options)
    : dataset_(&dataset), options_(options), num_samples_(dataset.num_samples()) {
  require(options.batch >= 1 && options.seq_len >= 1, "evaluation: batch ", options.batch,
          " and sequence length ", options.seq_len, " must be positive");
  require(0 <= options.rank && options.rank < options.world, "evaluation: rank ", options.rank,
          " of ", options.world);
  if (options.max_samples > 0) num_samples_ = std::min(num_samples_, options.max_samples);
  if (num_samples_ == 0) throw DataError(str(dataset.describe(), ": nothing to evaluate on"));
}

int64_t EvaluationSet::num_batches() const {
  return (num_samples_ + options_.batch - 1) / options_.batch;
}

int64_t EvaluationSet::num_rounds() const {
  return (num_batches() + options_.world - 1) / options_.world;
}

nn::Batch EvaluationSet::batch(int64_t round) const {
  require(0 <= round && round < num_rounds(), "evaluation: round ", round, " of ", num_rounds());
  const int64_t first = std::min(batch_index(round) * options_.batch, num_samples_);
  const int64_t last = std::min(first + options_.batch, num_samples_);
  std::vector<int64_t> samples;
  std::vector<RandomKey> keys;
  for (int64_t i = first; i < last; ++i) {
    samples.push_back(i * dataset_->num_samples() / num_samples_);
    keys.push_back(make_random_key(0, Purpose::masking, 0, static_cast<uint64_t>(samples.back()),
                                   kEvaluationSite));
  }
  return to_batch(collate(*dataset_, samples,
                          {.batch_size = options_.batch,
                           .seq_len = options_.seq_len,
                           .pad_multiple = options_.pad_multiple},
                          keys));
}

}  // namespace zinc::data
