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
}

GradientNorm::Room GradientNorm::take_room(const ConstView& like, int64_t numel, DType dtype) {
  const bool on_gpu = context_.device().is_cuda();
  const Tier tier = on_gpu ? like.tier() : Tier::device;  // a CPU computes in its own arena
  Room room;
  room.block = context_.allocate(numel * size_of(dtype), Label::workspace, tier);
  room.view = host_memory(View(room.block.data(), dtype, Shape{numel}, context_.device(), tier));
  return room;
}

size_t GradientNorm::own_index() const {
  return owned_.size() == 1 ? 0 : static_cast<size_t>(communicator_.rank());
}

const std::vector<OwnedRange>& GradientNorm::own() const { return owned_[own_index()]; }

int64_t GradientNorm::num_sums(const OwnedRange& owned) const {
  int64_t count = 0;
  for_each_piece(
      groups_[static_cast<size_t>(owned.group)], owned,
      [&](ParameterIndex, const Placement&, Range chunks) { count += num_subtrees(chunks); });
  return count;
}

void GradientNorm::queue_sums(const OwnedRange& owned, const ConstView& gradient,
                              const Rooms& rooms, const View& out, StreamRef stream) {
  const View chunk_sums =
      rooms.chunk_sums.view.narrow(0, 0, kernels::num_norm_chunks(gradient.numel()));
  kernels::finite_norm({.x = host_memory(gradient),
                        .chunk_sums = chunk_sums,
                        .first_nonfinite = rooms.nonfinite.view},
                       stream);
  int64_t done = 0;
  for_each_piece(groups_[static_cast<size_t>(owned.group)], owned,
                 [&](ParameterIndex, const Placement& placement, Range chunks) {
                   const int64_t first =
                       (placement.offset - owned.range.begin) / kNormChunk + chunks.begin;
                   const int64_t count = num_subtrees(chunks);
                   kernels::chunk_tree_sum({.sums = chunk_sums.narrow(0, first, chunks.size()),
                                            .begin = chunks.begin,
                                            .root = false,
                                            .out = out.narrow(0, done, count)},
                                           stream);
                   done += count;
                 });
}

GradientNorm::Queued GradientNorm::take_tier(Tier tier, std::vector<Part> parts,
                                             const std::vector<ConstView>& gradients) {
  int64_t total = 0;
  int64_t most_chunks = 0;
  for (const Part& part : parts) {
    total += part.count;
    most_chunks = std::max(most_chunks, kernels::num_norm_chunks(gradients[part.gradient].numel()));
  }
  const ConstView& like = gradients[parts.front().gradient];
  return {.parts = std::move(parts),
          .stream = tier == Tier::pinned_host ? host_stream(context_) : context_.compute(),
          .sums = take_room(like, total, DType::f64),
          .rooms = {.chunk_sums = take_room(like, most_chunks, DType::f64),
                    .nonfinite = take_room(like, 1, DType::i64)}};
}

std::vector<double> GradientNorm::measure_own(const std::vector<ConstView>& gradients) {
  bug_check(gradients.size() == own().size(), "gradient norm: ", gradients.size(),
            " gradients for ", own().size(), " ranges");
  std::map<Tier, std::vector<Part>> parts;
  std::vector<double> sums(nodes_[own_index()].size());
  int64_t first = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t count = num_sums(own()[i]);
    parts[gradients[i].tier()].push_back({i, first, count});
    first += count;
  }
  // The host's before the device's: it waits for what the compute stream was given before. All
  // memory first: what is queued is waited for before it is given back.
  std::vector<Queued> queued;
  for (auto tier = parts.rbegin(); tier != parts.rend(); ++tier) {
    queued.push_back(take_tier(tier->first, std::move(tier->second), gradients));
  }
  for (const Queued& of_tier : queued) {
    order(context_.compute(), of_tier.stream);
    int64_t at = 0;
    for (const Part& part : of_tier.parts) {
      queue_sums(own()[part.gradient], gradients[part.gradient], of_tier.rooms,
                 of_tier.sums.view.narrow(0, at, part.count), of_tier.stream);
      at += part.count;
    }
  }
  for (const Queued& of_tier : queued) {
    std::vector<double> values(static_cast<size_t>(of_tier.sums.view.numel()));
    download(of_tier.sums.view, values.data(), of_tier.stream);
    const double* from = values.data();
    for (const Part& part : of_tier.parts) {
      std::copy_n(from, part.count, sums.begin() + part.first);
      from += part.count;
    }
  }
  return sums;
}

