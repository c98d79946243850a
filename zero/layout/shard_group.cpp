#include "zero/layout/shard_group.h"

#include <algorithm>
#include <utility>

#include "core/convert.h"
#include "core/error.h"
#include "kernels/decode.h"

namespace zinc::zero {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

bool is_small(const autograd::Parameter& parameter, int64_t persistence_threshold) {
  return parameter.requires_grad() && parameter.numel() <= persistence_threshold;
}

// Whether small parameters have a segment of their own: see Note [Layout].
bool keeps_small_apart(const std::vector<autograd::Parameter*>& parameters, int world,
                       int64_t persistence_threshold) {
  int64_t small_chunks = 0;
  bool has_large = false;
  for (const autograd::Parameter* parameter : parameters) {
    if (is_small(*parameter, persistence_threshold)) {
      small_chunks += round_up(parameter->numel(), kNormChunk) / kNormChunk;
    } else if (parameter->requires_grad()) {
      has_large = true;
    }
  }
  return small_chunks >= world || !has_large;
}

}  // namespace

std::string_view name_of(SegmentKind kind) {
  static constexpr std::array<std::string_view, kNumSegmentKinds> kNames{
      "trained", "persistent", "whole", "frozen", "quantized"};
  return kNames[static_cast<size_t>(kind)];
}

void require_trained(const Placement& placement) {
  require(is_trained(placement.segment), "parameter '", placement.parameter->name(),
          "' is frozen: it has neither gradient nor optimizer state");
}

