#include "train/data/loader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/philox.h"
#include "train/data/collate.h"
#include "train/data/permutation.h"

namespace zinc::train {

std::vector<int64_t> micro_batch_samples(int64_t num_samples, const LoaderOptions& options,
                                         int64_t global_micro_batch) {
  const int64_t B = options.micro_batch;
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(B));
  const int64_t first = global_micro_batch * B;
  for (int64_t p = first; p < first + B;) {
    const int64_t epoch = p / num_samples;
    const Permutation order(num_samples, make_random_key(options.seed, Purpose::data_order,
                                                         static_cast<uint64_t>(epoch), 0, 0));
    for (; p < first + B && p / num_samples == epoch; ++p) {
      const int64_t place = p % num_samples;
      samples.push_back(options.shuffle ? order[place] : place);
    }
  }
  return samples;
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
  int64_t next_;  // of the thread, or of take() where there is none
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
  if (dataset.num_samples() < needed) {
    throw DataError(concat(dataset.describe(), ": too little data: ", dataset.num_samples(),
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
  const auto read = [dataset = dataset_, options = options_](int64_t micro_batch) {
    const int64_t global = micro_batch * options.world + options.rank;
    const std::vector<int64_t> samples =
        micro_batch_samples(dataset->num_samples(), options, global);
    HostBatch batch = collate(*dataset, samples, options.micro_batch, options.seq_len);
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

LoaderState Loader::state() const {
  return {.seed = options_.seed,
          .samples = next_micro_batch_ * options_.world * options_.micro_batch};
}

double Loader::epoch() const {
  return static_cast<double>(state().samples) / static_cast<double>(dataset_->num_samples());
}

void Loader::restore(const LoaderState& state) {
  require(state.seed == options_.seed, "loader: the state has seed ", state.seed,
          ", this loader seed ", options_.seed, ": their orders differ");
  const int64_t stride = options_.world * options_.micro_batch;
  require(state.samples >= 0 && state.samples % stride == 0, "loader: the state stands at sample ",
          state.samples, ", which is no multiple of ", options_.world, " ranks x micro-batch ",
          options_.micro_batch);
  next_micro_batch_ = state.samples / stride;
  start_reader();
}

EvaluationSet::EvaluationSet(const Dataset& dataset, const EvaluationOptions& options)
    : dataset_(&dataset), options_(options), num_samples_(dataset.num_samples()) {
  require(options.batch >= 1 && options.seq_len >= 1, "evaluation: batch ", options.batch,
          " and sequence length ", options.seq_len, " must be positive");
  require(0 <= options.rank && options.rank < options.world, "evaluation: rank ", options.rank,
          " of ", options.world);
  if (options.max_samples > 0) num_samples_ = std::min(num_samples_, options.max_samples);
  if (num_samples_ == 0) throw DataError(concat(dataset.describe(), ": nothing to evaluate on"));
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
  for (int64_t i = first; i < last; ++i) {
    samples.push_back(i * dataset_->num_samples() / num_samples_);
  }
  return to_batch(collate(*dataset_, samples, options_.batch, options_.seq_len));
}

}  // namespace zinc::train
