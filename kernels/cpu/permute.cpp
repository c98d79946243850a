#include "kernels/permute.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_ids.h"

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
    }
  }
  return plan;
}

constexpr int64_t kTile = 32;
constexpr int64_t kStraightBytes = 1024;  // bytes of a tile of runs that are copied as they are

// The loops over tiles, outermost first, and the size of a tile. Steps are those of whole tiles.
struct TileLoops {
  std::array<Axis, kMaxRank + 2> axis{};
  int count = 0;
  int row = 0;     // index of the axis of the tiles' rows
  int column = 0;  // index of the axis of the tiles' columns
  int64_t tile_rows = kTile;
  int64_t tile_cols = kTile;
  int64_t tiles = 1;

  void add(const Axis& next) {
    axis[static_cast<size_t>(count++)] = next;
    tiles *= next.extent;
  }
};

struct TileAt {
  int64_t x = 0;  // elements
  int64_t y = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

// Where runs of x are copied as they are, tiles follow each other in the order of x in memory:
// neighbouring parts of rows are then read soon after each other.
TileLoops make_loops(const Plan& plan, int64_t element_bytes) {
  const bool straight = plan.column.x_step == 1;
  TileLoops loops;
  if (straight) {
    const int64_t run = std::max<int64_t>(1, plan.column.extent * element_bytes);
    loops.tile_rows = std::clamp<int64_t>(kStraightBytes / run, 4, kTile);
    loops.tile_cols = int64_t{1} << 14;
  }
  const Axis rows{(plan.row.extent + loops.tile_rows - 1) / loops.tile_rows,
                  plan.row.x_step * loops.tile_rows, plan.row.y_step * loops.tile_rows};
  const auto is_inner = [&](const Axis& axis) { return straight && axis.x_step < plan.row.x_step; };
  for (int d = 0; d < plan.num_outer; ++d) {
    if (!is_inner(plan.outer[static_cast<size_t>(d)])) {
      loops.add(plan.outer[static_cast<size_t>(d)]);
    }
  }
  loops.row = loops.count;
  loops.add(rows);
  for (int d = 0; d < plan.num_outer; ++d) {
    if (is_inner(plan.outer[static_cast<size_t>(d)])) loops.add(plan.outer[static_cast<size_t>(d)]);
  }
  loops.column = loops.count;
  loops.add({(plan.column.extent + loops.tile_cols - 1) / loops.tile_cols,
             plan.column.x_step * loops.tile_cols, loops.tile_cols});
  return loops;
}

TileAt locate(const Plan& plan, const TileLoops& loops, int64_t tile) {
  TileAt at;
  for (int d = loops.count - 1; d >= 0; --d) {
    const Axis& axis = loops.axis[static_cast<size_t>(d)];
    const int64_t k = tile % axis.extent;
    tile /= axis.extent;
    at.x += k * axis.x_step;
    at.y += k * axis.y_step;
    if (d == loops.row) {
      at.rows = std::min(loops.tile_rows, plan.row.extent - k * loops.tile_rows);
    }
    if (d == loops.column) {
      at.cols = std::min(loops.tile_cols, plan.column.extent - k * loops.tile_cols);
    }
  }
  return at;
}

// y is stored past the caches in long runs, or in short ones that together fill their lines.
bool runs_past_caches(const Permute& args, const Plan& plan, int64_t element_bytes) {
  constexpr int64_t kLongRun = 1024;
  constexpr int64_t kLine = 64;
  const int64_t run = plan.column.extent * element_bytes;
  const bool lines = plan.row.y_step == plan.column.extent && run % kLine == 0 &&
                     reinterpret_cast<uintptr_t>(args.y.data()) % kLine == 0;
  return plan.column.x_step == 1 && past_caches(args.y) && (run >= kLongRun || lines);
}

template <class T>
void copy_tile(const T* x, T* y, const Plan& plan, const TileAt& tile, bool past) {
  const Axis& row = plan.row;
  if (plan.column.x_step == 1) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    copy_runs(y, row.y_step * kSize, x, row.x_step * kSize, tile.rows, tile.cols * kSize, past);
    return;
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t c = 0; c < tile.cols; ++c) {
      y[r * row.y_step + c] = x[r * row.x_step + c * plan.column.x_step];
    }
  }
}

// Asks the cache for x in its order, a block of rows ahead of the tile: the runs of a tile lie too
// far apart for the hardware to foresee them. No more than x is asked for.
class ReadAhead {
 public:
  ReadAhead(const Permute& args, const TileLoops& loops)
      : x_(static_cast<const std::byte*>(args.x.data())), bytes_(args.x.bytes()) {
    int64_t tiles = 1;  // tiles of a block of rows
    for (int d = loops.row + 1; d < loops.count; ++d) {
      tiles *= loops.axis[static_cast<size_t>(d)].extent;
    }
    distance_ = loops.axis[static_cast<size_t>(loops.row)].x_step * size_of(args.x.dtype());
    share_ = args.x.is_contiguous() ? distance_ / tiles : 0;
  }
  // Call it for every tile.
  void operator()(int64_t tile) const {
    const int64_t first = tile * share_ + distance_;
    prefetch_row(x_ + first, std::min(share_, bytes_ - first));
  }

 private:
  const std::byte* x_;
  int64_t bytes_;
  int64_t distance_ = 0;
  int64_t share_ = 0;
};

template <class T>
void run(const Permute& args) {
  const Plan plan = make_plan(args);
  const TileLoops loops = make_loops(plan, static_cast<int64_t>(sizeof(T)));
  const auto* x = static_cast<const T*>(args.x.data());
  auto* y = static_cast<T*>(args.y.data());
  const int64_t tile_size =
      std::min(plan.row.extent, loops.tile_rows) * std::min(plan.column.extent, loops.tile_cols);
  const ReadAhead ahead(args, loops);
  const bool past = runs_past_caches(args, plan, static_cast<int64_t>(sizeof(T)));
  const int64_t grain = std::max<int64_t>(1, past_caches_grain(1 << 14, past) / (tile_size + 1));
  parallel_for(loops.tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      if (past) ahead(tile);
      const TileAt at = locate(plan, loops, tile);
      copy_tile(x + at.x, y + at.y, plan, at, past);
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
