// zero/rewrites/rewrites.h: the engine's own rewrites of the step program, one file each.
//
//   rewrite                | adds or moves                                     | needs
//   reduce_gradients    | reduces, where a group's gradients are finished   |
//   update_weights      | norm, decide, and the update of all groups,       |
//                       | in the step                                       |
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

#include <vector>

#include "zero/program/rewrite.h"

namespace zinc::zero {

// Collectives of gradients follow the order of the record. A group goes out behind the event that
// finishes its last gradient; groups of which a parameter took no part go out at the end of
// backward. With reduces_after_backward all do.
Rewrite reduce_gradients();

// The step: norm and decide, then update, publish and join of all groups.
Rewrite update_weights();

// For UpdateTime::during_backward: Note [Updates during backward]. The last backward pass of a step
// begins with decide. A group's update stands behind its last reduction and its last use.
Rewrite update_early();

// For UpdateTime::beside_forward: Note [Updates beside the next forward pass]. The new weights of a
// group are published no later than its first use in the first micro-batch of a step, with those of
// as many groups behind it as groups_ahead says; the first of them right after the step. A group is
// updated ahead of its publish, or with updates_in_order all are in the step.
Rewrite update_late();

// The plainest program of sharded parameters: nothing is gathered while nobody uses it.
Rewrite gather_and_release();

// Makes groups resident: gathered at their first use in the first micro-batch of a step, given back
// behind their last use in the last one. Those whose gathers take most time per byte of the arena
// come first, as many as resident_bytes hold. The time of a gather is taken to be that of its bytes
// and a fixed part, that of kGatherOverhead bytes: so no rewrite depends on a machine's speeds.
Rewrite keep_through_step();
inline constexpr int64_t kGatherOverhead = int64_t{1} << 19;  // bytes

// Keeps a group between two uses where fewer elements than max_reuse_numel are used in between, and
// where no more than max_live_numel are gathered then. The nearest reuse first. (DeepSpeed:
// stage3_max_reuse_distance, stage3_max_live_parameters.) Two uses with nothing between them are
// one.
Rewrite keep_resident();

// Moves each gather up behind the earliest use at which no more than prefetch_numel elements would
// be on their way, or this group alone, no more than max_live_numel be gathered from there to the
// use, and its update be published; the order of gathers stays. (DeepSpeed:
// stage3_prefetch_bucket_size.)
Rewrite prefetch();

// Lets the disk read a group's shards as soon as those of the gathers before it were asked for and
// the group's last copy is given back. What is started when follows from the buffers there are.
Rewrite read_parameters();

// The order of one rank of a pipeline: parallel::pipeline_orders().
Rewrite pipeline();

// The rewrites of a policy, in their order.
std::vector<Rewrite> choose_rewrites(const StepPolicy& policy);

}  // namespace zinc::zero
