#include "zero/update/gradient_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/finite_norm.h"
#include "tensor/tensor.h"

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

}  // namespace

GradientNorm::GradientNorm(const ShardGroups& groups, std::vector<std::vector<OwnedRange>> owned,
                           comm::Communicator& communicator, Context& context, NormPeers peers)
    : groups_(groups),
      owned_(std::move(owned)),
      nodes_(owned_.size()),
      communicator_(communicator),
      context_(context),
      peers_(std::move(peers)) {
  if (peers_.pipe == nullptr) {
    for (const ShardGroup& group : groups_) {
      for (const Placement& placement : group.placements()) {
        peers_.parameters.push_back(placement.parameter);
      }
    }
  }
  for (const autograd::Parameter* parameter : peers_.parameters) {
    order_.emplace(parameter, order_.size());
  }
  bug_check(owned_.size() == 1 || static_cast<int>(owned_.size()) == communicator.size(),
            "gradient norm: ranges of ", owned_.size(), " ranks in a world of ",
            communicator.size());
  for (size_t rank = 0; rank < owned_.size(); ++rank) {
    for (const OwnedRange& piece : owned_[rank]) {
      bug_check(piece.range.begin % kNormChunk == 0 && piece.range.end % kNormChunk == 0,
                "gradient norm: a range that cuts a chunk");
      if (rank == me()) first_sums_.push_back(num_own());
      for_each_piece(
          groups_[piece.group], piece, [&](ParameterIndex index, const Placement&, Range chunks) {
            for (const auto& subtree : kernels::chunk_subtrees(chunks.begin, chunks.end)) {
              nodes_[rank].push_back({index, subtree});
            }
          });
    }
  }
  first_sums_.push_back(num_own());
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

GradientNorm::~GradientNorm() {
  // Pieces may still be measured on the reduce stream. The rooms belong to the compute stream.
  try {
    context_.compute()->wait(piece_queued_);
  } catch (...) {
    // The stream has failed. Its next use reports the error.
  }
}

int64_t GradientNorm::longest() const {
  size_t most = 0;
  for (const auto& nodes : nodes_) most = std::max(most, nodes.size());
  return static_cast<int64_t>(most);
}

void GradientNorm::require_all(const std::vector<ConstView>& gradients) const {
  bug_check(gradients.size() == own().size(), "gradient norm: ", gradients.size(),
            " gradients for ", own().size(), " ranges");
}

GradientNorm::Room GradientNorm::take_room(const ConstView& like, int64_t numel, DType dtype) {
  const bool on_gpu = context_.device().is_cuda();
  const Tier tier = on_gpu ? like.tier() : Tier::device;  // a CPU computes in its own arena
  Room room;
  room.block = context_.allocate(numel * size_of(dtype), Label::workspace, tier);
  room.view = host_memory(View(room.block.data(), dtype, Shape{numel}, context_.device(), tier));
  return room;
}

GradientNorm::Rooms GradientNorm::take_rooms(const ConstView& like, int64_t most) {
  return {.chunk_sums = take_room(like, kernels::num_norm_chunks(most), DType::f64),
          .nonfinite = take_room(like, 1, DType::i64)};
}

void GradientNorm::queue_sums(size_t i, const ConstView& gradient, const Rooms& rooms,
                              const View& sums, StreamRef stream) {
  const OwnedRange& owned = own()[i];
  const View chunk_sums =
      rooms.chunk_sums.view.narrow(0, 0, kernels::num_norm_chunks(gradient.numel()));
  kernels::finite_norm({.x = host_memory(gradient),
                        .chunk_sums = chunk_sums,
                        .first_nonfinite = rooms.nonfinite.view},
                       stream);
  std::vector<kernels::ChunkSubtree> trees;
  for_each_piece(
      groups_[owned.group], owned, [&](ParameterIndex, const Placement& placement, Range chunks) {
        // Index of the parameter's first chunk, which another rank may have.
        const int64_t origin = (placement.offset - owned.range.begin) / kNormChunk;
        for (const auto& [first, width] : kernels::chunk_subtrees(chunks.begin, chunks.end)) {
          trees.push_back({origin + first, width});
        }
      });
  kernels::chunk_tree_sum({.sums = chunk_sums,
                           .trees = std::move(trees),
                           .out = sums.narrow(0, sums_of(i).begin, sums_of(i).size())},
                          stream);
}

std::vector<double> GradientNorm::measure_own(const std::vector<ConstView>& gradients) {
  require_all(gradients);
  // The host's tier goes first: its stream waits only for work that the compute stream has by then.
  // Memory for all tiers is taken before any work is queued. It is given back after the queued work
  // was waited for.
  std::vector<Queued> queued;
  for (const Tier tier : {Tier::pinned_host, Tier::device}) {
    const ConstView* largest = nullptr;
    for (const ConstView& gradient : gradients) {
      if (gradient.tier() != tier) continue;
      if (largest == nullptr || gradient.numel() > largest->numel()) largest = &gradient;
    }
    if (largest == nullptr) continue;
    queued.push_back(
        {.tier = tier,
         .stream = tier == Tier::pinned_host ? host_stream(context_) : context_.compute(),
         .sums = take_room(*largest, longest(), DType::f64),
         .rooms = take_rooms(*largest, largest->numel())});
  }
  for (const Queued& of_tier : queued) {
    order(context_.compute(), of_tier.stream);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].tier() != of_tier.tier) continue;
      queue_sums(i, gradients[i], of_tier.rooms, of_tier.sums.view, of_tier.stream);
    }
  }
  std::vector<double> sums(nodes_[me()].size());
  for (const Queued& of_tier : queued) {
    std::vector<double> values(sums.size());
    download(of_tier.sums.view.narrow(0, 0, num_own()), values.data(), of_tier.stream);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].tier() != of_tier.tier) continue;
      std::copy_n(values.begin() + sums_of(i).begin, sums_of(i).size(),
                  sums.begin() + sums_of(i).begin);
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
  return combine(exchange(measure_own(gradients)));
}

