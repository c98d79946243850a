// zero/update/matrix_phase.h: the matrices of an update rule that sees them whole: from the
// directions of all ranks to the steps of all ranks.
//
// Note [Whole matrices]
// An update of matrices goes window by window. A window is a run of groups in the order of their
// updates, with enough matrices that each rank owns some (the rewrite `transform_matrices`).
//   1. Each rank makes the directions of its own elements, where their states are.
//   2. Pieces of directions go to the owners of the matrices (all_to_all). An owner then has whole
//      matrices, in the memory of the device.
//   3. Owners turn directions into steps.
//   4. Pieces of steps go back the way they came.
//   5. Each rank applies the steps to its own weights, where they are.
// Where every rank keeps all states (stage 0) directions are whole already, and owners broadcast
// their steps.
//
// The owners of a window's matrices: the matrix with the most operations first, each to the rank
// that has the fewest so far. So they follow from shapes alone, and no bit depends on them. All
// ranks take the same memory but for what the rule itself takes. A meta device, and so a plan, does
// the work of the rank that owns the largest matrix, and takes the memory of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/view.h"
#include "optim/matrix_rule.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/update/update_rules.h"

namespace zinc::zero {

struct MatrixPhaseOptions {
  // Groups of each window, in the order of their updates; groups without matrices are left out.
  std::vector<std::vector<int>> windows;
  int parts = 1;  // into how many shards the states are cut; 1: every rank has all
  // Directions and steps of elements whose states are off the device are in host memory.
  bool host_tiles = false;
};

// Called from the issuing thread only.
class MatrixPhase {
 public:
  // `slices`: those that this rank updates. All must outlive this.
  MatrixPhase(const optim::MatrixRule& rule, const ShardGroups& groups,
              const std::vector<OwnedRange>& slices, comm::Communicator& communicator,
              Context& context, const MatrixPhaseOptions& options);

  // Takes memory for the directions of the group's window, and gives back that of another window,
  // whose steps no work will read any more but what the compute stream has waited for.
  void open(int group);
  // [part.range.size()] directions, and after transform() steps, of a part of a slice in an open
  // window; on the device, or in host memory: MatrixPhaseOptions::host_tiles.
  View values(const OwnedRange& part) const;
  // Turns the directions of the window that ends with this group into steps. The compute stream has
  // waited for the directions, and has the work. Collective.
  void transform(int group, const UpdateRules& rules);
  // In place of transform(), for a step that changes nothing: takes and frees the same memory, so
  // that such a step has the peak of the plan. Computes on zeros, and brings nothing together.
  void rehearse(int group, const UpdateRules& rules);
  void close();
  // The groups of the open window; none: no window is open.
  const std::vector<int>& groups_in_window() const;

 private:
  struct Matrix {
    const ShardGroup* group = nullptr;
    const Placement* placement = nullptr;
    int owner = 0;
    int64_t place = 0;  // in its owner's memory, elements
  };
  // A slice of this rank, and its place among all of this rank's in a window.
  struct Slot {
    OwnedRange slice;
    int64_t place = 0;    // elements, on the device
    int64_t in_host = 0;  // elements, in host memory
  };
  struct Window {
    std::vector<int> groups;
    std::vector<Matrix> matrices;
    std::vector<Slot> slots;
    int64_t numel = 0;          // of the slots
    int64_t host_numel = 0;     // of those in host memory
    int64_t owned_numel = 0;    // of the matrices of the rank that has most
    int64_t traffic_numel = 0;  // of the pieces of the rank that sends most
    int busiest = 0;            // the owner of the matrix with the most operations
    int64_t largest_numel = 0;  // of the pieces that one rank sends to one owner, at most
    DType dtype = DType::f32;
  };

  void add_window(const std::vector<int>& groups, const std::vector<OwnedRange>& slices);
  void choose_owners(Window& window);
  // The elements of a matrix that a rank updates, in the arena of its group.
  Range piece(const Matrix& matrix, int rank) const;
  bool is_in_host(const OwnedRange& slice) const {
    return options_.host_tiles && slice.tier != Tier::device;
  }
  View in_slots(Range piece, int group) const;
  View device_view(const Block& block, int64_t place, int64_t numel) const;
  void exchange(const UpdateRules& rules);
  void share_steps(const UpdateRules& rules);
  // True for a matrix that this rank turns into steps.
  bool is_own(const Matrix& matrix) const;
  void transform_own(const View& values, const Matrix& matrix, const UpdateRules& rules,
                     StreamRef stream) const;
  // On a meta device: the memory that the rule takes for matrices of other ranks. `values`: room
  // for any of them.
  void take_room_of_others(const View& values, const UpdateRules& rules) const;
  void copy_host_slots(bool to_device);
  // Memory for an exchange. All ranks take the same.
  struct Rooms {
    Block sent, arrived, whole;
  };
  Rooms take_rooms() const;

  const optim::MatrixRule& rule_;
  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const MatrixPhaseOptions options_;
  std::vector<Window> windows_;
  ByGroup<int> window_of_;     // -1: none
  std::vector<int64_t> load_;  // by rank: operations of all windows so far

  const Window* open_ = nullptr;
  Block on_device_, in_host_;
};

}  // namespace zinc::zero
