// zero/layout/shard_group.h: the parameters that move together, and the place of each in memory.
//
// A shard group is the unit of gathering and reducing. By default a group is one transformer block.
// Parameters outside any block form groups of their own: the embeddings; the final norm and the
// head. The parameters of a group lie in one flat arena. The arena has up to five segments:
//
//   [ trained | persistent | whole | frozen | quantized ]
//
// The first three segments are trained. So everything that is trained is one range at the start of
// the arena.
//
// Note [Layout]
// Offsets depend on the model, the world size, the persistence threshold and the choice of those
// alone. They are the same on every stage, on every tier and in every dtype.
// - A parameter starts at a multiple of kNormChunk elements. The gradient norm is summed over
//   chunks of that size, so a chunk belongs to one parameter.
// - A segment is padded to a multiple of world * kShardUnit elements and cut into `world` equal
//   shards. Every rank gets an equal part of the optimizer states. A shard boundary is a multiple
//   of kNormChunk elements and, in every float dtype, of 4 KiB (for O_DIRECT).
// - Padding holds zeros: in weights, in gradients and in optimizer states.
// - Small parameters get the persistent segment only if they fill at least one chunk per rank, or
//   if the group trains nothing else. Otherwise most of that segment would be padding, and the
//   small parameters lie in the trained segment.
// - Parameters that the update rule takes as a whole (optim/whole_rule.h) have a segment of
//   their own, because their states are others.
//
// Note [Quantized segments]
// Frozen parameters with a block format lie in the quantized segment. The segment holds encoded
// bytes (core/block_format.h). The bytes of one chunk of kNormChunk elements mean the same wherever
// the chunk lies. Offsets, shards and tiles are counted in elements, as in the other segments; an
// Encoding converts elements to bytes. Shards are kept, moved and gathered as bytes. Only the
// weight store decodes them, when a parameter is used.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "core/allocator.h"
#include "core/block_format.h"
#include "core/view.h"
#include "nn/module.h"

namespace zinc::zero {

// Group: ShardGroup::index(); position: in ShardGroup::placements().
using autograd::ParameterIndex;

inline constexpr int64_t kNormChunk = 1024;  // elements; also the alignment of a parameter
inline constexpr int64_t kShardUnit = 2048;  // elements: 4 KiB in 16 bits

enum class SegmentKind : uint8_t {
  trained,
  persistent,  // trained, small: whole on every rank even where parameters are sharded
  whole,       // trained, each updated as a whole
  frozen,
  quantized,  // frozen, kept encoded: Note [Quantized segments]
};
inline constexpr int kNumSegmentKinds = 5;
std::string_view name_of(SegmentKind kind);
inline bool is_trained(SegmentKind kind) { return kind <= SegmentKind::whole; }
inline bool is_quantized(SegmentKind kind) { return kind == SegmentKind::quantized; }
inline bool is_persistent(SegmentKind kind) { return kind == SegmentKind::persistent; }

// [begin, end) in elements.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  // The same range with offsets relative to `start`.
  Range from(int64_t start) const { return {begin - start, end - start}; }
  friend bool operator==(const Range&, const Range&) = default;
};
// The common part of both ranges; empty if there is none.
Range intersect(const Range& a, const Range& b);

// The place of one parameter in the arena of its group.
struct Placement {
  autograd::Parameter* parameter = nullptr;
  int64_t offset = 0;  // elements from the start of the arena
  SegmentKind segment = SegmentKind::trained;
  Range range() const { return {offset, offset + parameter->numel()}; }
};

// Throws InvalidArgument for a frozen parameter. A frozen parameter has no gradient and no
// optimizer states.
void require_trained(const Placement& placement);

// How the elements of a segment, or of their optimizer states, are stored in memory.
struct Encoding {
  DType dtype = DType::f32;          // u8: encoded bytes
  int64_t chunk_numel = kNormChunk;  // values of that dtype that hold kNormChunk elements
  BlockFormat format{};              // of encoded bytes

  static Encoding in_blocks(BlockFormat format) {
    return {.dtype = DType::u8, .chunk_numel = chunk_bytes(format), .format = format};
  }
  bool is_plain() const { return chunk_numel == kNormChunk; }
  // Stored values that hold `numel` elements. Encoded elements are counted in whole chunks.
  int64_t numel_of(int64_t numel) const {
    return is_plain() ? numel : (numel + kNormChunk - 1) / kNormChunk * chunk_numel;
  }
  int64_t bytes_of(int64_t numel) const { return numel_of(numel) * size_of(dtype); }
  // Elements that `numel` stored values hold, in whole chunks where they are encoded.
  int64_t elements_of(int64_t numel) const {
    return is_plain() ? numel : numel / chunk_numel * kNormChunk;
  }
  // The elements `range` of a segment that begins at byte `at` of `block`. Encoded: range.begin is
  // a multiple of kNormChunk. View: [numel_of(range.size())] dtype.
  View view(const Block& block, int64_t at, Range range, Device device) const;
  // The elements `range` of `values`, a view of stored values.
  View part(const View& values, Range range) const {
    return values.narrow(0, numel_of(range.begin), numel_of(range.size()));
  }
  ConstView part(const ConstView& values, Range range) const {
    return values.narrow(0, numel_of(range.begin), numel_of(range.size()));
  }
  // out[i] = element i of the stored values. Both in contiguous host memory. out: [n] of any float
  // dtype; stored: [numel_of(n)]. At once, on any thread.
  void widen(const ConstView& stored, const View& out) const;
};

