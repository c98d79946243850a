// zero/program/record.h: what a model does in a step, recorded before the first one.
//
// When an engine is made, it runs the model once, forward and backward, on a meta device. It writes
// down every use and release of a parameter, and every finished gradient. The record does not
// change. Passes make the step program of it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/batch.h"
#include "nn/model.h"
#include "zero/program/program.h"

namespace zinc::zero {

struct Record {
  // Each from its begin to its end, without ops.
  Phase forward;
  Phase backward;
  Phase evaluation;  // the forward pass of one batch

  // All trained groups, in the order in which their last gradients are finished. A group with a
  // parameter that is not used comes at the end; such groups by descending index.
  std::vector<int> reduce_order;
  // All groups: those that a forward pass uses, by their first use, then the rest.
  std::vector<int> use_order;
};

// Makes a batch of the shapes that a model trains on, in the current context. That is a meta
// device, so the batch has no values.
using ExampleBatch = std::function<nn::Batch()>;

class PipelineCut;

// Runs `model` with `example` on a meta device. `together`: so many batches side by side
// (zero/run/vertical_passes.h). `cut`: only the stages of this rank of a pipeline. Afterwards the
// model's parameters have their sources back. Throws InvalidArgument with what the model complains
// of, and behind which parameter.
Record record_step(nn::Model& model, const std::vector<ShardGroup>& groups,
                   const ExampleBatch& example, int64_t together = 1, PipelineCut* cut = nullptr);

// The program without ops: the record, as bodies of all kinds of micro-batches. `side_by_side`: all
// micro-batches of a step make one body.
Program program_of(const Record& record, bool side_by_side);

// A hash of the layout of all groups: names, offsets, sizes, dtypes.
uint64_t hash_of(const std::vector<ShardGroup>& groups);

}  // namespace zinc::zero
