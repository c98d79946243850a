// Matrix products of f32, bf16 and f16 on the CPU.
//
// Parallel over tiles of C (and slices of k) as gemm_plan cuts them; a task is one block product
// and then, unless slices wait to be summed or the product wrote C itself, the tile's epilogue out
// of the cache. Compulsory traffic only, beside partial sums in f32 where there are slices.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/error.h"
#include "core/parallel.h"
#include "kernels/cpu/block_product.h"
#include "kernels/cpu/gemm_epilogue.h"
#include "kernels/cpu/gemm_plan.h"
#include "kernels/cpu/narrow_product.h"
#include "kernels/matrix_product.h"

namespace zinc::kernels::cpu {
namespace {

constexpr int64_t kFinishedCols = 768;  // columns of a tile of slices that one task finishes

// One tile of one product of the batch.
struct Tile {
  int64_t index;  // in the batch
  int64_t i, j;   // first row and column
  int64_t rows, cols;
};

// The data that the tasks of a call share; immutable once made.
struct Work {
  MatrixProduct p;
  GemmPlan plan;
  // Index: three bits that tell whether m, n and k are those of the last tile or slice. Null: the
  // combination does not occur.
  std::array<BlockProductPtr, 8> products;
  bool direct = false;   // products go straight to C
  bool rounded = false;  // products write C rounded, with its bias
  int64_t buffer_stride = 0, buffer_bytes = 0;
  int64_t scratch_bytes = 0;
  int num_threads = 1;
  std::byte* workspace = nullptr;

  // The workspace: per thread [scratch], then buffers: one per thread, or with slices one per task.
  int64_t num_buffers() const {
    if (direct || p.k == 0) return 0;
    if (plan.k_slices > 1) return p.batch() * plan.tiles() * plan.k_slices;
    return num_threads;
  }
  int64_t workspace_bytes() const {
    return num_threads * scratch_bytes + num_buffers() * buffer_bytes;
  }
  int thread() const {
    const int thread = parallel_thread();
    bug_check(thread < num_threads, "gemm: runs on more threads than it was issued for");
    return thread;
  }
  std::byte* scratch() const { return workspace + thread() * scratch_bytes; }
  float* buffer(int64_t i) const {
    return reinterpret_cast<float*>(workspace + num_threads * scratch_bytes + i * buffer_bytes);
  }

