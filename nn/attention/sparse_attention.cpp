#include "nn/attention/sparse_attention.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "autograd/ops/attention.h"
#include "core/error.h"
#include "core/philox.h"
#include "nn/attention/attend.h"

namespace zinc::nn {
namespace {

using Seen = std::vector<uint8_t>;

// The layout of one head under way: rows of queries, columns of keys.
struct Plane {
  const SparsityConfig& config;
  const LayoutExtent& extent;
  int64_t head, n;
  Seen seen;

  bool is_unidirectional() const { return config.direction() == SparsityDirection::unidirectional; }
  void see(int64_t row, int64_t column) { seen[static_cast<size_t>(row * n + column)] = 1; }
  // Rows [first, end) see columns [begin, stop).
  void see(int64_t first, int64_t end, int64_t begin, int64_t stop) {
    for (int64_t row = first; row < end; ++row) {
      for (int64_t column = begin; column < stop; ++column) see(row, column);
    }
  }
  void hide_later() {
    for (int64_t row = 0; row < n; ++row) {
      std::fill(seen.begin() + row * n + row + 1, seen.begin() + (row + 1) * n, uint8_t{0});
    }
  }
  void need(std::string_view key, int64_t blocks) const {
    if (n >= blocks) return;
    throw ConfigError(str("sparse_attention.", key, ": ", blocks, " blocks of ", config.block,
                          " do not fit a sequence of ", n, "; take at most ", n,
                          ", or longer sequences"));
  }
};

// Rows of a window [first, end) see the window, or its part up to themselves.
void see_window(Plane& plane, int64_t first, int64_t end) {
  for (int64_t row = first; row < end; ++row) {
    plane.see(row, row + 1, first, plane.is_unidirectional() ? row + 1 : end);
  }
}

void see_band(Plane& plane) {
  const int64_t blocks = plane.config.num_sliding_window_blocks, reach = blocks / 2;
  plane.need("num_sliding_window_blocks", blocks);
  for (int64_t row = 0; row < plane.n; ++row) {
    plane.see(row, row + 1, std::max<int64_t>(0, row - reach), std::min(row + reach + 1, plane.n));
  }
}

// Each row sees num_random_blocks different ones of the columns that it may draw, or all of them.
// With `earlier`, those are the columns up to the row's own.
void see_random(Plane& plane, bool earlier) {
  const int64_t count = plane.config.num_random_blocks;
  plane.need("num_random_blocks", count);
  std::vector<int64_t> columns(static_cast<size_t>(plane.n));
  const auto head = static_cast<uint64_t>(plane.head);
  for (int64_t row = 0; row < plane.n && count > 0; ++row) {
    const RandomKey key = make_random_key(plane.extent.seed, Purpose::sparsity, head,
                                          static_cast<uint64_t>(row), plane.extent.site);
    const int64_t from = earlier ? row + 1 : plane.n;
    std::iota(columns.begin(), columns.end(), int64_t{0});
    for (int64_t i = 0; i < std::min(count, from); ++i) {
      // The first i are drawn; one of the others is next.
      const double left = static_cast<double>(from - i);
      const auto draw =
          static_cast<int64_t>(static_cast<double>(key.uniform(static_cast<uint64_t>(i))) * left);
      std::swap(columns[static_cast<size_t>(i)],
                columns[static_cast<size_t>(i + std::min(draw, from - i - 1))]);
      plane.see(row, columns[static_cast<size_t>(i)]);
    }
  }
}

// visit(begin, end) for the columns of each entry of global_block_indices that the sequence has.
template <class Visit>
void for_each_global(const Plane& plane, const Visit& visit) {
  const SparsityConfig& config = plane.config;
  for (size_t i = 0; i < config.global_block_indices.size(); ++i) {
    const int64_t begin = config.global_block_indices[i];
    const int64_t end =
        config.global_block_end_indices ? (*config.global_block_end_indices)[i] : begin + 1;
    if (begin < plane.n) visit(begin, std::min(end, plane.n));
  }
}

void draw_dense(Plane& plane) { plane.see(0, plane.n, 0, plane.n); }

void draw_fixed(Plane& plane) {
  const SparsityConfig& config = plane.config;
  const int64_t local = config.num_local_blocks, global = config.num_global_blocks, n = plane.n;
  plane.need("num_global_blocks", global);
  for (int64_t first = 0; first < n; first += local) {
    see_window(plane, first, std::min(first + local, n));
  }
  const int64_t pattern = plane.head % config.num_different_global_patterns;
  const int64_t offset = local - (1 + pattern) * global;
  const auto see_global = [&](int64_t begin) {
    plane.see(plane.is_unidirectional() ? begin : 0, n, begin, begin + global);
    if (config.horizontal_global_attention) plane.see(begin, begin + global, 0, n);
  };
  const int64_t end_of_whole = n - n % local;
  for (int64_t first = 0; first < end_of_whole; first += local) see_global(first + offset);
  // A window that is cut off has its last blocks.
  if (end_of_whole < n) see_global(std::min(end_of_whole + offset, n - global));
}

void draw_variable(Plane& plane) {
  const SparsityConfig& config = plane.config;
  see_random(plane, false);
  int64_t first = 0;
  for (size_t i = 0; first < plane.n; ++i) {
    const int64_t blocks =
        config.local_window_blocks[std::min(i, config.local_window_blocks.size() - 1)];
    see_window(plane, first, std::min(first + blocks, plane.n));
    first += blocks;
  }
  for_each_global(plane, [&](int64_t begin, int64_t end) {
    if (config.horizontal_global_attention) plane.see(begin, end, 0, plane.n);
    plane.see(plane.is_unidirectional() ? begin : 0, plane.n, begin, end);
  });
}

void draw_bigbird(Plane& plane) {
  const int64_t global = plane.config.num_global_blocks;
  see_random(plane, plane.is_unidirectional());
  see_band(plane);
  plane.need("num_global_blocks", global);
  plane.see(0, global, 0, plane.n);
  plane.see(0, plane.n, 0, global);
  if (plane.is_unidirectional()) plane.hide_later();
}

void draw_bslongformer(Plane& plane) {
  see_band(plane);
  for_each_global(plane, [&](int64_t begin, int64_t end) {
    plane.see(begin, end, 0, plane.n);
    plane.see(0, plane.n, begin, end);
  });
  if (plane.is_unidirectional()) plane.hide_later();
}

void draw_band(Plane& plane) {
  see_band(plane);
  if (plane.is_unidirectional()) plane.hide_later();
}

// In the order of SparsityMode.
constexpr std::array<void (*)(Plane&), 6> kDraw{draw_dense,   draw_fixed,        draw_variable,
                                                draw_bigbird, draw_bslongformer, draw_band};

bool draws_at_random(const SparsityConfig& config) {
  return config.num_random_blocks > 0 &&
         (config.mode == SparsityMode::variable || config.mode == SparsityMode::bigbird);
}

template <class Visit>
void for_each_attention(Module& model, const Visit& visit) {
  for (Module* module : model.modules()) {
    if (auto* layer = dynamic_cast<AttentionLayer*>(module)) visit(*layer);
  }
}

// Pairs of a query and a key of one head that the layout hides among the first positions, and that
// causality does not hide.
int64_t hidden_pairs(const BlockLayout& layout, int64_t head, int64_t positions, bool causal) {
  const int64_t block = layout.block();
  const auto rows_of = [&](int64_t at) { return std::min(block, positions - at * block); };
  int64_t pairs = 0;
  for (int64_t row = 0; row * block < positions; ++row) {
    for (int64_t column = 0; column * block < positions; ++column) {
      if (layout.sees(head, row, column) || (causal && column > row)) continue;
      const int64_t rows = rows_of(row);
      pairs += causal && column == row ? rows * (rows + 1) / 2 : rows * rows_of(column);
    }
  }
  return pairs;
}

}  // namespace

BlockLayoutPtr make_layout(const SparsityConfig& config, const LayoutExtent& extent) {
  std::string problems;
  for (const SparsityProblem& problem : problems_of(config)) {
    problems +=
        str(problems.empty() ? "" : "\n", "sparse_attention.", problem.key, ": ", problem.text);
  }
  if (!problems.empty()) throw ConfigError(problems);
  const int64_t block = config.block, tokens = extent.tokens;
  if (tokens <= 0 || tokens % block != 0) {
    const int64_t below = tokens / block * block, above = below + block;
    throw ConfigError(str("sparse_attention.block: sequences of ", tokens,
                          " tokens do not consist of blocks of ", block, "; take sequences of ",
                          below > 0 ? str(below, " or ") : "", above));
  }
  const int64_t n = tokens / block;
  const int64_t heads = config.different_layout_per_head ? extent.heads : 1;
  Seen all;
  bool alike = true;
  for (int64_t head = 0; head < heads; ++head) {
    Plane plane{.config = config,
                .extent = extent,
                .head = head,
                .n = n,
                .seen = Seen(static_cast<size_t>(n * n), 0)};
    kDraw.at(static_cast<size_t>(config.mode))(plane);
    alike = alike && (head == 0 || std::equal(plane.seen.begin(), plane.seen.end(), all.begin()));
    all.insert(all.end(), plane.seen.begin(), plane.seen.end());
  }
  if (alike) all.resize(static_cast<size_t>(n * n));
  return std::make_shared<const BlockLayout>(block, alike ? 1 : heads, n, all);
}

AttentionLayout::AttentionLayout(BlockLayoutPtr blocks)
    : blocks_(std::move(blocks)), words_([layout = blocks_](int64_t, DType) {
        return TensorList{autograd::make_layout_words(*layout)};
      }) {}

Tensor AttentionLayout::words() { return words_.get(1, DType::i32)[0]; }

void use_sparse_attention(Module& model, const SparsityConfig& config, const LayoutExtent& extent) {
  // Layers of equally many heads share a layout, unless each draws its own blocks.
  std::map<std::pair<int64_t, uint64_t>, std::shared_ptr<AttentionLayout>> made;
  for_each_attention(model, [&](AttentionLayer& layer) {
    LayoutExtent own = extent;
    own.heads = layer.form().heads;
    if (draws_at_random(config)) own.site = hash_text(layer.path());
    auto& layout = made[{own.heads, own.site}];
    if (layout == nullptr) {
      layout = std::make_shared<AttentionLayout>(make_layout(config, own));
    }
    layer.take_layout(layout);
  });
}

void use_dense_attention(Module& model) {
  for_each_attention(model, [](AttentionLayer& layer) { layer.take_layout(nullptr); });
}

bool hides_part_of(Module& model, const SparsityConfig& config) {
  const bool shows_later =
      config.mode == SparsityMode::dense || config.direction() == SparsityDirection::bidirectional;
  bool is_causal = false;
  for_each_attention(model, [&](AttentionLayer& layer) { is_causal |= layer.form().causal; });
  return shows_later && is_causal;
}

double hidden_flops_per_token(Module& model, int64_t sequence) {
  constexpr double kOperations = 12;  // two products, forward once and backward twice
  double flops = 0.0;
  for_each_attention(model, [&](AttentionLayer& layer) {
    const AttentionForm& form = layer.form();
    if (form.layout == nullptr) return;
    const BlockLayout& layout = *form.layout->blocks();
    const auto heads_alike = static_cast<double>(form.heads / layout.heads());
    for (int64_t h = 0; h < layout.heads(); ++h) {
      const int64_t pairs = hidden_pairs(layout, h, sequence, form.causal);
      flops += kOperations * heads_alike * static_cast<double>(form.head_dim * pairs) /
               static_cast<double>(sequence);
    }
  });
  return flops;
}

}  // namespace zinc::nn
