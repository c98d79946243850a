#include "zero/group/sign_sums.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/accumulate.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "kernels/finite_norm.h"
#include "kernels/scale.h"
#include "kernels/signs.h"

namespace zinc::zero {
namespace {

static_assert(kernels::kSignChunk == kNormChunk);

int64_t chunks_of(int64_t numel) { return numel / kNormChunk; }

Range chunks_of(Range range) { return {chunks_of(range.begin), chunks_of(range.end)}; }

View part(const View& values, Range range) { return values.narrow(0, range.begin, range.size()); }

// Runs of chunks: those of a parameter, and those of the padding between two.
std::vector<int64_t> runs_of(std::vector<Range> parameters, int64_t num_chunks) {
  std::ranges::sort(parameters, {}, &Range::begin);
  std::vector<int64_t> runs{0};
  const auto end_at = [&](int64_t chunk) {
    if (chunk != runs.back()) runs.push_back(chunk);
  };
  for (const Range& chunks : parameters) {
    end_at(chunks.begin);
    end_at(chunks.end);
  }
  end_at(num_chunks);
  return runs;
}

}  // namespace

SignSums::SignSums(const optim::SignReduction& rule, const ShardGroups& groups,
                   comm::Communicator& communicator, Context& context, Tier tier)
    : rule_(rule),
      groups_(groups),
      communicator_(communicator),
      context_(context),
      tier_(tier == Tier::nvme ? Tier::pinned_host : tier),
      state_(groups.size()) {
  if (!is_alone()) {
    for (int r = 0; r < communicator_.size(); ++r) {
      error_names_.push_back(str(kSignErrorKind, r));
    }
    error_names_.push_back(str(kSignErrorKind, "of_sum"));
  }
  for (const ShardGroup& group : groups) {
    if (group.trained_numel() == 0) continue;
    Group& state = state_[group];
    const auto zeros = [&](int64_t bytes, Tier where) {
      Block block = context_.allocate(bytes, Label::optimizer, where);
      kernels::fill({.y = host_memory(view_of(block, bytes, DType::u8, where))},
                    context_.compute());
      return block;
    };
    state.error = zeros(group.trained_numel() * size_of(DType::f32), tier_);
    if (is_alone()) {
      make_tables(group);
      continue;
    }
    state.error_of_sum = zeros(shard_numel(group) * size_of(DType::f32), tier_);
    state.last = zeros(message_bytes(shard_numel(group)) * communicator_.size(), Tier::device);
    make_tables(group);
  }
}

int64_t SignSums::shard_numel(const ShardGroup& group) const {
  return group.trained_numel() / communicator_.size();
}

int64_t SignSums::message_bytes(int64_t numel) {
  return numel / 8 + chunks_of(numel) * size_of(DType::f32);
}

int64_t SignSums::sent_bytes(const ShardGroup& group) const {
  return 2 * message_bytes(shard_numel(group)) * (communicator_.size() - 1);
}

View SignSums::view_of(const Block& block, int64_t numel, DType dtype, Tier tier) const {
  return {block.data(), dtype, Shape{numel}, context_.device(), tier};
}

SignSums::OwnError SignSums::own_error(ParameterIndex parameter, int which) const {
  const ShardGroup& group = groups_.of(parameter);
  const Placement& placement = groups_.at(parameter);
  const Group& state = state_[group];
  if (which < communicator_.size()) {
    if (which != communicator_.rank()) return {};
    const View all = view_of(state.error, group.trained_numel(), DType::f32, tier_);
    return {.part = {0, placement.range().size()}, .values = part(all, placement.range())};
  }
  const Segment& segment = group.segment(placement.segment);
  const Range shard = segment.shard(communicator_.rank(), communicator_.size());
  const Range here = intersect(placement.range(), shard);
  if (here.empty()) return {};
  const View own = view_of(state.error_of_sum, shard_numel(group), DType::f32, tier_);
  return {.part = here.from(placement.offset),
          .values = own.narrow(0, place(segment) + here.begin - shard.begin, here.size())};
}

int64_t SignSums::error_bytes() const {
  int64_t numel = 0;
  for (const ShardGroup& group : groups_) {
    numel += group.trained_numel() + (is_alone() ? 0 : shard_numel(group));
  }
  return numel * size_of(DType::f32);
}

SignSums::Room SignSums::take(int64_t numel, DType dtype, StreamRef stream) const {
  Room room;
  room.block = context_.allocator().allocate(numel * size_of(dtype), Tier::device,
                                             Label::communication, stream);
  room.view = view_of(room.block, numel, dtype);
  return room;
}

SignSums::Message SignSums::Message::part(int64_t begin, int64_t size) const {
  return {.bits = bits.narrow(0, begin / 8, size / 8),
          .scales = scales.narrow(0, chunks_of(begin), chunks_of(size))};
}

SignSums::Message SignSums::message(const View& messages, int r, int64_t numel) const {
  const int64_t bytes = message_bytes(numel);
  auto* begin = static_cast<std::byte*>(messages.data()) + r * bytes;
  return {
      .bits = View(begin, DType::u8, Shape{numel / 8}, context_.device()),
      .scales = View(begin + numel / 8, DType::f32, Shape{chunks_of(numel)}, context_.device())};
}

View SignSums::all_last(const ShardGroup& group) const {
  const int64_t bytes = message_bytes(shard_numel(group)) * communicator_.size();
  return view_of(state_[group].last, bytes, DType::u8);
}

View SignSums::all_of(const Message& message) const {
  const int64_t bytes = message.bits.bytes() + message.scales.bytes();
  return {message.bits.data(), DType::u8, Shape{bytes}, context_.device()};
}

template <class Visit>
void SignSums::for_each_shard(const ShardGroup& group, const Visit& visit) const {
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    for (int r = 0; r < communicator_.size(); ++r) {
      visit(segment, r, segment.shard(r, communicator_.size()));
    }
  }
}

