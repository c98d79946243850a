#include "zero/update/whole_phase.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/executor.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/chunk_tree_sum.h"
#include "kernels/fill.h"
#include "kernels/finite_norm.h"

namespace zinc::zero {
namespace {

// Of `numel` elements: WholePhase::sums_on_device_.
int64_t sums_bytes(int64_t kinds, int64_t numel) {
  return kinds * numel / kNormChunk * size_of(DType::f64) + size_of(DType::i64);
}

// Calls `visit` with each vector of a parameter, its shape, and its first byte behind those before.
// Returns the bytes of all. A vector begins where a pack of a kernel may.
template <class Visit>
int64_t for_each_vector(const optim::WholeRule& rule, const Shape& parameter, DType dtype,
                        const Visit& visit) {
  constexpr int64_t kAligned = 64;
  int64_t begin = 0;
  for (int i = 0; i < rule.num_vectors(); ++i) {
    const std::optional<Shape> shape = rule.vector_shape(parameter, i);
    if (!shape) continue;
    visit(static_cast<size_t>(i), *shape, begin);
    begin += (shape->numel() * size_of(dtype) + kAligned - 1) / kAligned * kAligned;
  }
  return begin;
}

int64_t bytes_of_vectors(const optim::WholeRule& rule, const Shape& parameter, DType dtype) {
  return for_each_vector(rule, parameter, dtype, [](size_t, const Shape&, int64_t) {});
}

}  // namespace

WholePhase::WholePhase(const optim::WholeRule& rule, const ShardGroups& groups,
                       const std::vector<OwnedRange>& slices, comm::Communicator& communicator,
                       Context& context, const WholePhaseOptions& options)
    : rule_(rule),
      groups_(groups),
      communicator_(communicator),
      context_(context),
      options_(options),
      window_of_(groups.size(), -1),
      load_(static_cast<size_t>(communicator.size())) {
  for (const std::vector<int>& window : options_.windows) add_window(window, slices);
  take_vectors();
}

void WholePhase::take_vectors() {
  if (rule_.num_vectors() == 0) return;
  int64_t bytes = 0;
  for (Window& window : windows_) {
    for (Whole& whole : window.parameters) {
      whole.vectors = bytes;
      bytes += bytes_of_vectors(rule_, whole.shape(), whole.group->wide_dtype());
    }
  }
  vectors_ = context_.allocate(bytes, Label::optimizer);
  kernels::fill({.y = View(vectors_.data(), DType::u8, Shape{bytes}, context_.device())},
                context_.compute());
}

const WholePhase::Whole& WholePhase::find(ParameterIndex parameter) const {
  const int number = window_of_[parameter.group];
  bug_check(number >= 0, "group ", groups_.of(parameter).name(), " has no whole parameters");
  const std::vector<Whole>& parameters = windows_[static_cast<size_t>(number)].parameters;
  const auto found = std::ranges::find(parameters, &groups_.at(parameter), &Whole::placement);
  bug_check(found != parameters.end(), groups_.at(parameter).parameter->name(),
            " is not updated as a whole");
  return *found;
}

int WholePhase::owner(ParameterIndex parameter) const { return find(parameter).owner; }

View WholePhase::vector(ParameterIndex parameter, int i) const {
  const Whole& whole = find(parameter);
  return vectors_in(vectors_, whole.vectors, whole)[static_cast<size_t>(i)];
}

std::array<View, optim::kMaxVectors> WholePhase::vectors_in(const Block& block, int64_t begin,
                                                            const Whole& whole) const {
  std::array<View, optim::kMaxVectors> views;
  const DType dtype = whole.group->wide_dtype();
  for_each_vector(rule_, whole.shape(), dtype, [&](size_t i, const Shape& shape, int64_t at) {
    views[i] =
        View(static_cast<std::byte*>(block.data()) + begin + at, dtype, shape, context_.device());
  });
  return views;
}

void WholePhase::add_window(const std::vector<int>& groups, const std::vector<OwnedRange>& slices) {
  Window& window = windows_.emplace_back(Window{.groups = groups});
  for (const int group : groups) {
    window_of_[group] = static_cast<int>(windows_.size()) - 1;
    window.dtype = rule_.direction_dtype(groups_[group].wide_dtype());
    for (const Placement& placement : groups_[group].placements()) {
      if (placement.segment != SegmentKind::whole || placement.range().empty()) continue;
      window.parameters.push_back({.group = &groups_[group],
                                   .placement = &placement,
                                   .number = static_cast<int>(window.parameters.size()),
                                   .sums = {.numel = placement.parameter->numel()}});
    }
    for (const OwnedRange& slice : slices) {
      if (slice.group != group || slice.segment != SegmentKind::whole) continue;
      window.slots.push_back({.slice = slice,
                              .place = window.numel,
                              .on_device = window.device_numel,
                              .in_host = window.host_numel});
      window.numel += slice.range.size();
      if (is_in_host(slice)) window.host_numel += slice.range.size();
      // Where nothing is transformed, what is in host memory has no use on the device.
      if (!is_in_host(slice) || rule_.transforms()) window.device_numel += slice.range.size();
    }
  }
  choose_owners(window);
  if (measures()) add_trees(window);
  for (int rank = 0; rank < options_.parts; ++rank) {
    std::vector<int64_t> to_owner(load_.size());
    for (const Whole& whole : window.parameters) {
      to_owner[static_cast<size_t>(whole.owner)] += piece(whole, rank).size();
    }
    window.largest_numel = std::max(window.largest_numel, *std::ranges::max_element(to_owner));
    window.traffic_numel = std::max(window.traffic_numel,
                                    std::accumulate(to_owner.begin(), to_owner.end(), int64_t{0}));
  }
}

void WholePhase::choose_owners(Window& window) {
  const auto ranks = static_cast<size_t>(communicator_.size());
  const auto flops = [this](const Whole& whole) {
    const Shape shape = whole.shape();
    const int64_t columns = shape.rank() == 0 ? 1 : std::max<int64_t>(shape[shape.rank() - 1], 1);
    return rule_.flops(shape.numel() / columns, columns);
  };
  std::vector<Whole*> by_size;
  for (Whole& whole : window.parameters) by_size.push_back(&whole);
  std::ranges::stable_sort(by_size, std::greater<>(),
                           [&](const Whole* whole) { return flops(*whole); });
  std::vector<int64_t> here(ranks), numel(ranks);
  for (Whole* const whole : by_size) {
    size_t owner = 0;
    for (size_t rank = 1; rank < ranks; ++rank) {
      if (std::pair(here[rank], load_[rank]) < std::pair(here[owner], load_[owner])) owner = rank;
    }
    whole->owner = static_cast<int>(owner);
    here[owner] += flops(*whole);
    load_[owner] += flops(*whole);
  }
  if (!by_size.empty()) window.busiest = by_size.front()->owner;
  for (Whole& whole : window.parameters) {
    int64_t& of_owner = numel[static_cast<size_t>(whole.owner)];
    whole.place = of_owner;
    of_owner += whole.placement->parameter->numel();
  }
  window.owned_numel = *std::ranges::max_element(numel);
}

void WholePhase::add_trees(Window& window) {
  const auto kinds = static_cast<int64_t>(measured().size());
  std::vector<kernels::ChunkSubtree> trees;  // of the first kind
  size_t next = 0;
  for (const int group : window.groups) {
    const Range range = groups_[group].segment(SegmentKind::whole).range();
    for (; next < window.parameters.size() && window.parameters[next].group->index() == group;
         ++next) {
      const Placement& placement = *window.parameters[next].placement;
      trees.push_back({window.chunks + (placement.offset - range.begin) / kNormChunk,
                       kernels::num_norm_chunks(placement.parameter->numel())});
    }
    window.chunks += range.size() / kNormChunk;
  }
  for (const kernels::ChunkSubtree& tree : trees) {
    for (int64_t kind = 0; kind < kinds; ++kind) {
      window.trees.push_back({kind * window.chunks + tree.first, tree.width});
    }
  }
}

Range WholePhase::piece(const Whole& whole, int rank) const {
  const Segment& segment = whole.group->segment(SegmentKind::whole);
  return intersect(whole.placement->range(), segment.shard(rank, options_.parts));
}

const std::vector<int>& WholePhase::groups_in_window() const {
  static const std::vector<int> kNone;
  return open_ != nullptr ? open_->groups : kNone;
}

void WholePhase::open(int group) {
  const int number = window_of_[group];
  bug_check(number >= 0, "group ", groups_[group].name(), " has no whole parameters");
  Window& window = windows_[static_cast<size_t>(number)];
  if (open_ == &window) return;
  close();
  open_ = &window;
  const int64_t bytes = size_of(window.dtype);
  on_device_ = context_.allocate(window.device_numel * bytes, Label::workspace);
  const auto kinds = static_cast<int64_t>(measured().size());
  if (measures()) {
    sums_on_device_ = context_.allocate(sums_bytes(kinds, window.numel), Label::workspace);
    sums_ = context_.allocate(std::ssize(window.trees) * size_of(DType::f64), Label::workspace);
    rates_on_device_ = context_.allocate(rates_bytes(), Label::workspace);
  }
  if (window.host_numel == 0) return;
  in_host_ = context_.allocate(window.host_numel * bytes, Label::staging, Tier::pinned_host);
  if (!measures()) return;
  sums_in_host_ =
      context_.allocate(sums_bytes(kinds, window.host_numel), Label::staging, Tier::pinned_host);
  rates_in_host_ = context_.allocate(rates_bytes(), Label::staging, Tier::pinned_host);
}

void WholePhase::close() {
  open_ = nullptr;
  for (Block* const block : {&on_device_, &in_host_, &sums_on_device_, &sums_in_host_, &sums_,
                             &rates_on_device_, &rates_in_host_}) {
    block->reset();
  }
}

View WholePhase::device_view(const Block& block, int64_t place, int64_t numel) const {
  return View(static_cast<std::byte*>(block.data()) + place * size_of(open_->dtype), open_->dtype,
              Shape{numel}, context_.device());
}

const WholePhase::Slot& WholePhase::slot_of(const OwnedRange& part) const {
  bug_check(open_ != nullptr, "directions are asked for, and no window is open");
  for (const Slot& slot : open_->slots) {
    if (slot.slice.group == part.group && intersect(slot.slice.range, part.range) == part.range) {
      return slot;
    }
  }
  bug_check(false, "group ", groups_[part.group].name(), ": [", part.range.begin, ", ",
            part.range.end, ") is in no slice of the open window");
  return open_->slots.front();
}

View WholePhase::values(const OwnedRange& part) const {
  const Slot& slot = slot_of(part);
  const int64_t begin = part.range.begin - slot.slice.range.begin;
  if (!is_in_host(slot.slice)) {
    return device_view(on_device_, slot.on_device + begin, part.range.size());
  }
  return View(
      static_cast<std::byte*>(in_host_.data()) + (slot.in_host + begin) * size_of(open_->dtype),
      open_->dtype, Shape{part.range.size()}, context_.device(), Tier::pinned_host);
}

// The elements of this rank that lie in several slices follow each other on the device too.
int64_t WholePhase::place_of(Range piece, int group) const {
  for (const Slot& slot : open_->slots) {
    if (slot.slice.group != group || intersect(slot.slice.range, piece).empty()) continue;
    return slot.place + piece.begin - slot.slice.range.begin;
  }
  bug_check(false, "a piece of a parameter is in no slice of this rank");
  return 0;
}

View WholePhase::in_slots(Range piece, int group) const {
  bug_check(rule_.transforms(), "only a rule that transforms has all directions on the device");
  return device_view(on_device_, place_of(piece, group), piece.size());
}

void WholePhase::copy_host_slots(bool to_device) {
  for (const Slot& slot : open_->slots) {
    if (!is_in_host(slot.slice)) continue;
    const View there = device_view(on_device_, slot.on_device, slot.slice.range.size());
    const View here = values(slot.slice);
    if (to_device) {
      transfer(here, there, context_.compute());
    } else {
      transfer(there, here, context_.compute());
    }
  }
}

std::vector<WholePhase::Of> WholePhase::measured() const {
  std::vector<Of> kinds;
  if (rule_.measures().weights) kinds.push_back(Of::weights);
  if (rule_.measures().directions) kinds.push_back(Of::directions);
  return kinds;
}

View WholePhase::chunk_sums(size_t kind, bool in_host, int64_t place, int64_t numel) const {
  const Block& block = in_host ? sums_in_host_ : sums_on_device_;
  const int64_t all = (in_host ? open_->host_numel : open_->numel) / kNormChunk;
  const View sums(block.data(), DType::f64, Shape{static_cast<int64_t>(measured().size()) * all},
                  context_.device(), in_host ? Tier::pinned_host : Tier::device);
  const int64_t begin = static_cast<int64_t>(kind) * all + place / kNormChunk;
  return sums.narrow(0, begin, numel / kNormChunk);
}

void WholePhase::measure(const OwnedRange& part, const ConstView& weights,
                         const ConstView& directions, StreamRef stream) const {
  const Slot& slot = slot_of(part);
  const bool in_host = is_in_host(slot.slice);
  const Block& block = in_host ? sums_in_host_ : sums_on_device_;
  const int64_t place =
      (in_host ? slot.in_host : slot.place) + part.range.begin - slot.slice.range.begin;
  const View unread(static_cast<std::byte*>(block.data()) + block.bytes() - size_of(DType::i64),
                    DType::i64, Shape{1}, context_.device(),
                    in_host ? Tier::pinned_host : Tier::device);
  const std::vector<Of> kinds = measured();
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const View sums = chunk_sums(kind, in_host, place, part.range.size());
    kernels::finite_norm({.x = kinds[kind] == Of::weights ? weights : directions,
                          .chunk_sums = in_host ? host_memory(sums) : sums,
                          .first_nonfinite = in_host ? host_memory(unread) : unread},
                         stream);
  }
}

