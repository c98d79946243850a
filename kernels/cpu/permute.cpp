#include "kernels/permute.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/past_caches.h"

namespace zinc::kernels::cpu {
namespace {

// A dimension of y with its steps in both views, in elements.
struct Axis {
  int64_t extent = 1;
  int64_t x_step = 0;
  int64_t y_step = 0;
};

struct Plan {
  std::array<Axis, kMaxRank> outer{};  // all but the two below, outermost first
  int num_outer = 0;
  int64_t outer_count = 1;
  Axis column;  // innermost of y
  Axis row;     // innermost of x; where that is `column` too, the next of y
};

// The axes of y, neighbours merged where both views step evenly over them.
int merged_axes(const Permute& args, std::array<Axis, kMaxRank>& axes) {
  int count = 0;
  for (int d = 0; d < args.y.rank(); ++d) {
    const Axis next{args.y.dim(d), args.x.stride(args.order[static_cast<size_t>(d)]),
                    args.y.stride(d)};
    if (next.extent == 1) continue;
    if (count > 0) {
      Axis& last = axes[static_cast<size_t>(count - 1)];
      if (last.x_step == next.extent * next.x_step && last.y_step == next.extent * next.y_step) {
        last = {last.extent * next.extent, next.x_step, next.y_step};
        continue;
      }
    }
    axes[static_cast<size_t>(count++)] = next;
  }
  if (count == 0) axes[static_cast<size_t>(count++)] = {1, 1, 1};
  return count;
}

Plan make_plan(const Permute& args) {
  std::array<Axis, kMaxRank> axes;
  const int count = merged_axes(args, axes);
  Plan plan;
  plan.column = axes[static_cast<size_t>(count - 1)];
  int row = plan.column.x_step == 1 ? count - 2 : -1;
  for (int d = 0; d + 1 < count; ++d) {
    if (plan.column.x_step != 1 && axes[static_cast<size_t>(d)].x_step == 1) row = d;
  }
  for (int d = 0; d + 1 < count; ++d) {
    const Axis& axis = axes[static_cast<size_t>(d)];
    if (d == row) {
      plan.row = axis;
    } else {
      plan.outer[static_cast<size_t>(plan.num_outer++)] = axis;
      plan.outer_count *= axis.extent;
    }
  }
  return plan;
}

constexpr int64_t kTile = 32;

template <class T>
void copy_tile(const T* x, T* y, const Axis& row, const Axis& column, int64_t rows, int64_t cols,
               bool past) {
  if (column.x_step == 1) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    copy_runs(y, row.y_step * kSize, x, row.x_step * kSize, rows, cols * kSize, past);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      y[r * row.y_step + c] = x[r * row.x_step + c * column.x_step];
    }
  }
}

template <class T>
void run(const Permute& args) {
  const Plan plan = make_plan(args);
  const auto* x = static_cast<const T*>(args.x.data());
  auto* y = static_cast<T*>(args.y.data());
  const bool straight = plan.column.x_step == 1;
  const int64_t tile_cols = straight ? int64_t{1} << 14 : kTile;
  const int64_t col_tiles = (plan.column.extent + tile_cols - 1) / tile_cols;
  const int64_t row_tiles = (plan.row.extent + kTile - 1) / kTile;
  const int64_t tiles = plan.outer_count * row_tiles * col_tiles;
  const int64_t tile_size =
      std::min(plan.row.extent, kTile) * std::min(plan.column.extent, tile_cols);
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / (tile_size + 1));
  // Shorter runs were not faster past the caches.
  constexpr int64_t kLongRun = 1024;
  const bool past = straight && past_caches(args.y) &&
                    plan.column.extent * static_cast<int64_t>(sizeof(T)) >= kLongRun;
  parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t col = (tile % col_tiles) * tile_cols;
      const int64_t row = (tile / col_tiles % row_tiles) * kTile;
      int64_t rest = tile / (col_tiles * row_tiles);
      int64_t x_at = row * plan.row.x_step + col * plan.column.x_step;
      int64_t y_at = row * plan.row.y_step + col;
      for (int d = plan.num_outer - 1; d >= 0; --d) {
        const Axis& axis = plan.outer[static_cast<size_t>(d)];
        x_at += rest % axis.extent * axis.x_step;
        y_at += rest % axis.extent * axis.y_step;
        rest /= axis.extent;
      }
      copy_tile(x + x_at, y + y_at, plan.row, plan.column, std::min(kTile, plan.row.extent - row),
                std::min(tile_cols, plan.column.extent - col), past);
    }
    if (past) flush_past_caches();
  });
}

}  // namespace

void permute(const Permute& args) {
  switch (size_of(args.x.dtype())) {
    case 1:
      return run<uint8_t>(args);
    case 2:
      return run<uint16_t>(args);
    case 4:
      return run<uint32_t>(args);
    default:
      return run<uint64_t>(args);
  }
}

}  // namespace zinc::kernels::cpu