void SignSums::make_tables(const ShardGroup& group) {
  Group& state = state_[group];
  const auto table = [&]<class T>(const std::vector<T>& values, DType dtype) {
    const auto numel = static_cast<int64_t>(values.size());
    Block block = context_.allocate(numel * size_of(dtype), Label::optimizer);
    upload(values.data(), view_of(block, numel, dtype), context_.compute());
    return block;
  };
  std::vector<int32_t> counts(static_cast<size_t>(chunks_of(group.trained_numel())), 0);
  std::vector<Range> parameters;
  for (const Placement& placement : group.placements()) {
    const Range range = placement.range();
    if (!is_trained(placement.segment) || range.empty()) continue;
    for (int64_t begin = range.begin; begin < range.end; begin += kNormChunk) {
      counts[static_cast<size_t>(chunks_of(begin))] =
          static_cast<int32_t>(std::min(kNormChunk, range.end - begin));
    }
    parameters.push_back({chunks_of(range.begin), chunks_of(range.end + kNormChunk - 1)});
  }
  std::vector<int32_t> own;
  std::vector<Range> own_parameters;
  for_each_shard(group, [&](const Segment&, int r, Range shard) {
    if (r != communicator_.rank()) return;
    const Range chunks = chunks_of(shard);
    const int64_t moved = static_cast<int64_t>(own.size()) - chunks.begin;
    for (const Range& parameter : parameters) {
      const Range here = intersect(parameter, chunks);
      if (!here.empty()) own_parameters.push_back({here.begin + moved, here.end + moved});
    }
    own.insert(own.end(), counts.begin() + chunks.begin, counts.begin() + chunks.end);
  });
  state.counts = table(counts, DType::i32);
  state.own_counts = table(own, DType::i32);
  if (!rule_.scales_parameters()) return;
  const std::vector<int64_t> runs = runs_of(parameters, chunks_of(group.trained_numel()));
  const std::vector<int64_t> own_runs = runs_of(own_parameters, chunks_of(shard_numel(group)));
  state.runs = table(runs, DType::i64);
  state.own_runs = table(own_runs, DType::i64);
  state.num_runs = static_cast<int64_t>(runs.size()) - 1;
  state.num_own_runs = static_cast<int64_t>(own_runs.size()) - 1;
}

void SignSums::with_error(const Block& error, int64_t numel, StreamRef stream,
                          const std::function<void(const View& error)>& work) const {
  const View kept = view_of(error, numel, DType::f32, tier_);
  if (tier_ == Tier::device) return work(kept);
  const Room room = take(numel, DType::f32, stream);
  transfer(kept, room.view, stream);
  work(room.view);
  transfer(room.view, kept, stream);
}

void SignSums::begin(double factor, PartsOf parts, bool is_first, const ReadLast& read_last) {
  factor_ = factor;
  parts_ = std::move(parts);
  is_skipped_ = false;
  if (std::exchange(has_last_, true)) return;
  const StreamRef stream = context_.compute();
  for (const ShardGroup& group : groups_) {
    if (group.trained_numel() == 0) continue;
    const Room last = take(group.trained_numel(), DType::f32, stream);
    kernels::fill({.y = last.view}, stream);
    read_last(group, last.view);
    if (!is_alone() && !is_first) {
      make_last(group, last.view, stream);
      continue;
    }
    if (!is_alone()) {
      for_each_part(group, [&](Range range, optim::SignReduction::Terms terms) {
        const View values = part(last.view, range);
        kernels::scale({.x = values, .factor = terms.keep, .y = values}, stream);
      });
      kernels::fill({.y = all_last(group)}, stream);
    }
    transfer(last.view, view_of(state_[group].error, group.trained_numel(), DType::f32, tier_),
             stream);
  }
}

