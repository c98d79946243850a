// The block "sparse_attention": layouts equal to DeepSpeed's for stored configurations, rules of
// random blocks, and problems of a file at their places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "nn/attention/sparse_attention.h"
#include "train/config/config.h"

namespace zinc::train {
namespace sparse_attention_test {

using testing::HasSubstr;

constexpr const char* kStored = "tests/reference/layouts.json";  // by make_layouts.py
constexpr int64_t kHeads = 5;

Config parse(const std::string& block) {
  return parse_config(
      "{\"train_micro_batch_size_per_gpu\": 1,\n\"sparse_attention\": " + block + "}", "ds.json",
      1);
}

nn::SparsityConfig sparsity_of(const std::string& block) {
  return parse(block).engine.sparse_attention.value();
}

std::string message_of(const std::string& block) {
  try {
    parse(block);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Rows of 0 and 1, head by head.
std::string rows_of(const BlockLayout& layout) {
  std::string text;
  for (int64_t h = 0; h < layout.heads(); ++h) {
    for (int64_t row = 0; row < layout.blocks(); ++row) {
      if (!text.empty()) text += ' ';
      for (int64_t column = 0; column < layout.blocks(); ++column) {
        text += layout.sees(h, row, column) ? '1' : '0';
      }
    }
  }
  return text;
}

TEST(SparseAttention, StoredConfigurations_GiveTheLayoutsOfDeepSpeed) {
  const files::json::Value stored = files::json::parse_file(kStored);
  for (const files::json::Value& one : stored.as_array()) {
    files::json::Object block;
    for (const files::json::Member& member : one.as_object()) {
      if (member.key != "blocks" && member.key != "rows") block.set(member.key, member.value);
    }
    const std::string text = files::json::write(block);
    const nn::SparsityConfig config = sparsity_of(text);
    const int64_t tokens = one.at("blocks").as_int64() * config.block;
    const BlockLayoutPtr layout = nn::make_layout(config, {.heads = kHeads, .tokens = tokens});
    EXPECT_EQ(rows_of(*layout), one.at("rows").as_string()) << text;
    EXPECT_EQ(layout->block(), config.block) << text;
  }
  EXPECT_GE(stored.size(), 60u);
}

TEST(SparseAttention, ABlockWithoutKeys_HasTheDefaults) {
  EXPECT_FALSE(parse("null").engine.sparse_attention);
  const nn::SparsityConfig config = sparsity_of("{}"), plain;
  EXPECT_EQ(config.mode, nn::SparsityMode::fixed);
  EXPECT_EQ(config.block, 16);
  EXPECT_EQ(config.num_local_blocks, plain.num_local_blocks);
  EXPECT_EQ(config.direction(), nn::SparsityDirection::bidirectional);
  EXPECT_EQ(sparsity_of("{\"mode\": \"local_sliding_window\"}").direction(),
            nn::SparsityDirection::unidirectional);
  // The resolved file says that it is on.
  const Config again = parse_config(resolved_json(parse("{}"), 1), "resolved.json", 1);
  EXPECT_TRUE(again.engine.sparse_attention);
  EXPECT_NE(fingerprint_of(parse("{}"), 1), fingerprint_of(parse("null"), 1));
}

// The blocks that a row sees in `layout` and not in `without`.
std::vector<int64_t> drawn(const BlockLayout& layout, const BlockLayout& without, int64_t head,
                           int64_t row) {
  std::vector<int64_t> columns;
  for (int64_t column = 0; column < layout.blocks(); ++column) {
    EXPECT_GE(layout.sees(head, row, column), without.sees(head, row, column));
    if (layout.sees(head, row, column) && !without.sees(head, row, column)) {
      columns.push_back(column);
    }
  }
  return columns;
}

TEST(SparseAttention, RandomBlocks_AreDrawnForEachRowFromTheSeed) {
  constexpr int64_t kBlocks = 40, kDrawn = 6;
  nn::SparsityConfig config{.mode = nn::SparsityMode::variable,
                            .different_layout_per_head = true,
                            .num_random_blocks = kDrawn,
                            .local_window_blocks = {1}};
  config.global_block_indices = {};
  nn::SparsityConfig plain = config;
  plain.num_random_blocks = 0;
  const nn::LayoutExtent extent{
      .heads = kHeads, .tokens = kBlocks * config.block, .seed = 7, .site = 3};
  const BlockLayoutPtr layout = nn::make_layout(config, extent);
  const BlockLayoutPtr without = nn::make_layout(plain, extent);
  std::set<std::vector<int64_t>> rows;
  int64_t low = 0, all = 0;
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t row = 0; row < kBlocks; ++row) {
      const std::vector<int64_t> columns = drawn(*layout, *without, h, row);
      // One of them may be the row's own block, which it sees in any case.
      EXPECT_GE(std::ssize(columns), kDrawn - 1);
      EXPECT_LE(std::ssize(columns), kDrawn);
      rows.insert(columns);
      for (const int64_t column : columns) low += column < kBlocks / 2 ? 1 : 0;
      all += std::ssize(columns);
    }
  }
  EXPECT_EQ(std::ssize(rows), kHeads * kBlocks);  // of the 3.8 million sets, no two are the same
  // 1180 draws without a preference: five standard deviations of a half are 86.
  EXPECT_NEAR(static_cast<double>(low), static_cast<double>(all) / 2, 86);
  EXPECT_EQ(nn::make_layout(config, extent)->words(), layout->words());
  for (auto [seed, site] : {std::pair(8, 3), std::pair(7, 4)}) {
    nn::LayoutExtent other = extent;
    other.seed = static_cast<uint64_t>(seed);
    other.site = static_cast<uint64_t>(site);
    EXPECT_NE(nn::make_layout(config, other)->words(), layout->words());
  }
}

TEST(SparseAttention, RandomBlocksOfOneDirection_LieBeforeTheRow) {
  const nn::SparsityConfig config{.mode = nn::SparsityMode::bigbird,
                                  .num_global_blocks = 0,
                                  .attention = nn::SparsityDirection::unidirectional,
                                  .num_random_blocks = 3,
                                  .num_sliding_window_blocks = 1};
  const BlockLayoutPtr layout = nn::make_layout(config, {.tokens = 20 * 16, .seed = 1});
  for (int64_t row = 0; row < 20; ++row) {
    int64_t seen = 0;
    for (int64_t column = 0; column < 20; ++column) {
      seen += layout->sees(0, row, column) ? 1 : 0;
      EXPECT_LE(layout->sees(0, row, column) ? column : 0, row);
    }
    EXPECT_GE(seen, std::min<int64_t>(row + 1, 3));
    EXPECT_LE(seen, 4);
  }
}

TEST(SparseAttention, WrongValues_AreNamedAtTheirPlaces) {
  EXPECT_THAT(message_of("{\"mode\": \"big_bird\"}"),
              AllOf(HasSubstr("ds.json:2:30"), HasSubstr("sparse_attention.mode must be"),
                    HasSubstr("did you mean \"bigbird\"?")));
  EXPECT_THAT(message_of("{\"num_local_block\": 4}"),
              AllOf(HasSubstr("ds.json:2:22"),
                    HasSubstr("unknown key sparse_attention.num_local_block; did you mean "
                              "\"num_local_blocks\"?")));
  EXPECT_THAT(message_of("{\"block\": 48}"),
              AllOf(HasSubstr("ds.json:2:31"), HasSubstr("sparse_attention.block: a block has 16, "
                                                         "32, 64 or 128 positions, not 48")));
  EXPECT_THAT(message_of("{\"block\": 20}"), HasSubstr("must be a multiple of 16, not 20"));
  EXPECT_THAT(message_of("{\"num_local_blocks\": 4, \"num_global_blocks\": 3}"),
              HasSubstr("sparse_attention.num_global_blocks: must divide num_local_blocks, 4"));
  EXPECT_THAT(message_of("{\"num_different_global_patterns\": 2}"),
              HasSubstr("2 patterns need different_layout_per_head"));
  EXPECT_THAT(message_of("{\"num_different_global_patterns\": 5, "
                         "\"different_layout_per_head\": true}"),
              HasSubstr("a window of 4 blocks has 4 places for 1 of them, not 5"));
  EXPECT_THAT(message_of("{\"attention\": \"unidirectional\", "
                         "\"horizontal_global_attention\": true}"),
              HasSubstr("horizontal_global_attention: needs \"attention\": \"bidirectional\""));
  EXPECT_THAT(message_of("{\"mode\": \"variable\", \"global_block_end_indices\": [3, 4]}"),
              HasSubstr("2 ends for 1 of global_block_indices"));
  EXPECT_THAT(message_of("{\"mode\": \"variable\", \"global_block_indices\": [3], "
                         "\"global_block_end_indices\": [3]}"),
              HasSubstr("the end 3 does not lie behind its index 3"));
  EXPECT_THAT(message_of("{\"mode\": \"variable\", \"local_window_blocks\": [4, 0]}"),
              HasSubstr("must be at least 1, not 0, each"));
}

std::string layout_message(const nn::SparsityConfig& config, int64_t tokens) {
  try {
    nn::make_layout(config, {.tokens = tokens});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(SparseAttention, ASequenceOfTheCommand_IsCheckedWithTheFile) {
  const auto message = [](const std::string& block) -> std::string {
    try {
      parse_config("{\"train_micro_batch_size_per_gpu\": 1,\n\"sparse_attention\": " + block + "}",
                   "ds.json", 1, {.sequence = 1000});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(message("{\"block\": 32}"),
              AllOf(HasSubstr("ds.json:2:31"), HasSubstr("take sequences of 992 or 1024")));
  EXPECT_THAT(message("{}"),
              AllOf(HasSubstr("ds.json:2:21"), HasSubstr("take sequences of 992 or 1008")));
}

TEST(SparseAttention, ASequenceThatDoesNotFit_IsRefusedWithTheNearest) {
  EXPECT_THAT(layout_message({.block = 64}, 1000),
              HasSubstr("sparse_attention.block: sequences of 1000 tokens do not consist of blocks "
                        "of 64; take sequences of 960 or 1024"));
  EXPECT_THAT(layout_message({}, 9), HasSubstr("take sequences of 16"));
  EXPECT_THAT(layout_message({.mode = nn::SparsityMode::bigbird}, 32),
              HasSubstr("sparse_attention.num_sliding_window_blocks: 3 blocks of 16 do not fit a "
                        "sequence of 2; take at most 2"));
  const std::vector<uint8_t> hole{1, 0, 0, 0};
  try {
    BlockLayout(16, 1, 2, hole);
    ADD_FAILURE() << "a row without a block is taken";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("the queries of block 1 of head 0 see no block of keys"));
  }
}

}  // namespace sparse_attention_test
}  // namespace zinc::train
