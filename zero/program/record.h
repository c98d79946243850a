// zero/program/record.h: what a model does in a step, recorded before the first one.
//
// Construction of an engine runs the model once, forward and backward, on a meta device, and writes
// down every use and release of a parameter and every finished gradient. The record is immutable;
// passes make the step program of it.
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

  // Trained groups in the order in which the last of their gradients is done, each once; groups
  // whose parameters are not all used come last, by descending index.
  std::vector<int> reduce_order;
  // All groups: those that a forward pass uses, by their first use, then the rest.
  std::vector<int> use_order;
};

// A batch of the shapes that a model trains on, made in the current context, which is a meta
// device: its values do not count.
using ExampleBatch = std::function<nn::Batch()>;

class PipelineCut;

// Runs `model` with `example` on a meta device, `together` such batches side by side
// (zero/run/vertical_passes.h), or of one batch the stages of a rank of a pipeline. The model's
// parameters get their present sources back.
Record record_step(nn::Model& model, const std::vector<ShardGroup>& groups,
                   const ExampleBatch& example, int64_t together = 1, PipelineCut* cut = nullptr);

// A program of the record alone, without ops: bodies of all kinds of micro-batches, or where all of
// a step pass side by side of the one kind there is.
Program program_of(const Record& record, bool side_by_side);

// Of the layout of all groups: names, offsets, sizes, dtypes.
uint64_t hash_of(const std::vector<ShardGroup>& groups);

}  // namespace zinc::zero