void GradientNorm::expect_pieces() {
  int64_t largest = 0;
  for (const OwnedRange& piece : own()) largest = std::max(largest, piece.range.size());
  const ConstView on_device;
  piece_rooms_ = take_rooms(on_device, largest);
  piece_sums_ = take_room(on_device, longest(), DType::f64);
}

void GradientNorm::take(const OwnedRange& slice, const ConstView& gradient, StreamRef stream) {
  const auto piece = std::find_if(own().begin(), own().end(), [&](const OwnedRange& owned) {
    return owned.group == slice.group && owned.range == slice.range;
  });
  bug_check(piece != own().end(), "gradient norm: a range of group ", slice.group,
            " of another rank");
  queue_sums(static_cast<size_t>(piece - own().begin()), gradient, piece_rooms_, piece_sums_.view,
             stream);
  piece_queued_ = stream->record();
}

NormResult GradientNorm::measure_taken() {
  std::vector<double> sums(nodes_[me()].size());
  download(piece_sums_.view.narrow(0, 0, num_own()), sums.data(),
           context_.stream(StreamRole::reduce));
  return combine(exchange(sums));
}

NormResult GradientNorm::combine(const std::vector<std::vector<double>>& sums) const {
  Sums here{.squares = std::vector<double>(peers_.parameters.size())};
  for (size_t begin = 0; begin < leaves_.size() && !context_.device().meta;) {
    size_t end = begin;
    const size_t parameter = order_.at(groups_.at(leaves_[begin].node.parameter).parameter);
    std::vector<kernels::ChunkSubtree> subtrees;
    std::vector<double> values;
    for (; end < leaves_.size() && leaves_[end].node.parameter == leaves_[begin].node.parameter;
         ++end) {
      const Leaf& leaf = leaves_[end];
      subtrees.push_back(leaf.node.subtree);
      values.push_back(sums[static_cast<size_t>(leaf.rank)][leaf.place]);
      if (!std::isfinite(values.back()) && here.nonfinite < 0) {
        here.nonfinite = static_cast<int64_t>(parameter);
        here.nonfinite_rank = leaf.rank;
      }
    }
    here.squares[parameter] = kernels::combine_chunk_subtrees(subtrees, values);
    begin = end;
  }
  return over_slices(over_stages(std::move(here)));
}

