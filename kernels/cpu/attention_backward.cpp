// Attention backward: a task owns a key head (b, g) and adds up its dk and dv in f32 over the query
// heads of the group and over blocks of queries, in order; dq of a block is finished on the way.
// Where key heads are few, kSplits tasks share one, each with every kSplits-th block of queries and
// with sums of its own, which are added in order at the end.
#include <algorithm>
#include <memory>

#include "core/parallel.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/block_convert.h"
#include "kernels/cpu/gemm_epilogue.h"

namespace zinc::kernels::cpu {
namespace {

constexpr AttentionCut kBackwardCut{.rows = 128, .cols = 512};
constexpr int64_t kMinTasks = 16;

struct BackwardProducts {
  BlockProductPtr scores;             // S = Q K^T
  BlockProductPtr dprobabilities;     // dP = dO V^T
  BlockProductPtr dv;                 // dV += P^T dO
  BlockProductPtr dk;                 // dK += dS^T Q
  BlockProductPtr dq_first, dq_more;  // dQ = dS K, dQ += dS K

  int64_t scratch_bytes() const {
    return std::max({scores->scratch_bytes(), dprobabilities->scratch_bytes(), dv->scratch_bytes(),
                     dk->scratch_bytes(), dq_first->scratch_bytes(), dq_more->scratch_bytes()});
  }
};

// One thread's memory.
struct BackwardBuffers {
  float *scores, *dprobabilities;
  std::byte *probabilities, *dscores;  // dtype of the problem
  float* dq;
  float *dk, *dv;  // [Tk, D], unless tasks have sums of their own
  float* delta;
  KeyRange* keys;
  ScoreSegment* segments;
  std::byte *gathered_keys, *gathered_values;  // [cols, D] of the problem's dtype
  float* gathered_sums;                        // [cols, D]
  std::byte* scratch;

  BackwardBuffers(Carver& carver, const AttentionProblem& p, int64_t cols, bool own_sums,
                  bool gathers, int64_t scratch_bytes) {
    scores = carver.take<float>(kBackwardCut.rows * block_stride(cols, 4));
    dprobabilities = carver.take<float>(kBackwardCut.rows * block_stride(cols, 4));
    if (p.dtype == DType::f32) {  // in place
      probabilities = reinterpret_cast<std::byte*>(scores);
      dscores = reinterpret_cast<std::byte*>(dprobabilities);
    } else {
      probabilities = carver.take<std::byte>(kBackwardCut.rows * block_stride(cols, 2) * 2);
      dscores = carver.take<std::byte>(kBackwardCut.rows * block_stride(cols, 2) * 2);
    }
    dq = carver.take<float>(kBackwardCut.rows * p.D);
    dk = carver.take<float>(own_sums ? 0 : p.Tk * p.D);
    dv = carver.take<float>(own_sums ? 0 : p.Tk * p.D);
    delta = carver.take<float>(kBackwardCut.rows);
    keys = carver.take<KeyRange>(kBackwardCut.rows);
    const int64_t gathered = gathers ? cols : 0;
    segments = carver.take<ScoreSegment>(gathered / BlockLayout::kSmallestBlock);
    gathered_keys = carver.take<std::byte>(gathered * p.D * size_of(p.dtype));
    gathered_values = carver.take<std::byte>(gathered * p.D * size_of(p.dtype));
    gathered_sums = carver.take<float>(gathered * p.D);
    scratch = carver.take<std::byte>(scratch_bytes);
  }
};

struct Backward {
  AttentionProblem p;
  AttentionGradients g;
  int64_t cols;  // columns of the largest block
  AttentionBlocks blocks;
  int64_t splits;               // tasks per key head
  bool over_batch, over_heads;  // an element of dbias is shared by batches, by heads
  ProductsByExtent<BackwardProducts> products;
  int64_t thread_bytes = 0;
  std::byte* workspace = nullptr;
  float* sums = nullptr;  // [B, G, 2 (dk, dv), splits, Tk, D] where splits > 1

