#include "kernels/cpu/attention_blocks.h"

#include <cstring>

namespace zinc::kernels::cpu {
namespace {

// One past the last key that queries before `end` may see by the causal mask, rounded up.
int64_t limit_of(const AttentionProblem& p, int64_t end) {
  if (!p.mask.causal) return p.Tk;
  constexpr int64_t kUnit = AttentionCut::kColumnUnit;
  return std::clamp<int64_t>((p.position(end) + kUnit - 1) / kUnit * kUnit, 0, p.Tk);
}

// The first key from which on a window lets queries from `first` on see keys, rounded down to a
// whole chunk.
int64_t first_key_of(const AttentionProblem& p, const AttentionCut& cut, int64_t first) {
  if (p.mask.window == 0) return 0;
  return std::max<int64_t>(0, p.position(first) - p.mask.window + 1) / cut.cols * cut.cols;
}

}  // namespace

int64_t KeyChunk::columns_before(int64_t key) const {
  int64_t columns = 0;
  for (const KeyRange& run : runs) {
    if (key <= run.begin) break;
    columns += std::min(key, run.end) - run.begin;
  }
  return columns;
}

AttentionBlocks::AttentionBlocks(const AttentionProblem& p, const AttentionCut& cut) {
  const bool alike = !p.mask.layout.blocks || p.mask.layout.blocks->heads() == 1;
  for (int64_t h = 0; h < p.H; ++h) {
    begin_of_head_.push_back(size());
    if (alike && h > 0) {
      for (int64_t i = 0; i < begin_of_head_[1]; ++i) {
        Queries same = (*this)[i];
        same.head = h;
        queries_.push_back(same);
      }
      continue;
    }
    for (int64_t first = 0; first < p.Tq;) {
      const int64_t end = end_of_rows(p, cut, h, first);
      const int64_t first_chunk = std::ssize(chunks_);
      add_chunks(p, cut, h, first, end);
      queries_.push_back({.head = h,
                          .first = first,
                          .rows = end - first,
                          .first_chunk = first_chunk,
                          .end_chunk = std::ssize(chunks_)});
      first = end;
    }
  }
  begin_of_head_.push_back(size());
}

int64_t AttentionBlocks::end_of_rows(const AttentionProblem& p, const AttentionCut& cut,
                                     int64_t head, int64_t first) {
  const int64_t most = std::min(first + cut.rows, p.Tq);
  if (!p.mask.layout.blocks) return most;
  const BlockLayout& layout = *p.mask.layout.blocks;
  const int64_t row = p.layout_row(first);
  int64_t end = p.end_of_layout_row(first);
  while (end < p.Tq) {
    const int64_t next = p.end_of_layout_row(end);
    if (next > most || !layout.has_equal_rows(p.layout_head(head), row, p.layout_row(end))) break;
    end = next;
  }
  return end;
}

void AttentionBlocks::add_chunks(const AttentionProblem& p, const AttentionCut& cut, int64_t head,
                                 int64_t first, int64_t end) {
  const KeyRange seen{first_key_of(p, cut, first), limit_of(p, end)};
  Chunk chunk{.first_run = runs_.size(), .num_runs = 0, .cols = 0};
  const auto close = [&] {
    if (chunk.num_runs > 0) chunks_.push_back(chunk);
    has_gathered_chunks_ = has_gathered_chunks_ || chunk.num_runs > 1;
    chunk = {.first_run = runs_.size(), .num_runs = 0, .cols = 0};
  };
  p.for_each_run(head, first, [&](const KeyRange& run) {
    const KeyRange keys = run.within(seen);
    for (int64_t begin = keys.begin; begin < keys.end;) {
      const int64_t stop = std::min(begin + cut.cols - chunk.cols, keys.end);
      runs_.push_back({begin, stop});
      ++chunk.num_runs;
      chunk.cols += stop - begin;
      if (chunk.cols == cut.cols) close();
      begin = stop;
    }
  });
  close();
}

KeyChunk AttentionBlocks::chunk(int64_t index) const {
  const Chunk& chunk = chunks_[static_cast<size_t>(index)];
  return {.runs = {runs_.data() + chunk.first_run, chunk.num_runs}, .cols = chunk.cols};
}

bool keys_in_chunk(const AttentionProblem& p, int64_t b, int64_t i, int64_t rows,
                   const KeyChunk& chunk, KeyRange* keys) {
  bool any = false;
  for (int64_t r = 0; r < rows; ++r) {
    const KeyRange all = p.keys_of(b, i + r);
    keys[r] = {chunk.columns_before(all.begin), chunk.columns_before(all.end)};
    any = any || !keys[r].empty();
  }
  return any;
}

const std::byte* rows_of_chunk(const AttentionProblem& p, const HeadsView& from, int64_t b,
                               int64_t head, const KeyChunk& chunk, std::byte* copy) {
  if (!chunk.is_gathered()) return element(from, from.at(b, chunk.first(), head), p.dtype);
  const auto bytes = static_cast<size_t>(p.D * size_of(p.dtype));
  std::byte* to = copy;
  for (const KeyRange& run : chunk.runs) {
    for (int64_t j = run.begin; j < run.end; ++j, to += bytes) {
      std::memcpy(to, element(from, from.at(b, j, head), p.dtype), bytes);
    }
  }
  return copy;
}

std::span<const ScoreSegment> segments_of(const KeyChunk& chunk, ScoreSegment* memory) {
  if (!chunk.is_gathered()) return {};
  int64_t column = 0;
  size_t count = 0;
  for (const KeyRange& run : chunk.runs) {
    memory[count++] = {.first_column = column, .shift = run.begin - chunk.first() - column};
    column += run.end - run.begin;
  }
  return {memory, count};
}

}  // namespace zinc::kernels::cpu