GradientNorm::Sums GradientNorm::over_stages(Sums here) const {
  if (peers_.pipe == nullptr) return here;
  std::vector<double> mine = std::move(here.squares);
  mine.push_back(static_cast<double>(here.nonfinite));
  mine.push_back(static_cast<double>(here.nonfinite_rank));
  const std::vector<double> all = comm::gather_values(*peers_.pipe, mine);
  const auto of_rank = [&](int rank) {
    return all.data() + static_cast<size_t>(rank) * mine.size();
  };
  Sums sums;
  for (const autograd::Parameter* parameter : peers_.parameters) {
    sums.squares.push_back(of_rank(peers_.speaker(*parameter))[sums.squares.size()]);
  }
  for (int rank = 0; rank < peers_.pipe->size(); ++rank) {
    const double* const bad = of_rank(rank) + sums.squares.size();
    if (bad[0] < 0.0 || (sums.nonfinite >= 0 && sums.nonfinite <= static_cast<int64_t>(bad[0]))) {
      continue;
    }
    sums.nonfinite = static_cast<int64_t>(bad[0]);
    sums.nonfinite_rank = static_cast<int>(bad[1]);
  }
  return sums;
}

NormResult GradientNorm::over_slices(const Sums& sums) const {
  NormResult result;
  double sliced = 0.0;
  for (size_t i = 0; i < sums.squares.size(); ++i) {
    (peers_.parameters[i]->slice() ? sliced : result.sum_of_squares) += sums.squares[i];
  }
  if (context_.device().meta) result.sum_of_squares = 1.0;
  const auto take_bad = [&](int64_t parameter, int rank, int slice) {
    if (parameter < 0 || result.nonfinite != nullptr) return;
    result.nonfinite = peers_.parameters[static_cast<size_t>(parameter)];
    result.nonfinite_rank = rank;
    result.nonfinite_slice = slice;
  };
  if (peers_.tensor == nullptr) {
    take_bad(sums.nonfinite, sums.nonfinite_rank, 0);
    return result;
  }
  const std::array mine{sliced, static_cast<double>(sums.nonfinite),
                        static_cast<double>(sums.nonfinite_rank)};
  const std::vector<double> all = comm::gather_values(*peers_.tensor, mine);
  for (size_t rank = 0; rank < all.size() / mine.size(); ++rank) {
    const double* of_rank = all.data() + rank * mine.size();
    result.sum_of_squares += of_rank[0];
    take_bad(static_cast<int64_t>(of_rank[1]), static_cast<int>(of_rank[2]),
             static_cast<int>(rank));
  }
  return result;
}

void GradientNorm::queue(const std::vector<ConstView>& gradients, const View& sums) {
  require_all(gradients);
  int64_t most = 0;
  for (const ConstView& gradient : gradients) most = std::max(most, gradient.numel());
  const Rooms rooms = take_rooms(ConstView(), most);
  for (size_t i = 0; i < gradients.size(); ++i) {
    queue_sums(i, gradients[i], rooms, sums, context_.compute());
  }
}

NormResult GradientNorm::result(double sum_of_squares, int64_t first_nonfinite) const {
  NormResult result{.sum_of_squares = sum_of_squares};
  if (first_nonfinite < 0) return result;
  const Leaf& leaf = leaves_[static_cast<size_t>(first_nonfinite)];
  result.nonfinite = groups_.at(leaf.node.parameter).parameter;
  result.nonfinite_rank = leaf.rank;
  return result;
}

std::string GradientNorm::culprit(const NormResult& norm) const {
  std::string name = norm.nonfinite->name();
  if (is_spread()) name += str(", in the shard of rank ", norm.nonfinite_rank);
  if (peers_.tensor != nullptr) name += str(", in slice ", norm.nonfinite_slice);
  return name;
}

}  // namespace zinc::zero
