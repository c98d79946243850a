// zero/rewrites/rewrites.h: the engine's own rewrites of the step program, one file each.
//
//   rewrite             | adds or moves                                     | needs
//   reduce_gradients    | reduces, where a group's gradients are finished   |
//   update_weights      | norm, decide, and the update of all groups,       |
//                       | in the step                                       |
//   transform_whole  | directions and steps of matrices, ahead of their  | updates
//                       | groups' updates                                   |
//   update_early        | moves updates into backward, behind the reduction | reduces, updates
//                       | of their group                                    |
//   update_late         | moves updates into the next forward pass, ahead   | updates
//                       | of the first use of their group                   |
//   gather_and_release  | a gather at each use, a release behind it         |
//   keep_through_step   | removes all but the first gather of a step, and   | gathers
//                       | the last release, of groups that become resident  |
//   keep_resident       | removes a release and the gather that follows it  | gathers
//   prefetch            | moves gathers up, ahead of earlier uses           | gathers
//   read_parameters     | reads, as early as their order allows             | gathers
//   pipeline            | the order of passes, sends and receives           |
//
// Which of them run follows from the policy: choose_rewrites().
#pragma once

#include <cstdint>
#include <vector>

#include "zero/program/rewrite.h"

namespace zinc::zero {

// Adds reduces, in the order of the record. The reduce of a group follows the event that finishes
// the group's last gradient; a group with a parameter that took no part is reduced at the end of
// backward. With reduces_after_backward all groups are.
Rewrite reduce_gradients();

// The step: norm and decide, then update, publish and join of all groups.
Rewrite update_weights();

// For StepPolicy::sees_whole: Note [Whole parameters]. Groups with matrices are taken window by
// window: the directions of each, one transform, then their updates. A window has enough matrices
// for kMatricesPerRank on each rank, so that operations can be shared out evenly.
Rewrite transform_whole();
inline constexpr int64_t kMatricesPerRank = 2;

// For UpdateTime::during_backward: Note [Updates during backward]. The last backward pass of a step
// begins with decide. A group's update stands behind its last reduction and its last use.
Rewrite update_early();

// For UpdateTime::beside_forward: Note [Updates beside the next forward pass]. The new weights of a
// group, and of the next groups_ahead groups, are published before the group's first use in the
// first micro-batch of a step; the first ones right after the step. A group is updated ahead of its
// publish, or with updates_in_order all groups are updated in the step.
Rewrite update_late();

// The plainest program of sharded parameters: a group is gathered only while it is used.
Rewrite gather_and_release();

// Makes groups resident: gathered at their first use in the first micro-batch of a step, given back
// behind their last use in the last one. Groups whose gathers take most time per byte of the arena
// come first, as many as fit into resident_bytes. The assumed time of a gather is that of its bytes
// plus kGatherOverhead, so no rewrite depends on a machine's speeds.
Rewrite keep_through_step();
inline constexpr int64_t kGatherOverhead = int64_t{1} << 19;  // bytes

// Keeps a group between two uses where fewer elements than max_reuse_numel are used in between, and
// where no more than max_live_numel are gathered then. The nearest reuse first. (DeepSpeed:
// stage3_max_reuse_distance, stage3_max_live_parameters.) Two uses with nothing between them are
// one.
Rewrite keep_resident();

// Moves each gather up behind the earliest use for which three conditions hold: at most
// prefetch_numel elements are then on their way, or this group alone; at most max_live_numel are
// gathered from there to the use; and the group's update is published. The order of gathers stays.
// (DeepSpeed: stage3_prefetch_bucket_size.)
Rewrite prefetch();

// Lets the disk read a group's shards as soon as the shards of all earlier gathers were asked for
// and the group's last gathered copy is given back. The number of buffers decides when each read
// starts.
Rewrite read_parameters();

// The order of one rank of a pipeline: parallel::pipeline_orders().
Rewrite pipeline();

// The rewrites of a policy, in their order.
std::vector<Rewrite> choose_rewrites(const StepPolicy& policy);

}  // namespace zinc::zero