  Tile tile(int64_t t) const {
    const int64_t i = t % plan.m_tiles * plan.tile_m;
    const int64_t j = t / plan.m_tiles % plan.n_tiles * plan.tile_n;
    return {.index = t / plan.tiles(),
            .i = i,
            .j = j,
            .rows = std::min(plan.tile_m, p.m - i),
            .cols = std::min(plan.tile_n, p.n - j)};
  }
  // A tile of one slice, to `sums` or, where products are rounded, to C.
  void multiply(const Tile& tile, int64_t slice, bool same_b, float* sums) const;
  void finish(const Tile& tile, const float* slices) const;
  int64_t c_at(const Tile& tile) const {
    return p.offset(tile.index, p.c_step) + tile.i * p.ldc + tile.j;
  }
  int64_t addend_at(const Tile& tile) const {
    return p.offset(tile.index, p.c_step) + tile.i * p.addend_stride + tile.j;
  }
  void run() const;
};

template <class Pointer>
Pointer* advance(Pointer* pointer, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<Pointer>, const std::byte, std::byte>;
  return pointer == nullptr ? nullptr : static_cast<Byte*>(pointer) + elements * size_of(dtype);
}

void Work::multiply(const Tile& tile, int64_t slice, bool same_b, float* sums) const {
  const int64_t q = slice * plan.slice_k;
  const bool last_m = tile.rows != plan.tile_m;
  const bool last_n = tile.cols != plan.tile_n;
  const bool last_k = p.k - q < plan.slice_k;
  const int64_t a_at = p.transpose_a ? q * p.lda + tile.i : tile.i * p.lda + q;
  const int64_t b_at = p.transpose_b ? tile.j * p.ldb + q : q * p.ldb + tile.j;
  const auto& product = products[static_cast<size_t>(last_m * 4 + last_n * 2 + last_k)];
  const auto* a = advance(p.a, p.offset(tile.index, p.a_step) + a_at, p.dtype);
  const auto* b = advance(p.b, p.offset(tile.index, p.b_step) + b_at, p.dtype);
  if (!rounded) return product->run(a, b, sums, scratch(), same_b);
  product->run_rounded(a, b, sums, scratch(), same_b,
                       {.c = advance(p.c, c_at(tile), p.c_dtype),
                        .ldc = p.ldc,
                        .bias = advance(p.bias, tile.j, p.bias_dtype),
                        .bias_dtype = p.bias_dtype});
}

void Work::finish(const Tile& tile, const float* slices) const {
  finish_tile({.rows = tile.rows,
               .cols = tile.cols,
               .slices = slices,
               .slice_count = plan.k_slices,
               .slice_step = buffer_bytes / static_cast<int64_t>(sizeof(float)),
               .stride = buffer_stride,
               .alpha = static_cast<float>(p.alpha),
               .beta = static_cast<float>(p.beta),
               .addend = advance(p.addend, addend_at(tile), p.c_dtype),
               .addend_stride = p.addend_stride,
               .bias = advance(p.bias, tile.j, p.bias_dtype),
               .bias_dtype = p.bias_dtype,
               .activation = p.activation,
               .dtype = p.c_dtype,
               .x = advance(p.x, tile.i * p.x_stride + tile.j, p.c_dtype),
               .x_stride = p.x_stride,
               .factor = advance(p.factor, tile.i * p.factor_stride + tile.j, p.c_dtype),
               .factor_stride = p.factor_stride,
               .factor_gradient = advance(p.factor_gradient,
                                          tile.i * p.factor_gradient_stride + tile.j, p.c_dtype),
               .factor_gradient_stride = p.factor_gradient_stride,
               .pre = advance(p.pre, tile.i * p.pre_stride + tile.j, p.c_dtype),
               .pre_stride = p.pre_stride,
               .c = advance(p.c, c_at(tile), p.c_dtype),
               .c_stride = p.ldc});
}

void Work::run() const {
  const int64_t tiles = p.batch() * plan.tiles();
  if (p.k == 0) {
    parallel_for(tiles, 1, [&](int64_t t, int64_t) { finish(tile(t), nullptr); });
    return;
  }
  if (plan.k_slices > 1) {
    parallel_for(tiles * plan.k_slices, 1, [&](int64_t t, int64_t) {
      multiply(tile(t / plan.k_slices), t % plan.k_slices, false, buffer(t));
    });
    const int64_t parts = (plan.tile_n - 1) / kFinishedCols + 1;
    parallel_for(tiles * parts, 1, [&](int64_t t, int64_t) {
      Tile part = tile(t / parts);
      const int64_t first = t % parts * kFinishedCols;
      if (first >= part.cols) return;
      part.j += first;
      part.cols = std::min(kFinishedCols, part.cols - first);
      finish(part, buffer(t / parts * plan.k_slices) + first);
    });
    return;
  }
  // A thread's tiles follow each other, along m first.
  std::vector<int64_t> last_column(static_cast<size_t>(num_threads), -1);
  parallel_for(tiles, 1, [&](int64_t t, int64_t) {
    const Tile here = tile(t);
    const int64_t column = t / plan.m_tiles;
    const bool same_b = std::exchange(last_column[static_cast<size_t>(thread())], column) == column;
    if (direct) {
      multiply(here, 0, same_b, static_cast<float*>(p.c) + c_at(here));
    } else {
      float* sums = buffer(thread());
      multiply(here, 0, same_b, sums);
      if (!rounded) finish(here, sums);
    }
  });
}

// Whether a product (accumulating where beta is 1) leaves C complete, without an epilogue.
bool goes_straight_to_c(const MatrixProduct& p, const GemmPlan& plan) {
  return p.c_dtype == DType::f32 && plan.k_slices == 1 && p.k > 0 && p.alpha == 1.0 &&
         (p.beta == 0.0 || (p.beta == 1.0 && p.addend == p.c)) && p.bias == nullptr &&
         p.activation == Activation::none;
}

// Whether only rounding, and adding a bias, turns a product into C.
bool is_rounded_by_product(const MatrixProduct& p, const GemmPlan& plan) {
  return !is_narrow(p) && rounds_its_output(p.dtype) && p.c_dtype == DType::bf16 &&
         plan.k_slices == 1 && p.k > 0 && p.alpha == 1.0 && p.beta == 0.0 &&
         p.activation == Activation::none;
}

void make_products(Context& context, Work& work) {
  const MatrixProduct& p = work.p;
  const GemmPlan& plan = work.plan;
  const auto last = [](int64_t extent, int64_t part) {
    return extent - (extent - 1) / part * part;
  };
  for (size_t edge = 0; edge < 8; ++edge) {
    BlockShape shape{.m = edge & 4 ? last(p.m, plan.tile_m) : plan.tile_m,
                     .n = edge & 2 ? last(p.n, plan.tile_n) : plan.tile_n,
                     .k = edge & 1 ? last(p.k, plan.slice_k) : plan.slice_k,
                     .lda = p.lda,
                     .ldb = p.ldb,
                     .ldc = work.direct ? p.ldc : work.buffer_stride,
                     .dtype = p.dtype,
                     .transpose_a = p.transpose_a,
                     .transpose_b = p.transpose_b,
                     .accumulate = work.direct && p.beta == 1.0};
    const bool repeats = ((edge & 4) != 0 && shape.m == plan.tile_m) ||
                         ((edge & 2) != 0 && shape.n == plan.tile_n) ||
                         ((edge & 1) != 0 && shape.k == plan.slice_k);
    if (repeats) continue;
    work.products[edge] = is_narrow(p) ? make_narrow_product(shape) : block_product(context, shape);
    const int64_t bytes = (work.products[edge]->scratch_bytes() + 63) / 64 * 64;
    work.scratch_bytes = std::max(work.scratch_bytes, bytes);
  }
}

}  // namespace

void run_product(const MatrixProduct& product, const char* label, StreamRef stream) {
  if (product.dtype == DType::f64) {
    if (!product.device.meta) stream.submit(label, [=] { run_product_f64(product); });
    return;
  }
  Context& context = Context::current();
  auto work = std::make_shared<Work>();
  work->p = product;
  const bool reads_rows = is_narrow(product) && !product.transpose_b;
  work->plan =
      (reads_rows ? plan_rows : plan_gemm)(product.m, product.n, product.k, product.batch());
  if (!is_narrow(product) && bits_hang_on_k_alone(product.dtype)) {
    work->plan = retile(work->plan, product.batch(), product.transpose_a, num_parallel_threads());
  }
  work->direct = goes_straight_to_c(product, work->plan);
  work->rounded = is_rounded_by_product(product, work->plan);
  work->num_threads = num_parallel_threads();
  work->buffer_stride = tile_stride(work->plan.tile_n);
  work->buffer_bytes = work->plan.tile_m * work->buffer_stride * int64_t{sizeof(float)};
  if (product.k > 0) make_products(context, *work);
  Block workspace =
      context.allocator().allocate(work->workspace_bytes(), Tier::device, Label::workspace, stream);
  if (product.device.meta) return;
  work->workspace = static_cast<std::byte*>(workspace.data());
  stream.submit(label, [work] { work->run(); });
}

}  // namespace zinc::kernels::cpu
