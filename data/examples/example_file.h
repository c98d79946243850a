// data/examples/example_file.h: the examples of one file of records as tokens on disk, made once.
//
// A folder in the cache, "<name>-<hash>.examples", that appears whole or not at all:
//
//   tokens.bin  little-endian uint32, one per token of all examples, one example after the other.
//               The highest bit: a model learns the token
//   index.bin   uint64: where each example begins in tokens.bin, in tokens; then where the last one
//               ends
//   made.json   what the examples were made of, and how many there are of each kind
//
// The folder is used if made.json agrees: path, size and time of the file, the tokenizer, and all
// settings. Both .bin files are memory-mapped, so they may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/dataset.h"
#include "data/examples/make_examples.h"
#include "files/input_file.h"

namespace zinc::data {

class ExampleFile {
 public:
  // `path` is the file of records that the examples are of. DataError where the folder is damaged.
  static ExampleFile open(const std::string& folder, const std::string& path);

  const std::string& path() const { return path_; }
  const ExampleCounts& counts() const { return counts_; }
  int64_t num_examples() const { return index_.size() / 8 - 1; }
  // Tokens of an example, labels that stand apart included.
  int64_t length(int64_t index) const;
  // Appends an example to a sample: all tokens but the last; as labels the token that follows each,
  // or nn::kIgnoredLabel.
  void append_to(int64_t index, Sample& sample) const;
  // Appends all tokens of an example. The label of a trained token is the token itself; of any
  // other token, nn::kIgnoredLabel.
  void append_whole_to(int64_t index, Sample& sample) const;
  // Appends an example whose labels stand apart: trained tokens as labels, the others as tokens.
  void append_apart_to(int64_t index, Sample& sample) const;
  // Tokens of such an example without its labels.
  int64_t length_apart(int64_t index) const;

 private:
  ExampleFile(std::string path, files::MappedFile tokens, files::MappedFile index,
              ExampleCounts counts)
      : path_(std::move(path)),
        tokens_(std::move(tokens)),
        index_(std::move(index)),
        counts_(std::move(counts)) {}
  std::pair<int64_t, int64_t> range(int64_t index) const;
  template <class Take>
  void for_each_token(int64_t index, const Take& take) const;  // take(token, whether it is trained)

  std::string path_;
  files::MappedFile tokens_;
  files::MappedFile index_;
  ExampleCounts counts_;
};

struct ExampleFileOptions {
  std::string cache;  // folder; made where it does not exist
  // The folder that the tokenizer's files were read from; empty: it has none.
  std::string tokenizer_folder;
  MakeOptions make{};
  std::function<void(const ExampleCounts&)> progress{};
};

// The folder of this file's examples in the cache, which may not exist. DataError where the file
// does not exist.
std::string example_folder(const std::string& path, const text::Tokenizer* tokenizer,
                           const ExampleSettings& settings, const ExampleFileOptions& options);

// Makes the folder of example_folder() if it does not exist. If several processes do so, the last
// one's folder stays; all are equal. Returns the folder; empty, with nothing made, if
// options.make.stop ended the work. Throws as make_examples() does, IoError of the cache's file
// system, and DataError where the file changes meanwhile.
std::string make_example_folder(const std::string& path, const text::Tokenizer* tokenizer,
                                const ExampleSettings& settings, const ExampleFileOptions& options);

}  // namespace zinc::data