struct Segment {
  SegmentKind kind = SegmentKind::trained;
  int64_t offset = 0;  // elements from the start of the arena
  int64_t size = 0;    // with padding: a multiple of world * kShardUnit; 0: no such segment
  Encoding encoding{};
  Range range() const { return {offset, offset + size}; }
  Range shard(int rank, int world) const {
    const int64_t length = size / world;
    return {offset + rank * length, offset + (rank + 1) * length};
  }
};

struct LayoutOptions {
  bool trains = true;  // false lays out every parameter as if it were frozen
  // The trained parameters that the update rule takes as a whole.
  std::set<const autograd::Parameter*> whole{};
};

class ShardGroup {
 public:
  // `parameters` are in order of declaration and have one dtype. Trained parameters with at most
  // `persistence_threshold` elements are small: see Note [Layout]. Throws InvalidArgument if the
  // dtypes or the block formats differ, or if a trained parameter has a block format.
  // `in_unit`: the parameters of a shard unit, or false: a run of parameters outside any.
  ShardGroup(int index, std::string name, const std::vector<autograd::Parameter*>& parameters,
             int world, int64_t persistence_threshold, bool in_unit = true,
             const LayoutOptions& options = {});

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  bool in_unit() const { return in_unit_; }
  DType dtype() const { return dtype_; }
  // The dtype of master weights, optimizer states and gradient sums.
  DType wide_dtype() const { return dtype_ == DType::f64 ? DType::f64 : DType::f32; }
  int world() const { return world_; }
  int64_t numel() const { return numel_; }                  // elements of the arena, with padding
  int64_t trained_numel() const { return trained_numel_; }  // trained segments are [0, this)
  int64_t gathered_numel() const;  // elements that stage 3 gathers: all but the persistent segment
  int64_t gathered_bytes() const;
  int64_t bytes() const;  // bytes of the arena
  // The byte at which a segment begins in the arena. The quantized segment is the last one, so all
  // elements before any segment have dtype().
  int64_t byte_of(const Segment& segment) const { return segment.offset * size_of(dtype_); }
  // The format of the quantized segment; absent if the group has none.
  const std::optional<BlockFormat>& block_format() const { return block_format_; }
  // In order of declaration. Offsets are not monotonic.
  const std::vector<Placement>& placements() const { return placements_; }
  // The segments that have elements, in order of offset.
  const std::vector<Segment>& segments() const { return segments_; }
  // Throws InvalidArgument if the group has no such segment.
  const Segment& segment(SegmentKind kind) const;
  int num_trained_parameters() const { return num_trained_parameters_; }
  // The padding in [0, trained_numel()): the ranges that belong to no parameter, in order.
  std::vector<Range> trained_gaps() const;

 private:
  int index_;
  std::string name_;
  bool in_unit_;
  DType dtype_ = DType::f32;
  std::optional<BlockFormat> block_format_;
  int world_;
  int64_t numel_ = 0;
  int64_t trained_numel_ = 0;
  int num_trained_parameters_ = 0;
  std::vector<Placement> placements_;
  std::vector<Segment> segments_;
};

// Whether the update rule takes any parameter of the group as a whole.
bool has_whole(const ShardGroup& group);

// A value for every group, by the group's index.
template <class T>
class ByGroup : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  using std::vector<T>::operator[];
  decltype(auto) operator[](int group) { return (*this)[static_cast<size_t>(group)]; }
  decltype(auto) operator[](int group) const { return (*this)[static_cast<size_t>(group)]; }
  decltype(auto) operator[](const ShardGroup& group) { return (*this)[group.index()]; }
  decltype(auto) operator[](const ShardGroup& group) const { return (*this)[group.index()]; }
};

class ShardGroups : public ByGroup<ShardGroup> {
 public:
  const ShardGroup& of(ParameterIndex parameter) const { return (*this)[parameter.group]; }
  const Placement& at(ParameterIndex parameter) const {
    return of(parameter).placements()[static_cast<size_t>(parameter.position)];
  }
};

// The part of the model's parameters that a rank has. Absent for a parameter that the rank does not
// have; equal for parameters that may lie in one group.
using GroupPart = std::optional<std::vector<int>>;
// The groups of a model in order of declaration. There is one group per shard unit
// (Module::mark_shard_unit; of nested units the outermost), and one per run of consecutive
// parameters outside any unit. Parameters without elements belong to groups too. An empty
// `part_of`: the rank has all parameters. Throws InvalidArgument if the model has no parameters, or
// as the constructor of ShardGroup does.
ShardGroups make_shard_groups(
    nn::Module& model, int world, int64_t persistence_threshold,
    const std::function<GroupPart(const autograd::Parameter&)>& part_of = {},
    const LayoutOptions& options = {});

// The index of a parameter that lies in no group: another rank has it.
inline constexpr ParameterIndex kInNoGroup{.group = -1};
ParameterIndex index_of(const autograd::Parameter& parameter, const ShardGroups& groups);
// Puts all parameters of the model under a source, each with its place among the groups.
void serve(nn::Module& model, const ShardGroups& groups, autograd::ParameterSource& source);

}  // namespace zinc::zero
