// Rows of DeepSpeed's Sparse Attention. The block turns it on, also an empty one.
#include "nn/attention/sparsity_config.h"
#include "train/config/row.h"

namespace zinc::train {
namespace {

using nn::SparsityConfig;
using nn::SparsityDirection;
using nn::SparsityMode;

// A setting of the SparsityConfig, with the values of `read` and `write`; null while there is none.
template <class Read, class Write>
Setting within(KeyType type, Read&& read, Write&& write) {
  return {.type = type,
          .get = [read](const Config& config, int64_t) -> files::json::Value {
            const std::optional<SparsityConfig>& sparsity = config.engine.sparse_attention;
            return sparsity ? read(*sparsity) : files::json::Value();
          },
          .set =
              [write](Config& config, const files::json::Value& value) {
                if (config.engine.sparse_attention) write(*config.engine.sparse_attention, value);
              }};
}

template <class T>
Setting at_member(T SparsityConfig::*member) {
  return within(
      type_of<T>(), [member](const SparsityConfig& config) { return to_value(config.*member); },
      [member](SparsityConfig& config, const files::json::Value& value) {
        assign(config.*member, value);
      });
}

// A member with the values of an enum, or an optional one.
template <class Enum, class T>
Setting one_name_of(std::initializer_list<Enum> values, T SparsityConfig::*member) {
  Setting setting = within(
      KeyType::choice,
      [member](const SparsityConfig& config) -> files::json::Value {
        const std::optional<Enum> value = config.*member;
        return value ? files::json::Value(name_of(*value)) : files::json::Value();
      },
      [member, all = std::vector<Enum>(values)](SparsityConfig& config,
                                                const files::json::Value& value) {
        for (const Enum one : all) {
          if (value.is_string(name_of(one))) config.*member = one;
        }
      });
  for (const Enum value : values) setting.choices.emplace_back(name_of(value));
  return setting;
}

// The row of a key that counts with some modes, and its default.
Row counts_with(std::string_view modes, std::string_view standard, Row row) {
  row.note = str(modes, ": ", row.note);
  return std::move(row).by_default_as(standard);
}

}  // namespace

Rows sparse_attention_rows() {
  using Mode = SparsityMode;
  Bounds block = between(16, 128);
  block.multiple_of = 16;
  Rows rows = train::block(
      "sparse_attention",
      "layouts of blocks for attention; the block turns it on, also an empty one; "
      "docs/training.md",
      {works("mode",
             one_name_of({Mode::dense, Mode::fixed, Mode::variable, Mode::bigbird,
                          Mode::bslongformer, Mode::local_sliding_window},
                         &SparsityConfig::mode),
             "what the layout is")
           .by_default_as("\"fixed\""),
       works("block", at_member(&SparsityConfig::block), block, "positions",
             "of a block: 16, 32, 64 or 128; sequences are a multiple")
           .by_default_as("16"),
       works("different_layout_per_head", at_member(&SparsityConfig::different_layout_per_head),
             "false: all heads have the layout of head 0")
           .by_default_as("false"),
       counts_with("fixed", "4",
                   works("num_local_blocks", at_member(&SparsityConfig::num_local_blocks),
                         at_least(1), "blocks", "of a window")),
       counts_with(
           "fixed, bigbird", "1",
           works("num_global_blocks", at_member(&SparsityConfig::num_global_blocks), at_least(0),
                 "blocks", "that all see: of each window, or the first of the sequence")),
       counts_with(
           "all but dense", "\"bidirectional\"; \"unidirectional\" with local_sliding_window",
           works("attention",
                 one_name_of({SparsityDirection::unidirectional, SparsityDirection::bidirectional},
                             &SparsityConfig::attention),
                 "whether later blocks may be seen; a causal model hides them in any "
                 "case")),
       counts_with("fixed, variable", "false",
                   works("horizontal_global_attention",
                         at_member(&SparsityConfig::horizontal_global_attention),
                         "blocks that all see also see all")),
       counts_with("fixed", "1",
                   works("num_different_global_patterns",
                         at_member(&SparsityConfig::num_different_global_patterns), at_least(1),
                         "heads in turn let other blocks of a window be seen by all")),
       counts_with("variable, bigbird", "0",
                   works("num_random_blocks", at_member(&SparsityConfig::num_random_blocks),
                         at_least(0), "blocks", "of each row, drawn from zinc.seed")),
       counts_with("variable", "[4]",
                   works("local_window_blocks", at_member(&SparsityConfig::local_window_blocks),
                         at_least(1), "blocks of each window; the last size repeats")),
       counts_with("variable, bslongformer", "[0]",
                   works("global_block_indices", at_member(&SparsityConfig::global_block_indices),
                         at_least(0), "blocks that all see")),
       counts_with("variable, bslongformer", "null",
                   works("global_block_end_indices",
                         at_member(&SparsityConfig::global_block_end_indices), at_least(1),
                         "one past the last block of each range that begins at an index; null: "
                         "single blocks")),
       counts_with(
           "bigbird, bslongformer, local_sliding_window", "3",
           works("num_sliding_window_blocks", at_member(&SparsityConfig::num_sliding_window_blocks),
                 at_least(1), "blocks", "of the band around a block, itself included"))});
  rows.front().setting.set = [](Config& config, const files::json::Value&) {
    config.engine.sparse_attention.emplace();
  };
  return rows;
}

}  // namespace zinc::train
