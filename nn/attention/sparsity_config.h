// nn/attention/sparsity_config.h: the configuration of DeepSpeed's Sparse Attention, plain data.
// nn/attention/sparse_attention.h makes layouts of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::nn {

enum class SparsityMode : uint8_t {
  dense,                 // all blocks
  fixed,                 // windows of blocks, of each window some that all see (Child et al. 2019)
  variable,              // windows of given sizes, given blocks that all see, random ones
  bigbird,               // a band, the first blocks, random ones (Zaheer et al. 2020)
  bslongformer,          // a band and given blocks (Beltagy et al. 2020)
  local_sliding_window,  // a band
};
// "dense", "fixed", "variable", "bigbird", "bslongformer", "local_sliding_window"
std::string_view name_of(SparsityMode value);

enum class SparsityDirection : uint8_t { unidirectional, bidirectional };
std::string_view name_of(SparsityDirection value);  // "unidirectional", "bidirectional"

// The names are DeepSpeed's keys. A mode reads the members that its comment names.
struct SparsityConfig {
  SparsityMode mode = SparsityMode::fixed;
  int64_t block = 16;                      // positions: 16, 32, 64 or 128
  bool different_layout_per_head = false;  // false: all heads have the layout of head 0
  // Blocks of a window, and of each window those that all see: fixed. The second also: bigbird, the
  // first blocks of a sequence.
  int64_t num_local_blocks = 4;
  int64_t num_global_blocks = 1;
  // Whether later blocks may be seen. Absent: bidirectional, and unidirectional for
  // local_sliding_window. Not: dense.
  std::optional<SparsityDirection> attention{};
  // Blocks that all see also see all: fixed, variable. bidirectional only.
  bool horizontal_global_attention = false;
  // Heads in turn take other blocks of a window for all to see: fixed.
  int64_t num_different_global_patterns = 1;
  int64_t num_random_blocks = 0;  // of each row: variable, bigbird
  // Blocks of the windows; the last size repeats: variable.
  std::vector<int64_t> local_window_blocks{4};
  // Blocks that all see; with ends, ranges [index, end): variable, bslongformer.
  std::vector<int64_t> global_block_indices{0};
  std::optional<std::vector<int64_t>> global_block_end_indices{};
  // Blocks of the band, itself included: bigbird, bslongformer, local_sliding_window.
  int64_t num_sliding_window_blocks = 3;

  SparsityDirection direction() const;
};

// What is wrong with a configuration, whatever the sequence.
struct SparsityProblem {
  std::string_view key;
  std::string text;
};
std::vector<SparsityProblem> problems_of(const SparsityConfig& config);

}  // namespace zinc::nn