Block WholePhase::take_chunk_room() const {
  if (options_.parts == 1) return {};
  return context_.allocate(
      static_cast<int64_t>(measured().size()) * open_->chunks * size_of(DType::f64),
      Label::workspace);
}

View WholePhase::all_chunk_sums(const Block& room) const {
  const StreamRef stream = context_.compute();
  const auto kinds = static_cast<int64_t>(measured().size());
  for (int64_t kind = 0; kind < kinds; ++kind) {
    for (const Slot& slot : open_->slots) {
      if (!is_in_host(slot.slice)) continue;
      const int64_t numel = slot.slice.range.size();
      transfer(chunk_sums(kind, /*in_host=*/true, slot.in_host, numel),
               chunk_sums(kind, /*in_host=*/false, slot.place, numel), stream);
    }
  }
  const View all(room ? room.data() : sums_on_device_.data(), DType::f64,
                 Shape{kinds * open_->chunks}, context_.device());
  if (!room) return all;
  for (int64_t kind = 0; kind < kinds; ++kind) {
    int64_t first = kind * open_->chunks;
    for (const int group : open_->groups) {
      const Segment& segment = groups_[group].segment(SegmentKind::whole);
      const Range own = segment.shard(communicator_.rank(), options_.parts);
      const int64_t chunks = segment.size / kNormChunk;
      communicator_
          .all_gather(
              {.shard = chunk_sums(kind, /*in_host=*/false, place_of(own, group), own.size()),
               .out = all.narrow(0, first, chunks)},
              stream)
          .wait_on(stream);
      first += chunks;
    }
  }
  return all;
}

