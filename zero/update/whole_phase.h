// zero/update/whole_phase.h: the parameters of an update rule that sees them whole: from the
// directions of all ranks to the steps of all ranks.
//
// Note [Whole parameters]
// An update of whole parameters goes window by window. A window is a run of groups in the order of
// their updates, with enough parameters that each rank owns some (the rewrite `transform_whole`).
//   1. Each rank makes the directions of its own elements, where their states are. If the rule
//      measures sums, the sums of the chunks of its elements come with them.
//   2. Ranks send each other the sums of their chunks, and finish the sum of each parameter over
//      its tree, as the gradient norm: Note [Norm] in gradient_norm.h. All that is on the device;
//      the rule makes its numbers of the sums there: Note [Steps that are queued once] in
//      optim/whole_rule.h.
//   3. Pieces of directions go to the owners of the parameters (all_to_all). An owner then has
//   whole
//      parameters, in the memory of the device.
//   4. Owners turn directions into steps.
//   5. Pieces of steps go back the way they came.
//   6. Each rank applies the steps to its own weights, where they are.
// Where every rank keeps all states (stage 0) directions are whole already, and owners broadcast
// their steps. A rule without transform() has the steps 1, 2 and 6.
//
// The owners of a window's parameters: the one with the most operations first, each to the rank
// that has the fewest so far. So they follow from shapes alone, and no bit depends on them. All
// ranks take the same memory but for what the rule itself takes. A meta device, and so a plan, does
// the work of the rank that owns the largest parameter, and takes the memory of all.
//
// Vectors, the states of whole parameters, have room on every rank. An owner has their values; the
// other ranks have what an import gave them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/view.h"
#include "kernels/chunk_tree_sum.h"
#include "optim/optimizer.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/update/update_rules.h"

namespace zinc::zero {

struct WholePhaseOptions {
  // Groups of each window, in the order of their updates; groups without whole parameters are left
  // out.
  std::vector<std::vector<int>> windows;
  int parts = 1;  // into how many shards the states are cut; 1: every rank has all
  // Directions and steps of elements whose states are off the device are in host memory.
  bool host_tiles = false;
};

// Called from the issuing thread only.
class WholePhase {
 public:
  // `slices`: those that this rank updates. All must outlive this.
  WholePhase(const optim::WholeRule& rule, const ShardGroups& groups,
             const std::vector<OwnedRange>& slices, comm::Communicator& communicator,
             Context& context, const WholePhaseOptions& options);

  // Takes memory for the directions of the group's window, and gives back that of another window,
  // whose steps no work will read any more but what the compute stream has waited for.
  void open(int group);
  // [part.range.size()] directions, and after transform() steps, of a part of a slice in an open
  // window; on the device, or in host memory: WholePhaseOptions::host_tiles.
  View values(const OwnedRange& part) const;
  // The chunks of a part of a slice in the open window, whose directions are made, are measured;
  // only for a rule that measures() them. `weights`, `directions`: of the part, [n] where the work
  // on `stream` computes. Call after direct(), for every part once.
  bool measures() const { return rule_.measures().any(); }
  void measure(const OwnedRange& part, const ConstView& weights, const ConstView& directions,
               StreamRef stream) const;
  // Turns the directions of the window that ends with this group into steps, in update args.step.
  // The compute stream has waited for the directions, and has the work. Waits where the rule
  // measures and has no rates(). Collective.
  void transform(int group, const StepArguments& args);
  // The sums, or the rates, of the parameter in an open window in which a range of a group begins,
  // or behind which, in padding. After transform(). Rates are absent where there are none.
  const optim::ParameterSums& sums(int group, Range range) const;
  ConstView rates(int group, Range range, Tier tier) const;
  // In place of transform(), for a step that changes nothing: takes and frees the same memory, so
  // that such a step has the peak of the plan. Computes on zeros, and brings nothing together.
  void rehearse(int group, const UpdateRules& rules);
  void close();

  // Vector i of a parameter, in its shape, on the device; absent: it has none. `group`: of a
  // window.
  View vector(ParameterIndex parameter, int i) const;
  // The rank whose vectors of a parameter are those of the last update.
  int owner(ParameterIndex parameter) const;
  // The bytes of all vectors.
  int64_t vector_bytes() const { return vectors_.bytes(); }

  // The groups of the open window; none: no window is open.
  const std::vector<int>& groups_in_window() const;

