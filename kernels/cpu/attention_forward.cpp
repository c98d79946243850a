// Attention forward: parallel over (b, h, block of queries); a task goes over the blocks of keys
// with an online softmax. Reads q once and k and v once per block of queries, writes out once.
#include <cmath>
#include <limits>
#include <memory>

#include "core/parallel.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/narrow_product.h"

namespace zinc::kernels::cpu {
namespace {

constexpr AttentionCut kForwardCut{.rows = 128, .cols = 512};

struct ForwardProducts {
  BlockProductPtr scores;       // S = Q K^T
  BlockProductPtr first, more;  // O = P V, O += P V

  int64_t scratch_bytes() const {
    return std::max({scores->scratch_bytes(), first->scratch_bytes(), more->scratch_bytes()});
  }
};

// One thread's memory.
struct ForwardBuffers {
  float* scores;
  std::byte* probabilities;
  float* out;
  float *max, *sum, *correction;
  KeyRange* keys;
  ScoreSegment* segments;
  std::byte *gathered_keys, *gathered_values;  // [cols, D] of the problem's dtype
  std::byte* scratch;

  ForwardBuffers(Carver& carver, const AttentionProblem& p, int64_t cols, bool gathers,
                 int64_t scratch_bytes) {
    scores = carver.take<float>(kForwardCut.rows * block_stride(cols, 4));
    // f32 probabilities take the place of the scores.
    probabilities = p.dtype == DType::f32
                        ? reinterpret_cast<std::byte*>(scores)
                        : carver.take<std::byte>(kForwardCut.rows * block_stride(cols, 2) * 2);
    out = carver.take<float>(kForwardCut.rows * p.D);
    max = carver.take<float>(kForwardCut.rows);
    sum = carver.take<float>(kForwardCut.rows);
    correction = carver.take<float>(kForwardCut.rows);
    keys = carver.take<KeyRange>(kForwardCut.rows);
    const int64_t gathered = gathers ? cols : 0;
    segments = carver.take<ScoreSegment>(gathered / BlockLayout::kSmallestBlock);
    gathered_keys = carver.take<std::byte>(gathered * p.D * size_of(p.dtype));
    gathered_values = carver.take<std::byte>(gathered * p.D * size_of(p.dtype));
    scratch = carver.take<std::byte>(scratch_bytes);
  }
};

struct Forward {
  AttentionProblem p;
  HeadsView out;
  float* lse;
  int64_t cols;  // columns of the largest block
  AttentionBlocks blocks;
  ProductsByExtent<ForwardProducts> products;
  int64_t thread_bytes = 0;
  std::byte* workspace = nullptr;

  Forward(Context& context, const AttentionProblem& problem, const HeadsView& out_view,
          float* lse_data)
      : p(problem),
        out(out_view),
        lse(lse_data),
        cols(std::min(kForwardCut.cols, problem.Tk)),
        blocks(p, kForwardCut),
        products(blocks, [&](int64_t rows, int64_t block_cols, bool gathered) {
          return make(context, rows, block_cols, gathered);
        }) {
    Carver counter(nullptr);
    ForwardBuffers(counter, p, cols, blocks.has_gathered_chunks(), products.scratch_bytes());
    thread_bytes = counter.used();
  }

  int64_t probabilities_stride() const { return block_stride(cols, size_of(p.dtype)); }

  ForwardProducts make(Context& context, int64_t rows, int64_t block_cols, bool gathered) const {
    const BlockShape scores{.m = rows,
                            .n = block_cols,
                            .k = p.D,
                            .lda = p.q.row,
                            .ldb = gathered ? p.D : p.k.row,
                            .ldc = block_stride(cols, 4),
                            .dtype = p.dtype,
                            .transpose_b = true};
    BlockShape values{.m = rows,
                      .n = p.D,
                      .k = block_cols,
                      .lda = probabilities_stride(),
                      .ldb = gathered ? p.D : p.v.row,
                      .ldc = p.D,
                      .dtype = p.dtype};
    // With few queries (a decoder has one), keys and values are read once: nothing is copied first.
    const auto product = [&](const BlockShape& shape) {
      return p.Tq <= kMostNarrowRows ? make_narrow_product(shape) : block_product(context, shape);
    };
    ForwardProducts made;
    made.scores = product(scores);
    made.first = product(values);
    values.accumulate = true;
    made.more = product(values);
    return made;
  }