  Backward(Context& context, const AttentionProblem& problem, const AttentionGradients& gradients)
      : p(problem),
        g(gradients),
        cols(std::min(kBackwardCut.cols, problem.Tk)),
        blocks(p, kBackwardCut),
        splits(choose_splits()),
        over_batch(g.dbias && p.bias_rows(g.dbias).batch == 0),
        over_heads(g.dbias && p.bias_rows(g.dbias).head == 0),
        products(blocks, [&](int64_t rows, int64_t block_cols, bool gathered) {
          return make(context, rows, block_cols, gathered);
        }) {
    Carver counter(nullptr);
    BackwardBuffers(counter, p, cols, splits > 1, blocks.has_gathered_chunks(),
                    products.scratch_bytes());
    thread_bytes = counter.used();
  }

  // The number of splits depends on the shape alone. Tasks that share elements of dbias are not
  // split.
  int64_t choose_splits() const {
    const int64_t tasks = p.B * p.G;
    const int64_t items = blocks.size() / std::max<int64_t>(p.G, 1);
    if (tasks >= kMinTasks || g.dbias) return 1;
    return std::clamp<int64_t>((kMinTasks + tasks - 1) / tasks, 1, std::max<int64_t>(items, 1));
  }
  int64_t sums_floats() const { return splits > 1 ? p.B * p.G * 2 * splits * p.Tk * p.D : 0; }
  float* own_sum(int64_t b, int64_t group, int64_t which, int64_t split) const {
    return sums + (((b * p.G + group) * 2 + which) * splits + split) * p.Tk * p.D;
  }
  int64_t narrow_stride() const { return block_stride(cols, size_of(p.dtype)); }

  BackwardProducts make(Context& context, int64_t rows, int64_t block_cols, bool gathered) const {
    const BlockShape scores{.m = rows,
                            .n = block_cols,
                            .k = p.D,
                            .lda = p.q.row,
                            .ldb = gathered ? p.D : p.k.row,
                            .ldc = block_stride(cols, 4),
                            .dtype = p.dtype,
                            .transpose_b = true};
    BlockShape dprobabilities = scores;
    dprobabilities.lda = g.dout.row;
    dprobabilities.ldb = gathered ? p.D : p.v.row;
    const BlockShape dv{.m = block_cols,
                        .n = p.D,
                        .k = rows,
                        .lda = narrow_stride(),
                        .ldb = g.dout.row,
                        .ldc = p.D,
                        .dtype = p.dtype,
                        .transpose_a = true,
                        .accumulate = !gathered};
    BlockShape dk = dv;
    dk.ldb = p.q.row;
    BlockShape dq{.m = rows,
                  .n = p.D,
                  .k = block_cols,
                  .lda = narrow_stride(),
                  .ldb = gathered ? p.D : p.k.row,
                  .ldc = p.D,
                  .dtype = p.dtype};
    BackwardProducts made;
    made.scores = block_product(context, scores);
    made.dprobabilities = block_product(context, dprobabilities);
    made.dv = block_product(context, dv);
    made.dk = block_product(context, dk);
    made.dq_first = block_product(context, dq);
    dq.accumulate = true;
    made.dq_more = block_product(context, dq);
    return made;
  }

