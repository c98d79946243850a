#include "data/examples/make_examples.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"

namespace zinc::data {
namespace {

constexpr size_t kBlockTextBytes = size_t{4} << 20;  // of text that threads share out at once
constexpr size_t kBlockRecords = 8192;

// The result of one record.
struct Outcome {
  Record record{};
  Example example{};
  std::vector<std::string> unused{};
  std::optional<std::string> problem{};  // for a damaged record
};

Outcome make_one(const RecordReader& reader, const ExampleMaker& maker, const RawRecord& raw) {
  Outcome outcome;
  try {
    outcome.record = reader.parse(raw);
    outcome.example = maker.make(outcome.record);
    outcome.unused = maker.unused_fields(outcome.record);
  } catch (const DataError& error) {
    outcome.problem = error.what();
  }
  return outcome;
}

// Threads take records in turn; outcomes keep their order.
std::vector<Outcome> make_block(const RecordReader& reader, const ExampleMaker& maker,
                                const std::vector<RawRecord>& block, int num_threads) {
  std::vector<Outcome> outcomes(block.size());
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(num_threads));
  const auto work = [&](size_t thread) {
    try {
      for (size_t i = next++; i < block.size(); i = next++) {
        outcomes[i] = make_one(reader, maker, block[i]);
      }
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  const size_t wanted = std::min(static_cast<size_t>(num_threads), block.size());
  for (size_t t = 1; t < wanted; ++t) threads.emplace_back(work, t);
  work(0);
  threads.clear();
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  return outcomes;
}

class Making {
 public:
  Making(const RecordReader& reader, const ExampleMaker& maker, const MakeOptions& options,
         const TakeExample& take)
      : reader_(reader), maker_(maker), options_(options), take_(take) {}

  void run(const std::vector<RawRecord>& block) {
    for (const Outcome& outcome : make_block(reader_, maker_, block, options_.threads)) {
      ++counts_.records;
      if (outcome.problem) {
        skip(*outcome.problem);
      } else {
        count(outcome);
      }
    }
  }
  const ExampleCounts& counts() const { return counts_; }

 private:
  void skip(const std::string& problem) {
    counts_.damaged.add(problem);
    leave_out_damaged(problem, counts_.damaged.count, options_.skip_bad);
  }

  void count(const Outcome& outcome) {
    const Example& example = outcome.example;
    for (const std::string& name : outcome.unused) {
      const bool has_room = counts_.unused.size() < kMaxUnusedFields;
      if (has_room || counts_.unused.contains(name)) ++counts_.unused[name];
    }
    if (example.cut_tokens > 0) {
      counts_.truncated.add(outcome.record.place);
      counts_.cut_tokens += example.cut_tokens;
    }
    const int64_t targets = example.num_targets();
    if (targets == 0) return counts_.all_masked.add(outcome.record.place);
    const auto tokens = static_cast<int64_t>(example.tokens.size());
    ++counts_.examples;
    counts_.tokens += tokens;
    counts_.targets += targets;
    counts_.longest = std::max(counts_.longest, tokens);
    if (take_) take_(outcome.record, example);
  }

  const RecordReader& reader_;
  const ExampleMaker& maker_;
  const MakeOptions& options_;
  const TakeExample& take_;
  ExampleCounts counts_;
};

void require_examples(const std::string& path, const ExampleCounts& counts, int64_t max_tokens) {
  if (counts.examples > 0) return;
  if (counts.records == 0) throw DataError(str(path, ": holds no records"));
  if (counts.all_masked.count == 0) {
    throw DataError(str(path, ": all ", counts.records,
                        " records are damaged; the first: ", counts.damaged.places.front()));
  }
  throw DataError(str(path, ": nothing is learned from any of its ", counts.records,
                      " records: their answers are empty, or the prompts alone fill the ",
                      max_tokens, " tokens of an example (", counts.truncated.count,
                      " were cut); give longer examples (--seq)"));
}

}  // namespace

ExampleCounts make_examples(RecordReader& reader, const ExampleMaker& maker,
                            const MakeOptions& options, const TakeExample& take,
                            const std::function<void(const ExampleCounts&)>& progress) {
  require(options.threads >= 1, "make_examples: threads must be at least 1, not ", options.threads);
  Making making(reader, maker, options, take);
  const auto stopped = [&] { return options.stop != nullptr && options.stop->load(); };
  const auto full = [&](int64_t records) {
    return options.max_records > 0 && records >= options.max_records;
  };
  for (bool more = true; more && !stopped();) {
    std::vector<RawRecord> block;
    for (size_t bytes = 0; bytes < kBlockTextBytes && block.size() < kBlockRecords;) {
      RawRecord raw;
      more =
          !full(making.counts().records + static_cast<int64_t>(block.size())) && reader.next(raw);
      if (!more) break;
      bytes += raw.text.size();
      block.push_back(std::move(raw));
    }
    making.run(block);
    if (progress) progress(making.counts());
  }
  if (!stopped()) {
    require_examples(reader.path(), making.counts(), maker.settings().max_tokens);
  }
  return making.counts();
}

std::vector<Record> first_records(const std::string& path) {
  const std::unique_ptr<RecordReader> reader = open_records(path);
  std::vector<Record> records;
  std::string problem;
  RawRecord raw;
  for (int64_t i = 0; i < kRecordsToLookAt && reader->next(raw); ++i) {
    try {
      records.push_back(reader->parse(raw));
    } catch (const DataError& error) {
      if (problem.empty()) problem = error.what();
    }
  }
  if (!records.empty()) return records;
  throw DataError(problem.empty() ? str(path, ": holds no records") : problem);
}

FieldMap look_for_fields(const std::string& path) { return find_fields(first_records(path)); }

}  // namespace zinc::data