 private:
  struct Whole {
    const ShardGroup* group = nullptr;
    const Placement* placement = nullptr;
    int owner = 0;
    int64_t place = 0;            // in its owner's memory, elements
    int64_t vectors = 0;          // the first byte of its vectors in vectors_
    int number = 0;               // among those of its window
    optim::ParameterSums sums{};  // of this update, where the host has them
    Shape shape() const { return placement->parameter->shape(); }
  };
  // A slice of this rank, and its place among all of this rank's in a window, among those that have
  // memory on the device, and among those in host memory.
  struct Slot {
    OwnedRange slice;
    int64_t place = 0;      // elements
    int64_t on_device = 0;  // elements; the same for a rule that transforms
    int64_t in_host = 0;    // elements
  };
  struct Window {
    std::vector<int> groups;
    std::vector<Whole> parameters;
    std::vector<Slot> slots;
    int64_t chunks = 0;                        // of all ranks, for a rule that measures
    std::vector<kernels::ChunkSubtree> trees;  // of each parameter one of each kind
    int64_t numel = 0;                         // of the slots
    int64_t device_numel = 0;                  // of those that have memory on the device
    int64_t host_numel = 0;                    // of those in host memory
    int64_t owned_numel = 0;                   // of the parameters of the rank that has most
    int64_t traffic_numel = 0;                 // of the pieces of the rank that sends most
    int busiest = 0;            // the owner of the parameter with the most operations
    int64_t largest_numel = 0;  // of the pieces that one rank sends to one owner, at most
    DType dtype = DType::f32;
  };

  void add_window(const std::vector<int>& groups, const std::vector<OwnedRange>& slices);
  void choose_owners(Window& window);
  void take_vectors();
  // The vectors of a parameter, one behind the other from a byte of a block on.
  std::array<View, optim::kMaxVectors> vectors_in(const Block& block, int64_t begin,
                                                  const Whole& whole) const;
  // The trees of the window's parameters in the sums of the chunks of all ranks.
  void add_trees(Window& window);
  const Slot& slot_of(const OwnedRange& part) const;
  // The place on the device of a piece of a shard of this rank.
  int64_t place_of(Range piece, int group) const;
  const Whole& find(ParameterIndex parameter) const;
  // The elements of a parameter that a rank updates, in the arena of its group.
  Range piece(const Whole& whole, int rank) const;
  bool is_in_host(const OwnedRange& slice) const {
    return options_.host_tiles && slice.tier != Tier::device;
  }
  View in_slots(Range piece, int group) const;
  View device_view(const Block& block, int64_t place, int64_t numel) const;
  void exchange(const StepArguments& args);
  void share_steps(const StepArguments& args);
  // True for a parameter that this rank turns into steps.
  bool is_own(const Whole& whole) const;
  // Without `args`: a rehearsal.
  void transform_own(const View& values, const Whole& whole, const UpdateRules& rules,
                     const StepArguments* args, StreamRef stream) const;
  // On a meta device: the memory that the rule takes for parameters of other ranks. `values`: room
  // for any of them.
  void take_room_of_others(const View& values, const UpdateRules& rules) const;
  // What the rule measures, by number.
  enum class Of : uint8_t { weights, directions };
  std::vector<Of> measured() const;
  // The sums of chunks of the elements [place, place + numel) of all slots, or of those in host
  // memory.
  View chunk_sums(size_t kind, bool in_host, int64_t place, int64_t numel) const;
  // The sums of the chunks of all ranks. `room`: memory for them, or null where this rank has all.
  View all_chunk_sums(const Block& room) const;
  Block take_chunk_room() const;
  // [kinds] f64 of a parameter, and [num_rates()].
  View sums_of(const Whole& whole) const;
  View rates_of(const Whole& whole, Tier tier) const;
  int64_t rates_bytes() const;
  const Whole* find(int group, Range range) const;
  void finish_sums(const StepArguments& args);
  void make_rates(const StepArguments& args);
  void bring_sums();
  void copy_host_slots(bool to_device);
  // Memory for an exchange. All ranks take the same.
  struct Rooms {
    Block sent, arrived, whole;
  };
  Rooms take_rooms() const;

  const optim::WholeRule& rule_;
  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const WholePhaseOptions options_;
  std::vector<Window> windows_;
  ByGroup<int> window_of_;     // -1: none
  std::vector<int64_t> load_;  // by rank: operations of all windows so far
  Block vectors_;

  Window* open_ = nullptr;
  Block on_device_, in_host_;
  // [kinds, chunks] f64 sums of chunks, and an i64 that is not read. On the device: of all slots.
  Block sums_on_device_, sums_in_host_;
  Block sums_;                             // [parameters, kinds] f64
  Block rates_on_device_, rates_in_host_;  // [parameters, num_rates()]
};

}  // namespace zinc::zero
