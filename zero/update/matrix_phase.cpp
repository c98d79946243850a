#include "zero/update/matrix_phase.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/executor.h"
#include "core/transfer.h"
#include "kernels/fill.h"

namespace zinc::zero {

MatrixPhase::MatrixPhase(const optim::MatrixRule& rule, const ShardGroups& groups,
                         const std::vector<OwnedRange>& slices, comm::Communicator& communicator,
                         Context& context, const MatrixPhaseOptions& options)
    : rule_(rule),
      groups_(groups),
      communicator_(communicator),
      context_(context),
      options_(options),
      window_of_(groups.size(), -1),
      load_(static_cast<size_t>(communicator.size())) {
  for (const std::vector<int>& window : options_.windows) add_window(window, slices);
}

void MatrixPhase::add_window(const std::vector<int>& groups,
                             const std::vector<OwnedRange>& slices) {
  Window& window = windows_.emplace_back(Window{.groups = groups});
  for (const int group : groups) {
    window_of_[group] = static_cast<int>(windows_.size()) - 1;
    window.dtype = rule_.direction_dtype(groups_[group].wide_dtype());
    for (const Placement& placement : groups_[group].placements()) {
      if (placement.segment != SegmentKind::matrices) continue;
      window.matrices.push_back({.group = &groups_[group], .placement = &placement});
    }
    for (const OwnedRange& slice : slices) {
      if (slice.group != group || slice.segment != SegmentKind::matrices) continue;
      window.slots.push_back({.slice = slice, .place = window.numel, .in_host = window.host_numel});
      window.numel += slice.range.size();
      if (is_in_host(slice)) window.host_numel += slice.range.size();
    }
  }
  choose_owners(window);
  for (int rank = 0; rank < options_.parts; ++rank) {
    std::vector<int64_t> to_owner(load_.size());
    for (const Matrix& matrix : window.matrices) {
      to_owner[static_cast<size_t>(matrix.owner)] += piece(matrix, rank).size();
    }
    window.largest_numel = std::max(window.largest_numel, *std::ranges::max_element(to_owner));
    window.traffic_numel = std::max(window.traffic_numel,
                                    std::accumulate(to_owner.begin(), to_owner.end(), int64_t{0}));
  }
}

void MatrixPhase::choose_owners(Window& window) {
  const auto ranks = static_cast<size_t>(communicator_.size());
  const auto flops = [this](const Matrix& matrix) {
    const Shape& shape = matrix.placement->parameter->shape();
    return rule_.flops(shape[0], shape[1]);
  };
  std::vector<Matrix*> by_size;
  for (Matrix& matrix : window.matrices) by_size.push_back(&matrix);
  std::ranges::stable_sort(by_size, std::greater<>(),
                           [&](const Matrix* matrix) { return flops(*matrix); });
  std::vector<int64_t> here(ranks), numel(ranks);
  for (Matrix* const matrix : by_size) {
    size_t owner = 0;
    for (size_t rank = 1; rank < ranks; ++rank) {
      if (std::pair(here[rank], load_[rank]) < std::pair(here[owner], load_[owner])) owner = rank;
    }
    matrix->owner = static_cast<int>(owner);
    here[owner] += flops(*matrix);
    load_[owner] += flops(*matrix);
  }
  window.busiest = by_size.front()->owner;
  for (Matrix& matrix : window.matrices) {
    int64_t& of_owner = numel[static_cast<size_t>(matrix.owner)];
    matrix.place = of_owner;
    of_owner += matrix.placement->parameter->numel();
  }
  window.owned_numel = *std::ranges::max_element(numel);
}

Range MatrixPhase::piece(const Matrix& matrix, int rank) const {
  const Segment& segment = matrix.group->segment(SegmentKind::matrices);
  return intersect(matrix.placement->range(), segment.shard(rank, options_.parts));
}

const std::vector<int>& MatrixPhase::groups_in_window() const {
  static const std::vector<int> kNone;
  return open_ != nullptr ? open_->groups : kNone;
}

void MatrixPhase::open(int group) {
  const int number = window_of_[group];
  bug_check(number >= 0, "group ", groups_[group].name(), " has no matrices");
  const Window& window = windows_[static_cast<size_t>(number)];
  if (open_ == &window) return;
  close();
  open_ = &window;
  const int64_t bytes = size_of(window.dtype);
  on_device_ = context_.allocate(window.numel * bytes, Label::workspace);
  if (window.host_numel == 0) return;
  in_host_ = context_.allocate(window.host_numel * bytes, Label::staging, Tier::pinned_host);
}

void MatrixPhase::close() {
  open_ = nullptr;
  on_device_.reset();
  in_host_.reset();
}

View MatrixPhase::device_view(const Block& block, int64_t place, int64_t numel) const {
  return View(static_cast<std::byte*>(block.data()) + place * size_of(open_->dtype), open_->dtype,
              Shape{numel}, context_.device());
}

View MatrixPhase::values(const OwnedRange& part) const {
  bug_check(open_ != nullptr, "directions are asked for, and no window is open");
  for (const Slot& slot : open_->slots) {
    const int64_t begin = part.range.begin - slot.slice.range.begin;
    if (slot.slice.group != part.group || intersect(slot.slice.range, part.range) != part.range) {
      continue;
    }
    if (!is_in_host(slot.slice)) {
      return device_view(on_device_, slot.place + begin, part.range.size());
    }
    return View(
        static_cast<std::byte*>(in_host_.data()) + (slot.in_host + begin) * size_of(open_->dtype),
        open_->dtype, Shape{part.range.size()}, context_.device(), Tier::pinned_host);
  }
  bug_check(false, "group ", groups_[part.group].name(), ": [", part.range.begin, ", ",
            part.range.end, ") is in no slice of the open window");
  return {};
}

// The elements of this rank that lie in several slices follow each other on the device too.
View MatrixPhase::in_slots(Range piece, int group) const {
  for (const Slot& slot : open_->slots) {
    if (slot.slice.group != group || intersect(slot.slice.range, piece).empty()) continue;
    return device_view(on_device_, slot.place + piece.begin - slot.slice.range.begin, piece.size());
  }
  bug_check(false, "a piece of a matrix is in no slice of this rank");
  return {};
}

void MatrixPhase::copy_host_slots(bool to_device) {
  for (const Slot& slot : open_->slots) {
    if (!is_in_host(slot.slice)) continue;
    const View there = device_view(on_device_, slot.place, slot.slice.range.size());
    const View here = values(slot.slice);
    if (to_device) {
      transfer(here, there, context_.compute());
    } else {
      transfer(there, here, context_.compute());
    }
  }
}

void MatrixPhase::transform(int group, const UpdateRules& rules) {
  bug_check(open_ != nullptr && open_->groups.back() == group, "group ", groups_[group].name(),
            " does not end the open window of matrices");
  copy_host_slots(/*to_device=*/true);
  if (options_.parts > 1) {
    exchange(rules);
  } else {
    share_steps(rules);
  }
  copy_host_slots(/*to_device=*/false);
}

bool MatrixPhase::is_own(const Matrix& matrix) const {
  return matrix.owner == (context_.device().meta ? open_->busiest : communicator_.rank());
}

void MatrixPhase::transform_own(const View& values, const Matrix& matrix, const UpdateRules& rules,
                                StreamRef stream) const {
  const auto ranges = rules.ranges(matrix.group->index(), matrix.placement->range());
  rule_.transform(values.reshape(matrix.placement->parameter->shape()), ranges.front().hyper,
                  stream);
}

void MatrixPhase::take_room_of_others(const View& values, const UpdateRules& rules) const {
  if (!context_.device().meta) return;
  // What is queued here takes no time in a plan.
  const auto beside = make_inline_stream("room of other owners", 0, nullptr);
  for (const Matrix& matrix : open_->matrices) {
    if (is_own(matrix)) continue;
    transform_own(values.narrow(0, 0, matrix.placement->parameter->numel()), matrix, rules,
                  *beside);
  }
}

void MatrixPhase::share_steps(const UpdateRules& rules) {
  for (const Matrix& matrix : open_->matrices) {
    if (!is_own(matrix)) continue;
    transform_own(in_slots(matrix.placement->range(), matrix.group->index()), matrix, rules,
                  context_.compute());
  }
  if (communicator_.size() == 1) return;
  take_room_of_others(device_view(on_device_, 0, open_->numel), rules);
  for (const Matrix& matrix : open_->matrices) {
    communicator_.broadcast(
        {.inout = in_slots(matrix.placement->range(), matrix.group->index()), .root = matrix.owner},
        context_.compute());
  }
}

MatrixPhase::Rooms MatrixPhase::take_rooms() const {
  const auto take = [this](int64_t numel) {
    return context_.allocate(numel * size_of(open_->dtype), Label::workspace);
  };
  Block sent = take(open_->traffic_numel);
  Block arrived = take(open_->owned_numel);
  return {
      .sent = std::move(sent), .arrived = std::move(arrived), .whole = take(open_->owned_numel)};
}

void MatrixPhase::rehearse(int group, const UpdateRules& rules) {
  open(group);
  if (open_->groups.back() != group) return;
  Rooms rooms;
  if (options_.parts > 1) rooms = take_rooms();
  for (const Matrix& matrix : open_->matrices) {
    if (!is_own(matrix)) continue;
    const View values =
        options_.parts > 1
            ? device_view(rooms.whole, matrix.place, matrix.placement->parameter->numel())
            : in_slots(matrix.placement->range(), matrix.group->index());
    kernels::fill({.y = values}, context_.compute());
    transform_own(values, matrix, rules, context_.compute());
  }
}

void MatrixPhase::exchange(const UpdateRules& rules) {
  const StreamRef stream = context_.compute();
  const int me = communicator_.rank();
  const auto size = static_cast<size_t>(communicator_.size());
  comm::AllToAllCounts out{.sent = std::vector<int64_t>(size),
                           .received = std::vector<int64_t>(size),
                           .largest = open_->largest_numel};
  for (const Matrix& matrix : open_->matrices) {
    out.sent[static_cast<size_t>(matrix.owner)] += piece(matrix, me).size();
    if (matrix.owner != me) continue;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      out.received[static_cast<size_t>(rank)] += piece(matrix, rank).size();
    }
  }
  const auto [sent, arrived, whole] = take_rooms();

