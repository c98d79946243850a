// zero/program/check.h: proves a step program.
#pragma once

#include "zero/program/program.h"
#include "zero/program/rewrite.h"

namespace zinc::zero {

// Throws InvalidArgument, which names the body, the place and the op, for a program
//   - whose events are not those of `recorded`;
//   - in which a group is used that is not gathered, is gathered twice, or is released while it is
//     used; that ends a micro-batch or an evaluation with a group that is gathered still;
//   - that reduces a group before its gradients are finished, twice, or not at all; in another
//     order of groups than that of the record, in which all ranks issue their collectives; or in
//     another order of the micro-batches that add to it;
//   - whose order of passes, sends and receives in a pipeline misses one, has one too early or
//     twice, or does not fit to those of the other ranks: parallel::check_pipeline();
//   - that measures the norm before all groups are reduced, decides before the norm where the norm
//     decides, or does either of them twice or not at all;
//   - that updates a group before its gradients are reduced, before anything has decided, while it
//     is in use, twice or not at all; or uses a group whose update has begun;
//   - that publishes a group before its update, twice, out of order, or not at all;
//   - with anything but releases beside a release, which cannot fail.
// Which of these a configuration asks for: inputs.policy.
void check(const Program& program, const Program& recorded, const RewriteInputs& inputs);

}  // namespace zinc::zero
