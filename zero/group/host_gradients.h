// zero/group/host_gradients.h: keeps a rank's sums of gradients in host memory.
//
// Note [Sums in host memory]
// With states off the device each micro-batch's reduced shard leaves the device as soon as it is
// made, and the sums over micro-batches are made here: the first shard of a step is stored, each
// later one is added to what is there. Order and rounding are those of sums on the device, so no
// bit depends on the place.
//
// A shard that is added passes through two buffers in host memory, tile by tile. One is filled by a
// copy while the other is added.
//
//   stream      work                       on CPU ranks
//   copy_out    copies off the device      a worker thread
//   host_work   additions                  copy_out: the compute stream is busy with backward
//
// With GradientPolicy::tree_over_micro_batches several sums are kept, one per subtree of
// micro-batches. A shard whose neighbour to the left is a single shard is added to it at once.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/stream.h"
#include "core/view.h"
#include "zero/group/sums_away.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"

namespace zinc::zero {

struct HostGradientsOptions {
  // The ranges that the rank owns. Ranges on the device are skipped. All sums of a group lie in one
  // block.
  std::vector<OwnedRange> slices;
  DType dtype = DType::f32;  // of the sums
  bool tree = false;         // GradientPolicy::tree_over_micro_batches
  // What is added to sums: its dtype, and how many elements of a group there are at most. 0:
  // nothing is added.
  DType added = DType::f32;
  int64_t most_added = 0;
};

class HostGradients final : public SumsAway {
 public:
  // Takes the buffers. `groups` and `context` must outlive this.
  HostGradients(const ShardGroups& groups, Context& context, HostGradientsOptions options);
  ~HostGradients() override;
  HostGradients(const HostGradients&) = delete;
  HostGradients& operator=(const HostGradients&) = delete;

  // Micro-batches use the buffers in the same order each time.
  void begin(bool) override { next_buffer_ = 0; }
  // `values`: of `dtype`, or `added` where sums are made. Also issues what is added.
  Event send(int group, const OnDevice& values, Turn turn) override;
  // The event behind all that was issued for the group's sums.
  const Event& arrived(int group) const { return groups_[group].arrived; }
  bool has_arrived(int group) override { return arrived(group).query(); }
  void await(int group, StreamRef stream) override { stream->wait(arrived(group)); }
  void await_all() override {}
  ConstView read(const OwnedRange& slice) override;
  void discard(int group) override;
  void end_step() override {}
  void advance() override {}

 private:
  // The sum of a run of micro-batches: all of them so far, or a complete subtree.
  struct Sum {
    int64_t micro_steps = 1;
    Block memory;
  };
  struct OfGroup {
    std::vector<OwnedRange> slices;  // off the device
    int64_t numel = 0;
    std::vector<Sum> sums;  // left to right
    std::vector<Block> spare;
    Event arrived;
  };
  struct Buffer {
    Block memory;
    Event added;  // behind the addition that reads the memory
  };

  void start_sum(OfGroup& group);
  View values(const Block& memory, DType dtype, int64_t numel) const;
  // What the CPU adds on.
  StreamRef adding() const;
  // The values pass through the buffers. `overwrite`: they are converted, not added.
  void add(const ConstView& from, const View& sum, bool overwrite);
  // Merges neighbouring subtrees of equal size, after the last micro-batch all of them.
  void merge(OfGroup& group, bool is_last);

  Context& context_;
  const HostGradientsOptions options_;
  ByGroup<OfGroup> groups_;
  std::array<Buffer, 2> buffers_;
  int64_t buffer_numel_ = 0;
  size_t next_buffer_ = 0;
};

}  // namespace zinc::zero
