#include "nn/attention/sparsity_config.h"

#include <algorithm>
#include <array>

#include "core/block_layout.h"
#include "core/error.h"

namespace zinc::nn {
namespace {

constexpr std::array<std::string_view, 6> kModes{"dense",   "fixed",        "variable",
                                                 "bigbird", "bslongformer", "local_sliding_window"};

}  // namespace

std::string_view name_of(SparsityMode value) { return kModes.at(static_cast<size_t>(value)); }
std::string_view name_of(SparsityDirection value) {
  return value == SparsityDirection::unidirectional ? "unidirectional" : "bidirectional";
}

SparsityDirection SparsityConfig::direction() const {
  const bool is_band = mode == SparsityMode::local_sliding_window;
  return attention.value_or(is_band ? SparsityDirection::unidirectional
                                    : SparsityDirection::bidirectional);
}

std::vector<SparsityProblem> problems_of(const SparsityConfig& config) {
  std::vector<SparsityProblem> problems;
  const auto check = [&](bool holds, std::string_view key, const auto&... text) {
    if (!holds) problems.push_back({.key = key, .text = str(text...)});
  };
  const auto positive = [&](std::string_view key, int64_t value, int64_t least) {
    check(value >= least, key, "at least ", least, " is needed, not ", value);
  };
  check(BlockLayout::takes_block(config.block), "block",
        "a block has 16, 32, 64 or 128 positions, not ", config.block);
  positive("num_local_blocks", config.num_local_blocks, 1);
  positive("num_global_blocks", config.num_global_blocks,
           config.mode == SparsityMode::bigbird ? 0 : 1);
  positive("num_different_global_patterns", config.num_different_global_patterns, 1);
  positive("num_random_blocks", config.num_random_blocks, 0);
  positive("num_sliding_window_blocks", config.num_sliding_window_blocks, 1);
  check(!config.local_window_blocks.empty(), "local_window_blocks", "a size is needed");
  for (const int64_t blocks : config.local_window_blocks) {
    positive("local_window_blocks", blocks, 1);
  }
  for (const int64_t block : config.global_block_indices) {
    positive("global_block_indices", block, 0);
  }
  if (config.global_block_end_indices) {
    const std::vector<int64_t>& ends = *config.global_block_end_indices;
    const size_t count = config.global_block_indices.size();
    check(ends.size() == count, "global_block_end_indices", ends.size(), " ends for ", count,
          " of global_block_indices; give one for each");
    for (size_t i = 0; i < std::min(ends.size(), count); ++i) {
      const int64_t begin = config.global_block_indices[i];
      check(ends[i] > begin, "global_block_end_indices", "the end ", ends[i],
            " does not lie behind its index ", begin);
    }
  }
  const bool has_rows = config.mode == SparsityMode::fixed || config.mode == SparsityMode::variable;
  check(!has_rows || !config.horizontal_global_attention ||
            config.direction() == SparsityDirection::bidirectional,
        "horizontal_global_attention",
        "needs \"attention\": \"bidirectional\", as its blocks see later ones");
  if (config.mode != SparsityMode::fixed || !problems.empty()) return problems;
  const int64_t local = config.num_local_blocks, global = config.num_global_blocks;
  const int64_t patterns = config.num_different_global_patterns;
  check(local % global == 0, "num_global_blocks", "must divide num_local_blocks, ", local, ", and ",
        global, " does not");
  check(patterns == 1 || config.different_layout_per_head, "num_different_global_patterns",
        patterns, " patterns need different_layout_per_head");
  check(patterns <= local / global, "num_different_global_patterns", "a window of ", local,
        " blocks has ", local / global, " places for ", global, " of them, not ", patterns);
  return problems;
}

}  // namespace zinc::nn