View WholePhase::sums_of(const Whole& whole) const {
  const auto kinds = static_cast<int64_t>(measured().size());
  const View all(sums_.data(), DType::f64, Shape{std::ssize(open_->trees)}, context_.device());
  return all.narrow(0, whole.number * kinds, kinds);
}

int64_t WholePhase::rates_bytes() const {
  const DType dtype = groups_[open_->groups.front()].wide_dtype();
  return std::ssize(open_->parameters) * rule_.num_rates() * size_of(dtype);
}

View WholePhase::rates_of(const Whole& whole, Tier tier) const {
  const Block& block = tier == Tier::device ? rates_on_device_ : rates_in_host_;
  const View all(block.data(), whole.group->wide_dtype(),
                 Shape{std::ssize(open_->parameters) * rule_.num_rates()}, context_.device(), tier);
  return all.narrow(0, whole.number * rule_.num_rates(), rule_.num_rates());
}

void WholePhase::finish_sums(const StepArguments& args) {
  const Block room = take_chunk_room();
  const View out(sums_.data(), DType::f64, Shape{std::ssize(open_->trees)}, context_.device());
  kernels::chunk_tree_sum({.sums = all_chunk_sums(room), .trees = open_->trees, .out = out},
                          context_.compute());
  if (rule_.num_rates() > 0) return make_rates(args);
  bring_sums();
}

