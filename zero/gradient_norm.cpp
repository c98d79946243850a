#include "zero/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/transfer.h"
#include "kernels/finite_norm.h"
#include "tensor/tensor.h"
#include "zero/host_memory.h"
#include "zero/host_stream.h"

namespace zinc::zero {
namespace {

static_assert(kNormChunk == kernels::kNormChunk);

// Chunks of `placement`, counted from its own start, that lie in `range` of the arena.
Range chunks_inside(const Placement& placement, const Range& range) {
  const Range inside = intersect(placement.range(), range);
  if (inside.empty()) return {0, 0};
  return {(inside.begin - placement.offset) / kNormChunk,
          (inside.end - placement.offset + kNormChunk - 1) / kNormChunk};
}

template <class Visit>
void for_each_piece(const ShardGroup& group, const OwnedRange& owned, const Visit& visit) {
  for (size_t i = 0; i < group.placements().size(); ++i) {
    const Placement& placement = group.placements()[i];
    if (!is_trained(placement.segment)) continue;
    const Range chunks = chunks_inside(placement, owned.range);
    if (!chunks.empty())
      visit(ParameterIndex{group.index(), static_cast<int>(i)}, placement, chunks);
  }
}

int64_t num_subtrees(const Range& chunks) {
  return static_cast<int64_t>(kernels::chunk_subtrees(chunks.begin, chunks.end).size());
}

}  // namespace

GradientNorm::GradientNorm(const std::vector<ShardGroup>& groups,
                           std::vector<std::vector<OwnedRange>> owned,
                           comm::Communicator& communicator, Context& context)
    : groups_(groups),
      owned_(std::move(owned)),
      nodes_(owned_.size()),
      communicator_(communicator),
      context_(context) {
  bug_check(owned_.size() == 1 || static_cast<int>(owned_.size()) == communicator.size(),
            "gradient norm: ranges of ", owned_.size(), " ranks in a world of ",
            communicator.size());
  for (size_t rank = 0; rank < owned_.size(); ++rank) {
    for (const OwnedRange& piece : owned_[rank]) {
      bug_check(piece.range.begin % kNormChunk == 0 && piece.range.end % kNormChunk == 0,
                "gradient norm: a range that cuts a chunk");
      for_each_piece(
          groups_[static_cast<size_t>(piece.group)], piece,
          [&](ParameterIndex index, const Placement&, Range chunks) {
            for (const auto& subtree : kernels::chunk_subtrees(chunks.begin, chunks.end)) {
              nodes_[rank].push_back({index, subtree});
            }
          });
    }
  }
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    for (size_t i = 0; i < nodes_[rank].size(); ++i) {
      leaves_.push_back({nodes_[rank][i], static_cast<int>(rank), i});
    }
  }
  std::stable_sort(leaves_.begin(), leaves_.end(), [](const Leaf& a, const Leaf& b) {
    const auto key = [](const Leaf& leaf) {
      return std::tuple(leaf.node.parameter.group, leaf.node.parameter.position,
                        leaf.node.subtree.first);
    };
    return key(a) < key(b);
  });
}

int64_t GradientNorm::longest() const {
  size_t most = 0;
  for (const auto& nodes : nodes_) most = std::max(most, nodes.size());
  return static_cast<int64_t>(most);
}

int64_t GradientNorm::num_nodes(const OwnedRange& owned) const {
  int64_t count = 0;
  for_each_piece(
      groups_[static_cast<size_t>(owned.group)], owned,
      [&](ParameterIndex, const Placement&, Range chunks) { count += num_subtrees(chunks); });
  return count;
}

GradientNorm::Room GradientNorm::take(const ConstView& like, int64_t numel, DType dtype) {
  const bool on_gpu = context_.device().is_cuda();
  const Tier tier = on_gpu ? like.tier() : Tier::device;  // a CPU computes in its own arena
  Room room;
  room.block = context_.allocate(numel * size_of(dtype), Label::workspace, tier);
  room.view = host_memory(View(room.block.data(), dtype, Shape{numel}, context_.device(), tier));
  return room;
}

void GradientNorm::queue_sums(const OwnedRange& owned, const ConstView& gradient, const View& out,
                              StreamRef stream) {
  const Room chunk_sums = take(gradient, kernels::num_norm_chunks(gradient.numel()), DType::f64);
  const Room nonfinite = take(gradient, 1, DType::i64);
  order(context_.compute(), stream);
  kernels::finite_norm({.x = host_memory(gradient),
                        .chunk_sums = chunk_sums.view,
                        .first_nonfinite = nonfinite.view},
                       stream);
  int64_t done = 0;
  for_each_piece(groups_[static_cast<size_t>(owned.group)], owned,
                 [&](ParameterIndex, const Placement& placement, Range chunks) {
                   const int64_t first =
                       (placement.offset - owned.range.begin) / kNormChunk + chunks.begin;
                   const int64_t count = num_subtrees(chunks);
                   kernels::chunk_tree_sum({.sums = chunk_sums.view.narrow(0, first, chunks.size()),
                                            .begin = chunks.begin,
                                            .root = false,
                                            .out = out.narrow(0, done, count)},
                                           stream);
                   done += count;
                 });
  order(stream, context_.compute());  // before the rooms have another owner
}