std::vector<std::vector<double>> GradientNorm::exchange(const std::vector<double>& own) {
  if (owned_.size() == 1) return {own};
  size_t longest = 0;
  for (const auto& nodes : nodes_) longest = std::max(longest, nodes.size());
  std::vector<double> padded = own;
  padded.resize(longest, 0.0);
  const auto length = static_cast<int64_t>(longest);
  const Tensor mine = Tensor::from<double>(std::span<const double>(padded), {length});
  const Tensor all = Tensor::empty({length * communicator_.size()}, DType::f64, Label::workspace);
  communicator_.all_gather({.shard = mine.view(), .out = all.view()}, context_.compute()).wait();
  const std::vector<double> values = all.to_vector<double>();
  std::vector<std::vector<double>> by_rank;
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    const auto begin = values.begin() + static_cast<int64_t>(rank * longest);
    by_rank.emplace_back(begin, begin + static_cast<int64_t>(nodes_[rank].size()));
  }
  return by_rank;
}

NormResult GradientNorm::measure(const std::vector<ConstView>& gradients) {
  return combine(exchange(measure_own(gradients)));
}

void GradientNorm::expect_pieces() {
  int64_t longest = 0;
  int64_t total = 0;
  for (const OwnedRange& piece : own()) {
    longest = std::max(longest, piece.range.size());
    first_sums_.push_back(total);
    total += num_sums(piece);
  }
  const ConstView on_device;
  piece_rooms_ = {take_room(on_device, kernels::num_norm_chunks(longest), DType::f64),
                  take_room(on_device, 1, DType::i64)};
  piece_sums_ = take_room(on_device, total, DType::f64);
}

void GradientNorm::take(int group, Range range, const ConstView& gradient, StreamRef stream) {
  const auto piece = std::find_if(own().begin(), own().end(), [&](const OwnedRange& owned) {
    return owned.group == group && owned.range == range;
  });
  bug_check(piece != own().end(), "gradient norm: a range of group ", group, " of another rank");
  const int64_t first = first_sums_[static_cast<size_t>(piece - own().begin())];
  queue_sums(*piece, gradient, piece_rooms_, piece_sums_.view.narrow(0, first, num_sums(*piece)),
             stream);
  piece_queued_ = stream->record();
}

NormResult GradientNorm::measure_taken(StreamRef stream) {
  std::vector<double> sums(nodes_[own_index()].size());
  download(piece_sums_.view, sums.data(), stream);
  return combine(exchange(sums));
}

NormResult GradientNorm::combine(const std::vector<std::vector<double>>& sums) const {
  if (context_.device().meta) return {.sum_of_squares = 1.0};

  struct Leaf {
    Node node;
    double sum;
    int rank;
  };
  std::vector<Leaf> leaves;
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    for (size_t i = 0; i < nodes_[rank].size(); ++i) {
      leaves.push_back({nodes_[rank][i], sums[rank][i], static_cast<int>(rank)});
    }
  }
  std::stable_sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) {
    const auto key = [](const Leaf& leaf) {
      return std::tuple(leaf.node.parameter.group, leaf.node.parameter.position,
                        leaf.node.subtree.first);
    };
    return key(a) < key(b);
  });

  NormResult result;
  for (size_t begin = 0; begin < leaves.size();) {
    size_t end = begin;
    std::vector<kernels::ChunkSubtree> subtrees;
    std::vector<double> values;
    for (; end < leaves.size() && leaves[end].node.parameter == leaves[begin].node.parameter;
         ++end) {
      subtrees.push_back(leaves[end].node.subtree);
      values.push_back(leaves[end].sum);
      if (!std::isfinite(leaves[end].sum) && !result.nonfinite) {
        result.nonfinite = leaves[end].node.parameter;
        result.nonfinite_rank = leaves[end].rank;
      }
    }
    result.sum_of_squares += kernels::combine_chunk_subtrees(subtrees, values);
    begin = end;
  }
  return result;
}

}  // namespace zinc::zero