void WholePhase::make_rates(const StepArguments& args) {
  for (const Whole& whole : open_->parameters) {
    const auto ruled = args.rules.ranges(whole.group->index(), whole.placement->range());
    rule_.rates({.sums = sums_of(whole),
                 .numel = whole.sums.numel,
                 .step = args.step,
                 .scalars = ruled.front().whole_scalars,
                 .rates = rates_of(whole, Tier::device)},
                ruled.front().hyper, context_.compute());
  }
  if (!rates_in_host_) return;
  const auto view = [&](const Block& block, Tier tier) {
    return View(block.data(), DType::u8, Shape{rates_bytes()}, context_.device(), tier);
  };
  transfer(view(rates_on_device_, Tier::device), view(rates_in_host_, Tier::pinned_host),
           context_.compute());
}

// Of a rule that has the sums from the host.
void WholePhase::bring_sums() {
  const std::vector<Of> kinds = measured();
  std::vector<double> values(open_->trees.size());
  download(View(sums_.data(), DType::f64, Shape{std::ssize(values)}, context_.device()),
           values.data(), context_.compute());
  if (context_.device().meta) return;
  for (Whole& whole : open_->parameters) {
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      (kinds[kind] == Of::weights ? whole.sums.weights : whole.sums.directions) =
          values[static_cast<size_t>(whole.number) * kinds.size() + kind];
    }
  }
}

