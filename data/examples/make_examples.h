// data/examples/make_examples.h: all records of a file as examples, by many threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/examples/example_maker.h"
#include "data/records/record_reader.h"

namespace zinc::data {

// Records that find_fields looks at.
inline constexpr int64_t kRecordsToLookAt = 16;
// Places that a count remembers.
inline constexpr size_t kMaxPlaces = 3;
inline constexpr size_t kMaxUnusedFields = 64;

// A number of records, and the places of the first ones.
struct CountedPlaces {
  int64_t count = 0;
  std::vector<std::string> places{};  // or whole messages, where they differ

  void add(const std::string& place) {
    if (places.size() < kMaxPlaces) places.push_back(place);
    ++count;
  }
};

struct ExampleCounts {
  int64_t records = 0;   // read, damaged ones included
  int64_t examples = 0;  // with something to learn
  int64_t tokens = 0;    // in the examples
  int64_t targets = 0;   // in the examples: tokens that are learned
  int64_t longest = 0;   // example, in tokens
  CountedPlaces truncated{};
  int64_t cut_tokens = 0;      // tokens that the truncated examples lost
  CountedPlaces all_masked{};  // nothing to learn: left out
  CountedPlaces damaged{};     // left out
  // Fields that are not used, with how many records have them: at most kMaxUnusedFields names.
  std::map<std::string, int64_t> unused{};
};

struct MakeOptions {
  int threads = 1;
  int64_t skip_bad = 0;                     // damaged records that are left out; more are an error
  int64_t max_records = 0;                  // records to read; 0: all
  const std::atomic<bool>* stop = nullptr;  // ends the work early
};

// Gives `take` every example with something to learn, in the order of the file, from this thread,
// with the record's place. `progress` is called now and then. DataError for the first damaged
// record of more than skip_bad; for a file without records; and where no record has anything to
// learn.
using TakeExample = std::function<void(const Record& record, const Example& example)>;
ExampleCounts make_examples(RecordReader& reader, const ExampleMaker& maker,
                            const MakeOptions& options, const TakeExample& take,
                            const std::function<void(const ExampleCounts&)>& progress = {});

// The first kRecordsToLookAt records of a file; damaged ones are left out. DataError where there is
// none.
std::vector<Record> first_records(const std::string& path);
// find_fields() of first_records().
FieldMap look_for_fields(const std::string& path);

}  // namespace zinc::data