Range intersect(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

ShardGroup::ShardGroup(int index, std::string name,
                       const std::vector<autograd::Parameter*>& parameters, int world,
                       int64_t persistence_threshold, bool in_unit, const LayoutOptions& options)
    : index_(index), name_(std::move(name)), in_unit_(in_unit), world_(world) {
  require(!parameters.empty(), "shard group '", name_, "' has no parameters");
  require(world > 0, "shard group '", name_, "': the world size must be positive, not ", world);
  dtype_ = parameters.front()->dtype();
  const auto is_matrix = [&](const autograd::Parameter& parameter) {
    return options.trains && options.whole.contains(&parameter);
  };
  std::vector<autograd::Parameter*> by_elements;
  std::ranges::copy_if(
      parameters, std::back_inserter(by_elements),
      [&](const autograd::Parameter* parameter) { return !is_matrix(*parameter); });
  const bool keeps_small =
      options.trains && keeps_small_apart(by_elements, world, persistence_threshold);
  for (autograd::Parameter* parameter : parameters) {
    require(parameter->dtype() == dtype_, "shard group '", name_, "': all parameters must be of ",
            "one dtype: ", parameters.front()->name(), " is ", dtype_, ", ", parameter->name(),
            " is ", parameter->dtype());
    SegmentKind kind =
        options.trains && parameter->requires_grad() ? SegmentKind::trained : SegmentKind::frozen;
    if (const auto& format = parameter->block_format(); format) {
      require(kind == SegmentKind::frozen, "parameter '", parameter->name(), "' is trained, and ",
              "cannot be kept in ", name_of(*format), ": freeze it, or train an adapter");
      require(!block_format_ || *block_format_ == *format, "shard group '", name_,
              "': all block formats must be one: ", parameter->name(), " has another");
      block_format_ = format;
      kind = SegmentKind::quantized;
    }
    if (keeps_small && is_small(*parameter, persistence_threshold)) kind = SegmentKind::persistent;
    if (is_matrix(*parameter)) kind = SegmentKind::whole;
    placements_.push_back({.parameter = parameter, .offset = 0, .segment = kind});
    if (is_trained(kind)) ++num_trained_parameters_;
  }
  for (int i = 0; i < kNumSegmentKinds; ++i) {
    const auto kind = static_cast<SegmentKind>(i);
    Segment segment{.kind = kind, .offset = numel_, .size = 0, .encoding = {.dtype = dtype_}};
    if (is_quantized(kind) && block_format_) {
      segment.encoding = Encoding::in_blocks(*block_format_);
    }
    bool used = false;
    for (Placement& placement : placements_) {
      if (placement.segment != kind) continue;
      used = true;
      placement.offset = segment.offset + segment.size;
      segment.size += round_up(placement.parameter->numel(), kNormChunk);
    }
    // A segment exists even if its parameters have no elements.
    if (used) segment.size = round_up(std::max<int64_t>(segment.size, 1), world * kShardUnit);
    numel_ += segment.size;
    if (is_trained(kind)) trained_numel_ = numel_;
    if (segment.size > 0) segments_.push_back(segment);
  }
}

View Encoding::view(const Block& block, int64_t at, Range range, Device device) const {
  const int64_t begin = at + bytes_of(range.begin), end = at + bytes_of(range.end);
  bug_check(at >= 0 && range.begin >= 0 && range.begin <= range.end && end <= block.bytes(),
            "elements [", range.begin, ", ", range.end, ") from byte ", at,
            " on are not within a block of ", block.bytes());
  return View(static_cast<std::byte*>(block.data()) + begin, dtype, Shape{numel_of(range.size())},
              device, block.tier());
}

void Encoding::widen(const ConstView& stored, const View& out) const {
  if (is_plain()) return convert_elements(stored, out);
  kernels::decode_on_host({.x = stored, .format = format, .y = out});
}

int64_t ShardGroup::bytes() const {
  int64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.encoding.bytes_of(segment.size);
  return bytes;
}

int64_t ShardGroup::gathered_bytes() const {
  int64_t bytes = 0;
  for (const Segment& segment : segments_) {
    if (!is_persistent(segment.kind)) bytes += segment.encoding.bytes_of(segment.size);
  }
  return bytes;
}

int64_t ShardGroup::gathered_numel() const {
  int64_t numel = 0;
  for (const Segment& segment : segments_) {
    if (!is_persistent(segment.kind)) numel += segment.size;
  }
  return numel;
}

const Segment& ShardGroup::segment(SegmentKind kind) const {
  for (const Segment& segment : segments_) {
    if (segment.kind == kind) return segment;
  }
  throw InvalidArgument(str("shard group '", name_, "' has no ", zero::name_of(kind), " segment"));
}

std::vector<Range> ShardGroup::trained_gaps() const {
  std::vector<Range> taken;
  for (const Placement& placement : placements_) {
    if (is_trained(placement.segment)) taken.push_back(placement.range());
  }
  std::sort(taken.begin(), taken.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> gaps;
  int64_t position = 0;
  for (const Range& range : taken) {
    if (range.begin > position) gaps.push_back({position, range.begin});
    position = std::max(position, range.end);
  }
  if (position < trained_numel_) gaps.push_back({position, trained_numel_});
  return gaps;
}

bool has_whole(const ShardGroup& group) {
  return std::ranges::any_of(
      group.segments(), [](const Segment& segment) { return segment.kind == SegmentKind::whole; });
}

ShardGroups make_shard_groups(nn::Module& model, int world, int64_t persistence_threshold,
                              const std::function<GroupPart(const autograd::Parameter&)>& part_of,
                              const LayoutOptions& options) {
  const auto unit_of = [](const nn::Parameter& parameter) {
    nn::Module* unit = nullptr;
    for (nn::Module* module = &parameter.parent(); module != nullptr; module = module->parent()) {
      if (module->is_shard_unit()) unit = module;
    }
    return unit;
  };

  ShardGroups groups;
  std::vector<autograd::Parameter*> pending;
  nn::Module* pending_unit = nullptr;
  std::string pending_name;
  std::vector<int> pending_part;
  const auto finish = [&] {
    if (pending.empty()) return;
    groups.emplace_back(static_cast<int>(groups.size()), pending_name, pending, world,
                        persistence_threshold, pending_unit != nullptr, options);
    pending.clear();
  };
  for (nn::Parameter* parameter : model.parameters()) {
    const GroupPart part = part_of ? part_of(*parameter) : std::vector<int>();
    if (!part) continue;
    nn::Module* unit = unit_of(*parameter);
    if (unit != pending_unit || *part != pending_part) finish();
    if (pending.empty()) {
      pending_unit = unit;
      pending_part = *part;
      pending_name = unit != nullptr ? unit->path() : parameter->parent().path();
    }
    pending.push_back(parameter);
  }
  finish();
  require(!groups.empty(), "the model has no parameters");
  return groups;
}

ParameterIndex index_of(const autograd::Parameter& parameter, const ShardGroups& groups) {
  for (const ShardGroup& group : groups) {
    const auto found = std::ranges::find(group.placements(), &parameter, &Placement::parameter);
    if (found == group.placements().end()) continue;
    return {group.index(), static_cast<int>(found - group.placements().begin())};
  }
  return kInNoGroup;
}

void serve(nn::Module& model, const ShardGroups& groups, autograd::ParameterSource& source) {
  for (nn::Parameter* parameter : model.parameters()) {
    parameter->set_source(source, index_of(*parameter, groups));
  }
}

}  // namespace zinc::zero