const WholePhase::Whole* WholePhase::find(int group, Range range) const {
  const Whole* found = nullptr;
  for (const Whole& whole : open_->parameters) {
    if (whole.group->index() != group || whole.placement->offset > range.begin) continue;
    if (found == nullptr || found->placement->offset < whole.placement->offset) found = &whole;
  }
  return found;
}

const optim::ParameterSums& WholePhase::sums(int group, Range range) const {
  const Whole* const found = find(group, range);
  static const optim::ParameterSums kOfPadding;
  return found != nullptr ? found->sums : kOfPadding;
}

ConstView WholePhase::rates(int group, Range range, Tier tier) const {
  if (rule_.num_rates() == 0) return {};
  const Whole* const found = find(group, range);
  // Padding is zeros, which stay so at any rate.
  const View rates = rates_of(found != nullptr ? *found : open_->parameters.front(), tier);
  return tier == Tier::device ? rates : host_memory(rates);
}

void WholePhase::transform(int group, const StepArguments& args) {
  bug_check(open_ != nullptr && open_->groups.back() == group, "group ", groups_[group].name(),
            " does not end the open window of whole parameters");
  if (measures()) finish_sums(args);
  if (!rule_.transforms()) return;
  copy_host_slots(/*to_device=*/true);
  if (options_.parts > 1) {
    exchange(args);
  } else {
    share_steps(args);
  }
  copy_host_slots(/*to_device=*/false);
}

bool WholePhase::is_own(const Whole& whole) const {
  return whole.owner == (context_.device().meta ? open_->busiest : communicator_.rank());
}

void WholePhase::transform_own(const View& values, const Whole& whole, const UpdateRules& rules,
                               const StepArguments* args, StreamRef stream) const {
  const auto ranges = rules.ranges(whole.group->index(), whole.placement->range());
  // A rehearsal changes vectors of its own.
  const Block scratch = context_.allocate(
      bytes_of_vectors(rule_, whole.shape(), whole.group->wide_dtype()), Label::workspace);
  rule_.transform({.direction = values.reshape(whole.shape()),
                   .vectors = args == nullptr ? vectors_in(scratch, 0, whole)
                                              : vectors_in(vectors_, whole.vectors, whole),
                   .sums = whole.sums,
                   .step = args == nullptr ? 1 : args->step,
                   .skip = args == nullptr ? ConstView() : args->skip,
                   .scalars = ranges.front().whole_scalars},
                  ranges.front().hyper, stream);
}

