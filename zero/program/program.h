// zero/program/program.h: the list of a step's gathers, releases, reads, reductions, updates and
// publishes, and their order.
//
// Note [The step program]
// A program is data. It is recorded once (zero/program/record.h), changed by rewrites
// (zero/program/rewrite.h), proven (zero/program/check.h), and then run (zero/run/runner.h).
// Nothing decides over the order of a step while it runs.
//
//   record     the acts of the model: uses and releases of parameters, finished gradients
//   ops        the acts of the engine, each beside one event of the record
//
// A phase is a list of places. A place is one event and its ops: those that go out when the event
// arrives, ahead of it (`before`), and those that go out right behind it (`after`). The gather of a
// group stands ahead of the group's use, or behind an earlier event:
//
//   place                         before            after
//   begin                                           gather h.0
//   use of h.0.attn.weight                          gather h.1
//   release of h.0.attn.weight                      release h.0
//   use of h.1.attn.weight
//
// A body is the forward and the backward phase of a micro-batch; where gradients of weights are
// made apart, a third phase makes them. There is a body for every kind of micro-batch:
//   - the first one of a step finds an update of the step before under way, perhaps;
//   - the last one may be the only one that ranks reduce;
//   - a resident group is gathered in the first, stays in those between, is given back in the last.
//
// In a pipeline a rank records its own layers, with a body for each of its parts of the model.
// Program::pipeline then says in which order the passes of several micro-batches follow each other,
// and when the rank sends and receives.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

enum class EventKind : uint8_t { begin, use, release, gradient_done, end };
std::string_view name_of(EventKind kind);

// An act of the model.
struct StepEvent {
  EventKind kind = EventKind::begin;
  ParameterIndex parameter{};  // for a use, a release, a finished gradient
  int64_t micro_batch = 0;     // index of one that passes side by side with others
  friend bool operator==(const StepEvent&, const StepEvent&) = default;
};

enum class OpKind : uint8_t {
  read,       // a rank's shards of a group may come from swap space from here on
  gather,     // a group's arena is taken and filled from all ranks
  release,    // a group's arena is given back
  reduce,     // a group's gradients are summed over the ranks
  norm,       // the norm of all summed gradients, over all ranks; of no group
  decide,     // whether the step updates weights, and with which factor; belongs to no group
  direct,     // directions of a group's matrices may be made from here on
  transform,  // directions become steps: of this group, and of all directed since the last
              // transform
  update,     // a group's weights and states may be updated from here on
  publish,    // the rest of a group's update is issued, and its new weights go to all ranks
  join,       // the compute stream waits for them
};
std::string_view name_of(OpKind kind);

// An act of the engine.
struct Op {
  OpKind kind = OpKind::gather;
  int group = 0;            // 0 for an op that belongs to no group
  int64_t micro_batch = 0;  // for a reduce: as in StepEvent
  friend auto operator<=>(const Op&, const Op&) = default;
};

// The work of a place, as recorded with the shapes of the run.
struct RecordedWork {
  int64_t activation_bytes = 0;  // of the model on the device, when the event arrives
  int64_t flops = 0;             // of the kernels between the event before and this one
  int64_t bytes = 0;             // that those kernels read and write
};

struct Place {
  StepEvent event;
  std::vector<Op> before{};  // when the event arrives, ahead of it
  std::vector<Op> after{};   // right behind it; at a release, which cannot fail: releases only
  RecordedWork work{};
};

// The first place is the begin, the last one the end.
using Phase = std::vector<Place>;
using OnPlace = std::function<void(const Phase& phase, size_t place)>;

// The kinds of micro-batches in a step; each has its own passes.
struct MicroBatchKind {
  bool first = true, last = true;  // first, last micro-batch of the step
  int part = 0;                    // of the parts of the model that a rank of a pipeline has
  friend auto operator<=>(const MicroBatchKind&, const MicroBatchKind&) = default;
};
// "only", "first", "middle", "last"; of a further part: "first, part 2"
std::string name_of(const MicroBatchKind& kind);

struct Body {
  Phase forward;
  Phase backward;
  Phase weights{};  // empty where backward makes all gradients
  // Forward, backward and, where there is one, weights.
  std::vector<const Phase*> phases() const;
  // All places in order.
  std::vector<Place*> timeline();
  std::vector<const Place*> timeline() const;
};

struct Program {
  Phase evaluation;  // a forward pass without a backward pass
  std::map<MicroBatchKind, Body> bodies;
  // The phase from the sums of all gradients (begin) to the step's result (end). After the end an
  // update may still be under way.
  Phase step;
  std::set<int> resident;  // groups that stay gathered through the micro-batches of a step
  // In a pipeline: the order of the bodies' passes, and the messages between them. Empty: forward
  // and backward of one micro-batch after the other, or of all side by side.
  std::vector<parallel::PipelineOp> pipeline;

  // The evaluation, the phases of every body, the step.
  std::vector<const Phase*> phases() const;
  // The places of the evaluation, and those of every body.
  std::vector<std::vector<Place*>> timelines();
  // A hash of all events and ops. Ranks with the same hash issue the same collectives.
  uint64_t hash() const;
  // Trained groups in the order of their updates.
  std::vector<int> update_order() const;
  // The groups that one transform is for, by transform. Each run ends with the op's own group.
  std::vector<std::vector<int>> whole_windows() const;
};

// True for an op of one group.
bool has_group(OpKind kind);

// For each place of a timeline: how many elements are gathered once the ops behind the place have
// gone out. Elements of `resident` groups do not count.
std::vector<int64_t> gathered_curve(const std::vector<const Place*>& timeline,
                                    const ShardGroups& groups, const std::set<int>& resident = {});

// "use of transformer.h.0.attn.c_attn.weight"
std::string describe(const StepEvent& event, const ShardGroups& groups);
// "gather transformer.h.0"
std::string describe(const Op& op, const ShardGroups& groups);

}  // namespace zinc::zero