std::vector<double> GradientNorm::measure_own(const std::vector<ConstView>& gradients) {
  const size_t me = this->me();
  bug_check(gradients.size() == owned_[me].size(), "gradient norm: ", gradients.size(),
            " gradients for ", owned_[me].size(), " ranges");
  // Sums of one tier lie side by side, so that the host waits for each tier once.
  struct Part {
    size_t gradient = 0;
    int64_t first = 0, count = 0;
  };
  std::map<Tier, std::vector<Part>> parts;
  std::vector<double> sums(nodes_[me].size());
  int64_t first = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t count = num_nodes(owned_[me][i]);
    parts[gradients[i].tier()].push_back({i, first, count});
    first += count;
  }
  for (const auto& [tier, of_tier] : parts) {
    const StreamRef stream = tier == Tier::pinned_host ? host_stream(context_) : context_.compute();
    int64_t total = 0;
    for (const Part& part : of_tier) total += part.count;
    const Room room = take(gradients[of_tier.front().gradient], total, DType::f64);
    int64_t at = 0;
    for (const Part& part : of_tier) {
      queue_sums(owned_[me][part.gradient], gradients[part.gradient],
                 room.view.narrow(0, at, part.count), stream);
      at += part.count;
    }
    std::vector<double> values(static_cast<size_t>(total));
    download(room.view, values.data(), stream);
    at = 0;
    for (const Part& part : of_tier) {
      std::copy_n(values.begin() + at, part.count, sums.begin() + part.first);
      at += part.count;
    }
  }
  return sums;
}

std::vector<std::vector<double>> GradientNorm::exchange(const std::vector<double>& own) {
  if (owned_.size() == 1) return {own};
  const int64_t length = longest();
  std::vector<double> padded = own;
  padded.resize(static_cast<size_t>(length), 0.0);
  const Tensor mine = Tensor::from<double>(std::span<const double>(padded), {length});
  const Tensor all = Tensor::empty({length * communicator_.size()}, DType::f64, Label::workspace);
  communicator_.all_gather({.shard = mine.view(), .out = all.view()}, context_.compute()).wait();
  const std::vector<double> values = all.to_vector<double>();
  std::vector<std::vector<double>> by_rank;
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    const auto begin = values.begin() + static_cast<int64_t>(rank) * length;
    by_rank.emplace_back(begin, begin + static_cast<int64_t>(nodes_[rank].size()));
  }
  return by_rank;
}

NormResult GradientNorm::measure(const std::vector<ConstView>& gradients) {
  const std::vector<std::vector<double>> sums = exchange(measure_own(gradients));
  if (context_.device().meta) return {.sum_of_squares = 1.0};

  double sum_of_squares = 0.0;
  int64_t first_nonfinite = -1;
  for (size_t begin = 0; begin < leaves_.size();) {
    size_t end = begin;
    std::vector<kernels::ChunkSubtree> subtrees;
    std::vector<double> values;
    for (; end < leaves_.size() && leaves_[end].node.parameter == leaves_[begin].node.parameter;
         ++end) {
      const Leaf& leaf = leaves_[end];
      subtrees.push_back(leaf.node.subtree);
      values.push_back(sums[static_cast<size_t>(leaf.rank)][leaf.place]);
      if (!std::isfinite(values.back()) && first_nonfinite < 0) {
        first_nonfinite = static_cast<int64_t>(end);
      }
    }
    sum_of_squares += kernels::combine_chunk_subtrees(subtrees, values);
    begin = end;
  }
  return result(sum_of_squares, first_nonfinite);
}

void GradientNorm::queue(const std::vector<ConstView>& gradients, const View& sums) {
  const std::vector<OwnedRange>& owned = owned_[me()];
  bug_check(gradients.size() == owned.size(), "gradient norm: ", gradients.size(),
            " gradients for ", owned.size(), " ranges");
  int64_t done = 0;
  for (size_t i = 0; i < owned.size(); ++i) {
    const int64_t count = num_nodes(owned[i]);
    queue_sums(owned[i], gradients[i], sums.narrow(0, done, count), context_.compute());
    done += count;
  }
}

NormResult GradientNorm::result(double sum_of_squares, int64_t first_nonfinite) const {
  NormResult result{.sum_of_squares = sum_of_squares};
  if (first_nonfinite < 0) return result;
  const Leaf& leaf = leaves_[static_cast<size_t>(first_nonfinite)];
  result.nonfinite = leaf.node.parameter;
  result.nonfinite_rank = leaf.rank;
  return result;
}

std::string GradientNorm::culprit(const NormResult& norm) const {
  const ShardGroup& group = groups_[static_cast<size_t>(norm.nonfinite->group)];
  const auto& placement = group.placements()[static_cast<size_t>(norm.nonfinite->position)];
  std::string name = placement.parameter->name();
  if (is_spread()) name += concat(", in the shard of rank ", norm.nonfinite_rank);
  return name;
}

}  // namespace zinc::zero