void WholePhase::take_room_of_others(const View& values, const UpdateRules& rules) const {
  if (!context_.device().meta) return;
  // What is queued here takes no time in a plan.
  const auto beside = make_inline_stream("room of other owners", 0, nullptr);
  for (const Whole& whole : open_->parameters) {
    if (is_own(whole)) continue;
    transform_own(values.narrow(0, 0, whole.placement->parameter->numel()), whole, rules, nullptr,
                  *beside);
  }
}

void WholePhase::share_steps(const StepArguments& args) {
  for (const Whole& whole : open_->parameters) {
    if (!is_own(whole)) continue;
    transform_own(in_slots(whole.placement->range(), whole.group->index()), whole, args.rules,
                  &args, context_.compute());
  }
  if (communicator_.size() == 1) return;
  take_room_of_others(device_view(on_device_, 0, open_->numel), args.rules);
  for (const Whole& whole : open_->parameters) {
    communicator_.broadcast(
        {.inout = in_slots(whole.placement->range(), whole.group->index()), .root = whole.owner},
        context_.compute());
  }
}

WholePhase::Rooms WholePhase::take_rooms() const {
  const auto take = [this](int64_t numel) {
    return context_.allocate(numel * size_of(open_->dtype), Label::workspace);
  };
  Block sent = take(open_->traffic_numel);
  Block arrived = take(open_->owned_numel);
  return {
      .sent = std::move(sent), .arrived = std::move(arrived), .whole = take(open_->owned_numel)};
}

void WholePhase::rehearse(int group, const UpdateRules& rules) {
  open(group);
  if (measures()) take_chunk_room();
  if (!rule_.transforms()) return;
  Rooms rooms;
  if (options_.parts > 1) rooms = take_rooms();
  for (const Whole& whole : open_->parameters) {
    if (!is_own(whole)) continue;
    const View values =
        options_.parts > 1
            ? device_view(rooms.whole, whole.place, whole.placement->parameter->numel())
            : in_slots(whole.placement->range(), whole.group->index());
    kernels::fill({.y = values}, context_.compute());
    transform_own(values, whole, rules, nullptr, context_.compute());
  }
}

void WholePhase::exchange(const StepArguments& args) {
  const StreamRef stream = context_.compute();
  const int me = communicator_.rank();
  const auto size = static_cast<size_t>(communicator_.size());
  comm::AllToAllCounts out{.sent = std::vector<int64_t>(size),
                           .received = std::vector<int64_t>(size),
                           .largest = open_->largest_numel};
  for (const Whole& whole : open_->parameters) {
    out.sent[static_cast<size_t>(whole.owner)] += piece(whole, me).size();
    if (whole.owner != me) continue;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      out.received[static_cast<size_t>(rank)] += piece(whole, rank).size();
    }
  }
  const auto [sent, arrived, gathered] = take_rooms();

  // Calls `copy` for each piece of this rank's slots with its place in `sent`: by owner, and for
  // one owner by parameter.
  const auto own_pieces = [&](const auto& copy) {
    int64_t place = 0;
    for (int owner = 0; owner < communicator_.size(); ++owner) {
      for (const Whole& whole : open_->parameters) {
        const Range part = piece(whole, me);
        if (whole.owner != owner || part.empty()) continue;
        copy(in_slots(part, whole.group->index()), device_view(sent, place, part.size()));
        place += part.size();
      }
    }
    return device_view(sent, 0, place);
  };
  // The same for each piece of this rank's parameters, with its place in `arrived`.
  const auto pieces_of_own = [&](const auto& copy) {
    int64_t place = 0;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      for (const Whole& whole : open_->parameters) {
        const Range part = piece(whole, rank);
        if (whole.owner != me || part.empty()) continue;
        copy(device_view(gathered, whole.place + part.begin - whole.placement->offset, part.size()),
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
  for (const Whole& whole : open_->parameters) {
    if (!is_own(whole)) continue;
    transform_own(device_view(gathered, whole.place, whole.placement->parameter->numel()), whole,
                  args.rules, &args, stream);
  }
  take_room_of_others(device_view(gathered, 0, open_->owned_numel), args.rules);
  comm::AllToAllCounts back{.sent = out.received, .received = out.sent, .largest = out.largest};
  communicator_.all_to_all({.in = pieces_of_own(pack), .out = own_pieces(nothing), .counts = &back},
                           stream);
  own_pieces(unpack);
}

}  // namespace zinc::zero