template <class Visit>
void SignSums::for_each_part(const ShardGroup& group, const Visit& visit) const {
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    std::vector<Part> parts = parts_(group.index(), segment.range());
    for (size_t i = 0; i < parts.size();) {
      Range range = parts[i].range;
      size_t next = i + 1;
      for (; next < parts.size() && parts[next].terms == parts[i].terms; ++next) {
        range.end = parts[next].range.end;
      }
      visit(range, parts[i].terms);
      i = next;
    }
  }
}

void SignSums::find_scales(const View& x, const View& counts, const View& runs, const View& scales,
                           StreamRef stream) const {
  const Room sums = take(counts.numel(), DType::f64, stream);
  const Room nonfinite = take(1, DType::i64, stream);
  kernels::finite_norm({.x = x, .chunk_sums = sums.view, .first_nonfinite = nonfinite.view},
                       stream);
  kernels::sign_scales({.sums = sums.view, .counts = counts, .runs = runs, .scales = scales},
                       stream);
}

// x = keep * last + share * gradient, in the place of both.
void SignSums::reduce_alone(const ShardGroup& group, const View& values, const View& last,
                            StreamRef stream) const {
  const View counts = view_of(state_[group].counts, chunks_of(values.numel()), DType::i32);
  for_each_part(group, [&](Range range, optim::SignReduction::Terms terms) {
    const View kept = part(last, range);
    kernels::scale({.x = kept, .factor = terms.keep, .y = kept}, stream);
    kernels::decode_signs({.bits = {},
                           .scales = {},
                           .counts = part(counts, chunks_of(range)),
                           .keep = terms.share * factor_,
                           .addend = kept,
                           .y = part(values, range)},
                          stream);
  });
  kernels::copy({.x = values, .y = last}, stream);
}

// This rank's signs of x = keep * last + share * gradient + error, as they travel.
void SignSums::sign(const ShardGroup& group, const View& values, const View& error,
                    const View& sent, StreamRef stream) const {
  const Group& state = state_[group];
  const int64_t shard = shard_numel(group);
  const View counts = view_of(state.counts, chunks_of(values.numel()), DType::i32);
  const View all = all_last(group);
  const double gradient = factor_ * communicator_.size();
  for_each_part(group, [&](Range range, optim::SignReduction::Terms terms) {
    for_each_shard(group, [&](const Segment& segment, int r, Range of_rank) {
      const Range here = intersect(range, of_rank);
      if (here.empty()) return;
      const int64_t at = place(segment) + here.begin - of_rank.begin;
      Message last;
      if (terms.keep != 0.0) last = message(all, r, shard).part(at, here.size());
      const Message to = message(sent, r, shard).part(at, here.size());
      if (rule_.scales_parameters()) {
        kernels::decode_signs({.bits = last.bits,
                               .scales = last.scales,
                               .counts = part(counts, chunks_of(here)),
                               .factor = terms.keep,
                               .keep = terms.share * gradient,
                               .addend = part(error, here),
                               .y = part(values, here)},
                              stream);
        return;
      }
      kernels::send_signs({.x = part(values, here),
                           .share = terms.share * gradient,
                           .last_bits = last.bits,
                           .last_scales = last.scales,
                           .last_factor = terms.keep,
                           .counts = part(counts, chunks_of(here)),
                           .residual = part(error, here),
                           .bits = to.bits,
                           .scales = to.scales},
                          stream);
    });
  });
  if (!rule_.scales_parameters()) return;
  const Room scales = take(chunks_of(values.numel()), DType::f32, stream);
  find_scales(values, counts, view_of(state.runs, state.num_runs + 1, DType::i64), scales.view,
              stream);
  for_each_shard(group, [&](const Segment& segment, int r, Range of_rank) {
    const Message to = message(sent, r, shard).part(place(segment), of_rank.size());
    const View of_chunks = part(scales.view, chunks_of(of_rank));
    kernels::copy({.x = of_chunks, .y = to.scales}, stream);
    kernels::encode_signs({.x = part(values, of_rank),
                           .scales = of_chunks,
                           .counts = part(counts, chunks_of(of_rank)),
                           .bits = to.bits,
                           .residual = part(error, of_rank)},
                          stream);
  });
}

