#include "zero/update/gradient_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/finite_norm.h"
#include "tensor/tensor.h"

namespace zinc::zero {

GradientNorm::GradientNorm(const ShardGroups& groups, std::vector<std::vector<OwnedRange>> owned,
                           comm::Communicator& communicator, Context& context, NormPeers peers)
    : groups_(groups),
      owned_(std::move(owned)),
      nodes_(groups, owned_),
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
}

GradientNorm::~GradientNorm() {
  // Pieces may still be measured on the reduce stream. The rooms belong to the compute stream.
  try {
    context_.compute()->wait(piece_queued_);
  } catch (...) {
    // The stream has failed. Its next use reports the error.
  }
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
  kernels::chunk_tree_sum({.sums = chunk_sums,
                           .trees = ChunkNodes::trees_of(groups_[owned.group], owned),
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
         .sums = take_room(*largest, nodes_.longest(), DType::f64),
         .rooms = take_rooms(*largest, largest->numel())});
  }
  for (const Queued& of_tier : queued) {
    order(context_.compute(), of_tier.stream);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].tier() != of_tier.tier) continue;
      queue_sums(i, gradients[i], of_tier.rooms, of_tier.sums.view, of_tier.stream);
    }
  }
  std::vector<double> sums(static_cast<size_t>(num_own()));
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

NormResult GradientNorm::measure(const std::vector<ConstView>& gradients) {
  return combine(nodes_.exchange(measure_own(gradients), communicator_, context_.compute()));
}

void GradientNorm::expect_pieces() {
  int64_t largest = 0;
  for (const OwnedRange& piece : own()) largest = std::max(largest, piece.range.size());
  const ConstView on_device;
  piece_rooms_ = take_rooms(on_device, largest);
  piece_sums_ = take_room(on_device, nodes_.longest(), DType::f64);
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
  std::vector<double> sums(static_cast<size_t>(num_own()));
  download(piece_sums_.view.narrow(0, 0, num_own()), sums.data(),
           context_.stream(StreamRole::reduce));
  return combine(nodes_.exchange(sums, communicator_, context_.compute()));
}

NormResult GradientNorm::combine(const std::vector<std::vector<double>>& sums) const {
  Sums here{.squares = std::vector<double>(peers_.parameters.size())};
  for (const std::span<const ChunkNodes::Leaf> leaves : nodes_.by_parameter()) {
    if (context_.device().meta) break;
    const size_t parameter = order_.at(groups_.at(leaves.front().node.parameter).parameter);
    for (const ChunkNodes::Leaf& leaf : leaves) {
      if (here.nonfinite >= 0) break;
      if (std::isfinite(sums[static_cast<size_t>(leaf.rank)][leaf.place])) continue;
      here.nonfinite = static_cast<int64_t>(parameter);
      here.nonfinite_rank = leaf.rank;
    }
    here.squares[parameter] = ChunkNodes::sum(leaves, sums);
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
  const ChunkNodes::Leaf& leaf = nodes_.leaves()[static_cast<size_t>(first_nonfinite)];
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