  void run_block(const ForwardBuffers& buffers, int64_t b,
                 const AttentionBlocks::Queries& queries) const {
    const int64_t i = queries.first, rows = queries.rows, h = queries.head;
    const int64_t g = h / p.heads_per_group();
    std::fill_n(buffers.max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(buffers.sum, rows, 0.0f);
    bool first = true;
    for (int64_t at = queries.first_chunk; at < queries.end_chunk; ++at) {
      const KeyChunk chunk = blocks.chunk(at);
      if (!keys_in_chunk(p, b, i, rows, chunk, buffers.keys)) continue;
      const ForwardProducts& product = products.at(rows, chunk);
      product.scores->run_causal(element(p.q, p.q.at(b, i, h), p.dtype),
                                 rows_of_chunk(p, p.k, b, g, chunk, buffers.gathered_keys),
                                 buffers.scores, buffers.scratch,
                                 causal_cut(p, CausalCut::Plane::c, i, chunk));
      ScoreBlock block = score_block(p, b, h, i, rows, chunk, buffers.keys, buffers.segments);
      block.scores = buffers.scores;
      block.stride = block_stride(cols, 4);
      block.probabilities = buffers.probabilities;
      block.probabilities_stride = probabilities_stride();
      softmax_block(block, buffers.max, buffers.sum, buffers.correction);
      if (!first) scale_rows(buffers.out, rows, p.D, buffers.correction);
      const BlockProduct& values = first ? *product.first : *product.more;
      values.run_causal(buffers.probabilities,
                        rows_of_chunk(p, p.v, b, g, chunk, buffers.gathered_values), buffers.out,
                        buffers.scratch, causal_cut(p, CausalCut::Plane::a, i, chunk));
      first = false;
    }
    if (first) std::fill_n(buffers.out, rows * p.D, 0.0f);
    divide_rows(buffers.out, rows, p.D, buffers.sum, target_element(out, out.at(b, i, h), p.dtype),
                p.dtype, out.row);
    if (lse == nullptr) return;
    for (int64_t r = 0; r < rows; ++r) {
      lse[p.lse_at(b, h, i + r)] = buffers.sum[r] == 0.0f
                                       ? -std::numeric_limits<float>::infinity()
                                       : buffers.max[r] + std::log(buffers.sum[r]);
    }
  }

  void run() const {
    parallel_for(p.B * blocks.size(), 1, [&](int64_t t, int64_t) {
      Carver carver(workspace + parallel_thread() * thread_bytes);
      const ForwardBuffers buffers(carver, p, cols, blocks.has_gathered_chunks(),
                                   products.scratch_bytes());
      run_block(buffers, t / blocks.size(), blocks[t % blocks.size()]);
    });
  }
};

}  // namespace

void run_attention_forward(const AttentionProblem& problem, const HeadsView& out, void* lse,
                           StreamRef stream) {
  constexpr auto kLabel = "attention";
  if (problem.dtype == DType::f64) {
    if (problem.device.meta) return;
    stream.submit(kLabel, [=] { attention_forward_f64(problem, out, static_cast<double*>(lse)); });
    return;
  }
  Context& context = Context::current();
  auto work = std::make_shared<Forward>(context, problem, out, static_cast<float*>(lse));
  const Block workspace = context.allocator().allocate(num_parallel_threads() * work->thread_bytes,
                                                       Tier::device, Label::workspace, stream);
  if (problem.device.meta) return;
  work->workspace = static_cast<std::byte*>(workspace.data());
  stream.submit(kLabel, [work] { work->run(); });
}

}  // namespace zinc::kernels::cpu
