// zero/layout/shard_group.h: which parameters move together, and where each of them lies.
//
// A shard group is the unit of gathering and reducing: by default one transformer block; parameters
// outside any block form groups of their own (the embeddings; the final norm and the head). Its
// parameters lie in one flat arena, in up to four segments:
//
//   [ trained | persistent | frozen | quantized ]
//
// so that what is trained is one range at the start.
//
// Note [Layout]
// Offsets are a function of (model, world size, persistence threshold) alone: the same on every
// stage, tier and dtype. Every parameter starts at a multiple of kNormChunk elements, so that the
// chunks over which the gradient norm is summed are chunks of one parameter, wherever it lies. Each
// segment is padded to world * kShardUnit elements and cut into `world` equal shards: optimizer
// states are spread over all ranks alike, and a shard boundary is a multiple of 4 KiB (for
// O_DIRECT) and of kNormChunk in every dtype. Padding holds zeros, in weights, gradients and
// states. Small parameters with fewer chunks than there are ranks lie in the trained segment, where
// the group has one: a segment of their own would be padding on most ranks.
//
// Note [Quantized segments]
// Frozen parameters with a block format lie in a segment of their own, encoded: a chunk of
// kNormChunk elements is a run of bytes that means the same wherever it lies
// (core/block_format.h). Offsets, shards and tiles are in elements as everywhere; an Encoding
// says how many bytes these are. So shards are kept on any tier, move and are gathered as bytes,
// and nothing but the store that serves a use decodes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "core/allocator.h"
#include "core/block_format.h"
#include "core/view.h"
#include "nn/module.h"

namespace zinc::zero {

inline constexpr int64_t kNormChunk = 1024;  // elements; also the alignment of a parameter
inline constexpr int64_t kShardUnit = 2048;  // elements: 4 KiB in 16 bits

enum class SegmentKind : uint8_t {
  trained,
  persistent,  // trained, small: whole on every rank also where parameters are sharded
  frozen,
  quantized,  // frozen, kept encoded: Note [Quantized segments]
};
inline constexpr int kNumSegmentKinds = 4;
std::string_view name_of(SegmentKind kind);
inline bool is_trained(SegmentKind kind) { return kind <= SegmentKind::persistent; }
inline bool is_quantized(SegmentKind kind) { return kind == SegmentKind::quantized; }
inline bool is_persistent(SegmentKind kind) { return kind == SegmentKind::persistent; }

// [begin, end) in elements.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  // The same, counted from `start` on.
  Range from(int64_t start) const { return {begin - start, end - start}; }
  friend bool operator==(const Range&, const Range&) = default;
};
// An empty range where the two do not meet.
Range intersect(const Range& a, const Range& b);

// One parameter's place in its group's arena.
struct Placement {
  autograd::Parameter* parameter = nullptr;
  int64_t offset = 0;  // elements from the start of the arena
  SegmentKind segment = SegmentKind::trained;
  Range range() const { return {offset, offset + parameter->numel()}; }
};

// Throws InvalidArgument for a frozen parameter: it has neither gradient nor optimizer states.
void require_trained(const Placement& placement);

// What elements of a segment are in memory.
struct Encoding {
  DType dtype = DType::f32;          // u8 where they are encoded
  int64_t chunk_numel = kNormChunk;  // values of that dtype that hold kNormChunk elements

  bool is_plain() const { return chunk_numel == kNormChunk; }
  // Values that hold `numel` elements; encoded ones begin at a chunk and take whole chunks.
  int64_t numel_of(int64_t numel) const {
    return is_plain() ? numel : (numel + kNormChunk - 1) / kNormChunk * chunk_numel;
  }
  int64_t bytes_of(int64_t numel) const { return numel_of(numel) * size_of(dtype); }
  // Elements [begin, end) of those that lie at byte `at` of a block.
  View view(const Block& block, int64_t at, Range range, Device device) const;
  // The same of a view of them.
  View part(const View& values, Range range) const {
    return values.narrow(0, numel_of(range.begin), numel_of(range.size()));
  }
  ConstView part(const ConstView& values, Range range) const {
    return values.narrow(0, numel_of(range.begin), numel_of(range.size()));
  }
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

class ShardGroup {
 public:
  // `parameters` in order of declaration, all of one dtype. Trained ones with at most
  // `persistence_threshold` elements go to the persistent segment: see Note [Layout].
  ShardGroup(int index, std::string name, const std::vector<autograd::Parameter*>& parameters,
             int world, int64_t persistence_threshold);

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  // Of master weights, states and sums.
  DType wide_dtype() const { return dtype_ == DType::f64 ? DType::f64 : DType::f32; }
  int world() const { return world_; }
  int64_t numel() const { return numel_; }                  // of the arena, with padding
  int64_t trained_numel() const { return trained_numel_; }  // trained segments are [0, this)
  int64_t gathered_numel() const;  // where parameters are sharded: all but the persistent segment
  int64_t gathered_bytes() const;
  int64_t bytes() const;  // of the arena
  // Where a segment begins in the arena. The quantized one is the last: all before it are of
  // dtype().
  int64_t byte_of(const Segment& segment) const { return segment.offset * size_of(dtype_); }
  // Of the quantized segment.
  const std::optional<BlockFormat>& block_format() const { return block_format_; }
  // In order of declaration; offsets are not monotonic.
  const std::vector<Placement>& placements() const { return placements_; }
  // Those with elements, in order of offset.
  const std::vector<Segment>& segments() const { return segments_; }
  // Throws InvalidArgument where the group has no such segment.
  const Segment& segment(SegmentKind kind) const;
  int num_trained_parameters() const { return num_trained_parameters_; }
  // Ranges of [0, trained_numel()) that belong to no parameter, in order.
  std::vector<Range> trained_gaps() const;

 private:
  int index_;
  std::string name_;
  DType dtype_ = DType::f32;
  std::optional<BlockFormat> block_format_;
  int world_;
  int64_t numel_ = 0;
  int64_t trained_numel_ = 0;
  int num_trained_parameters_ = 0;
  std::vector<Placement> placements_;
  std::vector<Segment> segments_;
};

// The groups of a model in order of declaration: one per shard unit (Module::mark_shard_unit), and
// one per run of consecutive parameters outside of any. Parameters without elements take part.
// Throws InvalidArgument where one group holds several dtypes or the model has no parameters.
//
// `part_of`: where a rank has a part of the model's parameters: absent for one that it does not
// have, and equal for those that may lie in one group. Empty: it has all of them.
using GroupPart = std::optional<std::vector<int>>;
std::vector<ShardGroup> make_shard_groups(
    nn::Module& model, int world, int64_t persistence_threshold,
    const std::function<GroupPart(const autograd::Parameter&)>& part_of = {});

}  // namespace zinc::zero
