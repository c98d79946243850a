// zero/group/gathered_weights.h: whole weights for use by the model: gathered from all ranks where
// each keeps its shards, and brought up to date after an update where each keeps them whole.
//
// Called from the issuing thread only.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "comm/bucketed_collectives.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "core/trace.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// Quantized parameters that are decoded for a use: each to memory of its own, for as long as it is
// used. Uses of a parameter at the same time share it.
class DecodedUses {
 public:
  explicit DecodedUses(Context& context) : context_(context) {}
  // The whole parameter: [shape] in the group's dtype on the device, until end(). `stored`: the
  // parameter as it is kept, on the device. On the compute stream.
  ConstView begin(const ShardGroup& group, ParameterIndex parameter, const ConstView& stored);
  void end(ParameterIndex parameter) noexcept;

 private:
  struct Use {
    Block values;  // [numel] in the group's dtype
    int count = 0;
  };

  Context& context_;
  std::map<std::pair<int, int>, Use> uses_;  // by group, position
};

struct GatheredWeightsOptions {
  int64_t bucket_numel = 500'000'000;  // elements per collective
  bool overlap = false;                // gathers run on a stream of their own
  // With sharded weights: gather_for_use() frees unused gathered groups above this number of
  // gathered elements.
  int64_t max_live_numel = 1'000'000'000;
};

class GatheredWeights {
 public:
  // All must outlive this.
  GatheredWeights(WeightStore& store, const ShardGroups& groups, comm::Communicator& communicator,
                  Context& context, const GatheredWeightsOptions& options);
  GatheredWeights(const GatheredWeights&) = delete;
  GatheredWeights& operator=(const GatheredWeights&) = delete;

  // A pass begins. Forgets the groups that read() asked for, unless the pass goes on from the one
  // before, as backward goes on from forward.
  void begin_pass(bool goes_on);
  // Allocates the group's arena and fills it from all ranks, behind the work on the compute stream.
  // Does nothing if the group is gathered or being gathered. `kind`: the name in the trace.
  // Collective. Throws CommError, IoError.
  void gather(int group, TraceKind kind);
  // The same for a use that no step program predicts. First frees unused groups until the gathered
  // elements fit GatheredWeightsOptions::max_live_numel.
  void gather_for_use(int group);
  // Frees the group's arena. Does nothing if the group is not gathered, or in use.
  void release(int group) noexcept;
  // Allows reads of the group's shards from swap space. They start in the order of these calls, as
  // far as there are buffers. Throws IoError.
  void read(int group);
  // The whole parameter on the device, for work on the compute stream until unpin(). The
  // parameter's group must be gathered.
  ConstView pin(ParameterIndex parameter);
  void unpin(ParameterIndex parameter) noexcept;
  // Frees all gathered groups. InternalError if a parameter is still pinned.
  void end_passes();

  // An update begins. From now on a group is gathered, or used by a forward pass, only after
  // publish() was called for it. After the last group comes WeightStore::settle_updates().
  // `skipped`: no value changes, and settle_updates() is not called. Throws IoError.
  void expect_updates(bool skipped);
  // Brings the group's new weights to every rank that keeps them whole. The group's update was
  // issued to the compute stream, or ends with the events `updated`. Work on the compute stream may
  // use the group after it has waited for `updated` and for the returned event. The order of these
  // calls is the same on all ranks. Collective.
  Event publish(int group, const std::vector<Event>& updated);

 private:
  // The state of a group's weights on this rank.
  enum class Residence : uint8_t {
    sharded,    // the rank's shards only; also where weights are whole
    gathering,  // a collective that fills the arena is under way
    unsharded,  // the arena holds the whole group, for work on the compute stream
  };
  struct GroupState {
    Block arena;  // the segments that are not kept whole, while they are gathered
    Residence residence = Residence::sharded;
    comm::Work work;
    int pins = 0;
    bool is_outdated = false;    // the group's update is not published yet
    std::vector<Event> updated;  // the group's update: a gather waits for it
  };

  static void become(GroupState& state, Residence to);
  // A range of a segment, while the group can be used.
  View arena_view(const ShardGroup& group, SegmentKind kind, Range range) const;
  // The bytes that a rank sends when `bytes` are gathered.
  int64_t sent_bytes(int64_t bytes) const;
  StreamRef gather_stream();
  void gather(const ShardGroup& group, TraceKind kind);
  void fill(const ShardGroup& group, TraceKind kind);
  // The rank's shards from their tier to their place in the arena.
  void bring(const ShardGroup& group, StreamRef stream);
  // Starts reads for the groups that were asked for and are not gathered yet.
  void read_ahead();
  // After a gather that failed or is not needed: the work it issued ends before the arena's memory
  // is used again.
  void abandon(const ShardGroup& group) noexcept;
  void reshard(const ShardGroup& group) noexcept;
  void await_gather(GroupState& state);
  // For a use that no step program predicts: frees groups that nothing uses now, until `group` fits
  // under the bound or no such group is left.
  void make_room(const ShardGroup& group);

  WeightStore& store_;
  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const GatheredWeightsOptions options_;
  comm::BucketedCollectives collectives_;
  ByGroup<GroupState> states_;
  std::vector<int> wanted_;  // groups, in the order of read()
  int64_t live_numel_ = 0;   // elements of arenas that are there or under way
  DecodedUses uses_;
};

}  // namespace zinc::zero
