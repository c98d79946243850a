#include "nn/sequence_ranks.h"

#include <algorithm>
#include <numeric>

#include "autograd/ops/concat.h"
#include "autograd/ops/split.h"
#include "core/error.h"
#include "core/philox.h"

namespace zinc::nn {

std::string_view name_of(SequenceExchange value) {
  switch (value) {
    case SequenceExchange::heads:
      return "heads";
    case SequenceExchange::keys:
      return "keys";
    case SequenceExchange::ring:
      return "ring";
  }
  return "?";
}

std::vector<TokenRun> token_runs(const SequenceRanks& ranks, int rank, int64_t T) {
  const int64_t size = ranks.size();
  const bool has_chunks = keeps_queries(ranks.exchange());
  const int64_t parts = parts_of_sequence(ranks.exchange(), size);
  if (T % parts != 0) {
    throw ConfigError(str("zinc.mesh.sequence: ", size, " ranks",
                          has_chunks ? " that keep their queries" : "",
                          " cannot share sequences of ", T, " tokens; take a length that ", parts,
                          " divides, or other ranks"));
  }
  const int64_t count = T / parts;
  if (!has_chunks) return {{rank * count, count}};
  return {{rank * count, count}, {(parts - 1 - rank) * count, count}};
}

Tensor part_of_sequence(const SequenceRanks* ranks, const Tensor& whole) {
  if (ranks == nullptr) return whole;
  std::vector<Tensor> parts;
  for (const auto& [begin, count] : token_runs(*ranks, ranks->rank(), whole.dim(1))) {
    parts.push_back(whole.narrow_view(1, begin, count));
  }
  return parts.size() == 1 ? parts.front().clone() : autograd::concat(parts, 1);
}

Tensor own_positions(const SequenceRanks& ranks, int64_t B, int64_t T) {
  std::vector<int32_t> row;
  for (const auto& [begin, count] : token_runs(ranks, ranks.rank(), T)) {
    row.resize(row.size() + static_cast<size_t>(count));
    std::iota(row.end() - count, row.end(), static_cast<int32_t>(begin));
  }
  std::vector<int32_t> all;
  for (int64_t b = 0; b < B; ++b) all.insert(all.end(), row.begin(), row.end());
  return Tensor::from<int32_t>(all, {B, std::ssize(row)});
}

Tensor attend_to_all(SequenceRanks& ranks, const Tensor& q, const Tensor& k_and_v,
                     const autograd::AttentionOptions& how) {
  if (ranks.exchange() == SequenceExchange::ring) return ranks.attend_in_ring(q, k_and_v, how);
  const int64_t T = q.dim(1) * ranks.size(), width = k_and_v.dim(2) / 2;
  const Tensor all = ranks.of_all_tokens(k_and_v);
  const std::vector<TokenRun> runs = token_runs(ranks, ranks.rank(), T);
  std::vector<int64_t> counts;
  for (const TokenRun& run : runs) counts.push_back(run.count);
  const std::vector<Tensor> queries = autograd::split(q, counts, 1);
  std::vector<Tensor> mixed;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& [begin, count] = runs[i];
    const std::vector<Tensor> seen =
        autograd::split(autograd::narrow(all, 1, 0, begin + count), {width, width}, 2);
    autograd::AttentionOptions own = how;
    if (how.key_begin.defined()) own.key_begin = how.key_begin.narrow_view(1, begin, count).clone();
    own.site = combine_bits(how.site, static_cast<uint64_t>(begin));
    mixed.push_back(autograd::attention(queries[i], seen[0], seen[1], own));
  }
  return autograd::concat(mixed, 1);
}

LocalHeads LocalHeads::of(std::string_view path, int64_t heads, int64_t kv_heads,
                          const TensorRanks* tensor, const SequenceRanks* sequence) {
  const int64_t slices = tensor == nullptr ? 1 : tensor->size();
  LocalHeads local{heads / slices, std::max<int64_t>(kv_heads / slices, 1), 0};
  if (tensor != nullptr) local.first = local.heads * tensor->rank();
  if (sequence == nullptr || keeps_queries(sequence->exchange())) return local;
  const int64_t size = sequence->size();
  if (local.heads % size != 0 || local.kv_heads % size != 0) {
    throw ConfigError(str(path, ": ", local.heads, " heads with ", local.kv_heads,
                          " heads of keys and values", slices > 1 ? " of a tensor rank" : "",
                          " cannot be shared by ", size,
                          " ranks; take a zinc.mesh.sequence that divides both, or "
                          "zinc.sequence_exchange \"ring\" or \"keys\""));
  }
  local.heads /= size;
  local.kv_heads /= size;
  local.first += local.heads * sequence->rank();
  return local;
}

}  // namespace zinc::nn