  // Calls `copy` for each piece of this rank's slots with its place in `sent`: by owner, and for
  // one owner by matrix.
  const auto own_pieces = [&](const auto& copy) {
    int64_t place = 0;
    for (int owner = 0; owner < communicator_.size(); ++owner) {
      for (const Matrix& matrix : open_->matrices) {
        const Range part = piece(matrix, me);
        if (matrix.owner != owner || part.empty()) continue;
        copy(in_slots(part, matrix.group->index()), device_view(sent, place, part.size()));
        place += part.size();
      }
    }
    return device_view(sent, 0, place);
  };
  // The same for each piece of this rank's matrices, with its place in `arrived`.
  const auto pieces_of_own = [&](const auto& copy) {
    int64_t place = 0;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      for (const Matrix& matrix : open_->matrices) {
        const Range part = piece(matrix, rank);
        if (matrix.owner != me || part.empty()) continue;
        copy(device_view(whole, matrix.place + part.begin - matrix.placement->offset, part.size()),
             device_view(arrived, place, part.size()));
        place += part.size();
      }
    }
    return device_view(arrived, 0, place);
  };
  const auto pack = [&](const View& values, const View& packed) {
    transfer(values, packed, stream);
  };
  const auto unpack = [&](const View& values, const View& packed) {
    transfer(packed, values, stream);
  };
  const auto nothing = [](const View&, const View&) {};

  communicator_.all_to_all({.in = own_pieces(pack), .out = pieces_of_own(nothing), .counts = &out},
                           stream);
  pieces_of_own(unpack);
  for (const Matrix& matrix : open_->matrices) {
    if (!is_own(matrix)) continue;
    transform_own(device_view(whole, matrix.place, matrix.placement->parameter->numel()), matrix,
                  rules, stream);
  }
  take_room_of_others(device_view(whole, 0, open_->owned_numel), rules);
  comm::AllToAllCounts back{.sent = out.received, .received = out.sent, .largest = out.largest};
  communicator_.all_to_all({.in = pieces_of_own(pack), .out = own_pieces(nothing), .counts = &back},
                           stream);
  own_pieces(unpack);
}

}  // namespace zinc::zero
