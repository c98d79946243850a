// zero/program/record.h: the acts of a model in a step, recorded before the first step.
//
// When an engine is made, it runs the model once, forward and backward, on a meta device. It writes
// down every use and release of a parameter, and every finished gradient. The record does not
// change. Rewrites make the step program from it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/batch.h"
#include "nn/model.h"
#include "parallel/pipeline_cut.h"
#include "zero/layout/backward_turn.h"
#include "zero/program/program.h"

namespace zinc::zero {

struct Record {
  // Phases from their begin to their end, without ops. Several bodies: by part that a rank of a
  // pipeline has.
  std::vector<Body> bodies{};
  Phase evaluation{};  // the forward pass of one batch

  // All trained groups, in the order in which their last gradients are finished. A group with a
  // parameter that is not used comes at the end; such groups by descending index.
  std::vector<int> reduce_order;
  // All groups: those that a forward pass uses, by their first use, then the rest.
  std::vector<int> use_order{};
  // By group: the backward pass that makes the group's gradients.
  ByGroup<BackwardTurn> turns{};
  bool recomputes = false;  // a forward pass of training recomputes some of its activations
};

// Makes a batch of the shapes that a model trains on, in the current context. That is a meta
// device, so the batch has no values.
using ExampleBatch = std::function<nn::Batch()>;

// Runs `model` with `example` on a meta device. `together`: the number of batches side by side
// (parallel/vertical_passes.h). `cut`: only the stages of this rank of a pipeline. `splits`:
// gradients of weights are made apart. Afterwards the model's parameters have their sources back.
// The scopes around the call hold in it: autograd::RemakeScope, autograd::RecomputeInputScope,
// nn::LargestBatchScope. Throws InvalidArgument with the model's own message, and the last
// parameter that was used.
Record record_step(nn::Model& model, const ShardGroups& groups, const ExampleBatch& example,
                   int64_t together = 1, parallel::PipelineCut* cut = nullptr, bool splits = false);

// Likewise of an engine that only computes: the forward pass alone, under NoGrad. There are no
// bodies, and nothing is reduced.
Record record_evaluation(nn::Model& model, const ShardGroups& groups, const ExampleBatch& example,
                         parallel::PipelineCut* cut = nullptr);

// The program without ops: the record, as bodies of all kinds of micro-batches. `side_by_side`: all
// micro-batches of a step make one body.
Program program_of(const Record& record, bool side_by_side);

// A hash of the layout of all groups: names, offsets, sizes, dtypes.
uint64_t hash_of(const ShardGroups& groups);

}  // namespace zinc::zero