// The signs of the mean of what came, with the error of the sum.
void SignSums::sign_sum(const ShardGroup& group, const View& received, const Message& own,
                        StreamRef stream) const {
  const Group& state = state_[group];
  const int64_t shard = shard_numel(group);
  const int ranks = communicator_.size();
  const View counts = view_of(state.own_counts, chunks_of(shard), DType::i32);
  const Room sum = take(shard, DType::f32, stream);
  for (int r = 0; r < ranks; ++r) {
    const Message from = message(received, r, shard);
    kernels::decode_signs({.bits = from.bits,
                           .scales = from.scales,
                           .counts = counts,
                           .factor = 1.0 / ranks,
                           .keep = r == 0 ? 0.0 : 1.0,
                           .y = sum.view},
                          stream);
  }
  with_error(state.error_of_sum, shard, stream, [&](const View& error) {
    if (!rule_.scales_parameters()) {
      kernels::send_signs({.x = sum.view,
                           .last_bits = {},
                           .last_scales = {},
                           .counts = counts,
                           .residual = error,
                           .bits = own.bits,
                           .scales = own.scales},
                          stream);
      return;
    }
    kernels::accumulate({.x = error, .accumulator = sum.view}, stream);
    find_scales(sum.view, counts, view_of(state.own_runs, state.num_own_runs + 1, DType::i64),
                own.scales, stream);
    kernels::encode_signs({.x = sum.view,
                           .scales = own.scales,
                           .counts = counts,
                           .bits = own.bits,
                           .residual = error},
                          stream);
  });
}

// Every rank's signs to the owners of their elements, and those of the sums to all ranks.
void SignSums::exchange(const ShardGroup& group, const View& values, const View& error,
                        StreamRef stream) const {
  const int ranks = communicator_.size();
  const int64_t bytes = message_bytes(shard_numel(group));
  const Room sent = take(ranks * bytes, DType::u8, stream);
  sign(group, values, error, sent.view, stream);
  const Room received = take(ranks * bytes, DType::u8, stream);
  communicator_.all_to_all({.in = sent.view, .out = received.view}, stream);
  const View all = all_last(group);
  const Message own = message(all, communicator_.rank(), shard_numel(group));
  sign_sum(group, received.view, own, stream);
  communicator_.all_gather({.shard = all_of(own), .out = all}, stream);
}

comm::Work SignSums::reduce(const ShardGroup& group, const View& values, bool all,
                            StreamRef stream) {
  if (is_skipped_ || group.trained_numel() == 0) return {};
  const Group& state = state_[group];
  with_error(state.error, group.trained_numel(), stream, [&](const View& error) {
    if (is_alone()) {
      reduce_alone(group, values, error, stream);
    } else {
      exchange(group, values, error, stream);
    }
  });
  if (!is_alone()) decode_last(group, values, all, stream);
  return comm::Work(stream->record());
}

void SignSums::decode_last(const ShardGroup& group, const View& values, bool all,
                           StreamRef stream) const {
  const Group& state = state_[group];
  const int64_t shard = shard_numel(group);
  const View last = all_last(group);
  const View counts = view_of(state.counts, chunks_of(group.trained_numel()), DType::i32);
  for_each_shard(group, [&](const Segment& segment, int r, Range of_rank) {
    if (!all && r != communicator_.rank()) return;
    const Message from = message(last, r, shard).part(place(segment), of_rank.size());
    kernels::decode_signs({.bits = from.bits,
                           .scales = from.scales,
                           .counts = part(counts, chunks_of(of_rank)),
                           .y = part(values, of_rank)},
                          stream);
  });
}

// Values of signs have their scale in every chunk: its root of the mean square has the same bits.
void SignSums::make_last(const ShardGroup& group, const View& values, StreamRef stream) {
  const Group& state = state_[group];
  const int64_t shard = shard_numel(group);
  const View last = all_last(group);
  const View counts = view_of(state.counts, chunks_of(group.trained_numel()), DType::i32);
  for_each_shard(group, [&](const Segment& segment, int r, Range of_rank) {
    const Message to = message(last, r, shard).part(place(segment), of_rank.size());
    const View here = part(values, of_rank), of_chunks = part(counts, chunks_of(of_rank));
    find_scales(here, of_chunks, {}, to.scales, stream);
    kernels::encode_signs({.x = here, .scales = to.scales, .counts = of_chunks, .bits = to.bits},
                          stream);
  });
}

void SignSums::end(double factor) {
  if (factor == 1.0 || is_skipped_) return;
  const StreamRef stream = context_.compute();
  for (const ShardGroup& group : groups_) {
    if (group.trained_numel() == 0) continue;
    const Group& state = state_[group];
    if (is_alone()) {
      with_error(state.error, group.trained_numel(), stream, [&](const View& last) {
        kernels::scale({.x = last, .factor = factor, .y = last}, stream);
      });
      continue;
    }
    const int64_t shard = shard_numel(group);
    const View last = all_last(group);
    for (int r = 0; r < communicator_.size(); ++r) {
      const View scales = message(last, r, shard).scales;
      kernels::scale({.x = scales, .factor = factor, .y = scales}, stream);
    }
  }
}

}  // namespace zinc::zero