  void run_block(const BackwardBuffers& buffers, int64_t b,
                 const AttentionBlocks::Queries& queries) const;
  void add_to_keys(const BlockProduct& product, const std::byte* scores, const std::byte* rows,
                   const KeyChunk& chunk, int64_t i, float* sum,
                   const BackwardBuffers& buffers) const;
  void run_key_head(const BackwardBuffers& buffers, int64_t b, int64_t group, int64_t split) const;
  void write_sums(const float* dk, const float* dv, int64_t b, int64_t group) const;
  void run() const;
};

// sum[j, :] += scores^T rows, for the keys j of the chunk. `i`: the first of the queries.
void Backward::add_to_keys(const BlockProduct& product, const std::byte* scores,
                           const std::byte* rows, const KeyChunk& chunk, int64_t i, float* sum,
                           const BackwardBuffers& buffers) const {
  if (!chunk.is_gathered()) {
    product.run_causal(scores, rows, sum + chunk.first() * p.D, buffers.scratch,
                       causal_cut(p, CausalCut::Plane::a, i, chunk));
    return;
  }
  product.run(scores, rows, buffers.gathered_sums, buffers.scratch);
  const float* from = buffers.gathered_sums;
  for (const KeyRange& run : chunk.runs) {
    const int64_t count = (run.end - run.begin) * p.D;
    add_elements(from, count, sum + run.begin * p.D);
    from += count;
  }
}

// One block of queries of one head: dq, and its share of dk and dv.
void Backward::run_block(const BackwardBuffers& buffers, int64_t b,
                         const AttentionBlocks::Queries& queries) const {
  const int64_t i = queries.first, rows = queries.rows, h = queries.head;
  const int64_t group = h / p.heads_per_group();
  const std::byte* q = element(p.q, p.q.at(b, i, h), p.dtype);
  const std::byte* dout = element(g.dout, g.dout.at(b, i, h), p.dtype);
  dot_rows(dout, g.dout.row, element(g.out, g.out.at(b, i, h), p.dtype), g.out.row, p.dtype, rows,
           p.D, buffers.delta);
  bool first = true;
  for (int64_t at = queries.first_chunk; at < queries.end_chunk; ++at) {
    const KeyChunk chunk = blocks.chunk(at);
    if (!keys_in_chunk(p, b, i, rows, chunk, buffers.keys)) continue;
    const BackwardProducts& product = products.at(rows, chunk);
    const std::byte* k = rows_of_chunk(p, p.k, b, group, chunk, buffers.gathered_keys);
    const CausalCut of_scores = causal_cut(p, CausalCut::Plane::c, i, chunk);
    product.scores->run_causal(q, k, buffers.scores, buffers.scratch, of_scores);
    product.dprobabilities->run_causal(
        dout, rows_of_chunk(p, p.v, b, group, chunk, buffers.gathered_values),
        buffers.dprobabilities, buffers.scratch, of_scores);
    ScoreBlock block = score_block(p, b, h, i, rows, chunk, buffers.keys, buffers.segments);
    block.scores = buffers.scores;
    block.stride = block_stride(cols, 4);
    block.probabilities = buffers.probabilities;
    block.probabilities_stride = narrow_stride();
    ScoreGradients gradients{.lse = static_cast<const float*>(g.lse) + p.lse_at(b, h, i),
                             .delta = buffers.delta,
                             .dprobabilities = buffers.dprobabilities,
                             .dscores = buffers.dscores,
                             .dscores_stride = narrow_stride()};
    if (g.dbias) {
      const AttentionProblem::BiasRows dbias = p.bias_rows(g.dbias);
      gradients.dbias = g.dbias.data_as<float>() + dbias.at(b, h, i) + chunk.first();
      gradients.dbias_stride = dbias.row;
    }
    softmax_block_backward(block, gradients);
    add_to_keys(*product.dv, buffers.probabilities, dout, chunk, i, buffers.dv, buffers);
    add_to_keys(*product.dk, buffers.dscores, q, chunk, i, buffers.dk, buffers);
    const BlockProduct& dq = first ? *product.dq_first : *product.dq_more;
    dq.run_causal(buffers.dscores, k, buffers.dq, buffers.scratch,
                  causal_cut(p, CausalCut::Plane::a, i, chunk));
    first = false;
  }
  if (first) std::fill_n(buffers.dq, rows * p.D, 0.0f);
  narrow_block(buffers.dq, rows, p.D, p.D, target_element(g.dq, g.dq.at(b, i, h), p.dtype), p.dtype,
               g.dq.row);
}

void Backward::run_key_head(const BackwardBuffers& buffers, int64_t b, int64_t group,
                            int64_t split) const {
  BackwardBuffers here = buffers;
  if (splits > 1) {
    here.dk = own_sum(b, group, 0, split);
    here.dv = own_sum(b, group, 1, split);
  }
  std::fill_n(here.dk, p.Tk * p.D, 0.0f);
  std::fill_n(here.dv, p.Tk * p.D, 0.0f);
  const int64_t begin = blocks.begin_of_head(group * p.heads_per_group());
  const int64_t end = blocks.begin_of_head((group + 1) * p.heads_per_group());
  for (int64_t item = begin + split; item < end; item += splits) run_block(here, b, blocks[item]);
  if (splits == 1) write_sums(here.dk, here.dv, b, group);
}

// Adds the splits' sums in order and rounds.
void Backward::write_sums(const float* dk, const float* dv, int64_t b, int64_t group) const {
  const auto write = [&](const float* sum, const HeadsView& target) {
    finish_tile({.rows = p.Tk,
                 .cols = p.D,
                 .slices = sum,
                 .slice_count = splits,
                 .slice_step = p.Tk * p.D,
                 .stride = p.D,
                 .dtype = p.dtype,
                 .c = target_element(target, target.at(b, 0, group), p.dtype),
                 .c_stride = target.row});
  };
  write(dk, g.dk);
  write(dv, g.dv);
}

void Backward::run() const {
  if (g.dbias) {
    float* dbias = g.dbias.data_as<float>();
    parallel_for(g.dbias.numel(), 1 << 16,
                 [&](int64_t begin, int64_t end) { std::fill(dbias + begin, dbias + end, 0.0f); });
  }
  const auto buffers = [&] {
    Carver carver(workspace + parallel_thread() * thread_bytes);
    return BackwardBuffers(carver, p, cols, splits > 1, blocks.has_gathered_chunks(),
                           products.scratch_bytes());
  };
  if (over_batch || over_heads) {
    // A task takes everything that adds to its elements of dbias.
    const int64_t batches = over_batch ? 1 : p.B;
    const int64_t groups = over_heads ? 1 : p.G;
    parallel_for(batches * groups, 1, [&](int64_t t, int64_t) {
      const BackwardBuffers mine = buffers();
      for (int64_t b = over_batch ? 0 : t / groups; b < (over_batch ? p.B : t / groups + 1); ++b) {
        for (int64_t h = over_heads ? 0 : t % groups; h < (over_heads ? p.G : t % groups + 1);
             ++h) {
          run_key_head(mine, b, h, 0);
        }
      }
    });
    return;
  }
  parallel_for(p.B * p.G * splits, 1, [&](int64_t t, int64_t) {
    run_key_head(buffers(), t / (p.G * splits), t / splits % p.G, t % splits);
  });
  if (splits == 1) return;
  parallel_for(p.B * p.G, 1, [&](int64_t t, int64_t) {
    const int64_t b = t / p.G;
    write_sums(own_sum(b, t % p.G, 0, 0), own_sum(b, t % p.G, 1, 0), b, t % p.G);
  });
}

}  // namespace

void run_attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients,
                            StreamRef stream) {
  constexpr auto kLabel = "attention_backward";
  if (problem.dtype == DType::f64) {
    if (problem.device.meta) return;
    stream.submit(kLabel, [=] { attention_backward_f64(problem, gradients); });
    return;
  }
  Context& context = Context::current();
  auto work = std::make_shared<Backward>(context, problem, gradients);
  const int64_t threads_bytes = num_parallel_threads() * work->thread_bytes;
  const Block workspace =
      context.allocator().allocate(threads_bytes + work->sums_floats() * int64_t{sizeof(float)},
                                   Tier::device, Label::workspace, stream);
  if (problem.device.meta) return;
  work->workspace = static_cast<std::byte*>(workspace.data());
  work->sums = reinterpret_cast<float*>(work->workspace + threads_bytes);
  stream.submit(kLabel, [work] { work->run(); });
}

}  // namespace zinc::kernels::cpu
