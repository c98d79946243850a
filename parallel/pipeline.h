// parallel/pipeline.h: which ranks of a pipeline have which layers, and in which order each of them
// works on the micro-batches of a step.
//
// A model is cut into P * V parts, one behind the other; rank p of P has parts p, p + P, ..., V in
// all, and V is 1 where ranks are not interleaved. A micro-batch goes forward from part to part and
// backward the other way; between two parts travels what the layers of one give to the next, and
// back its gradient.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::parallel {

// All compute the backward passes of a part in ascending order of micro-batches, so that gradients
// are summed in the order of a run without a pipeline.
enum class PipelineSchedule : uint8_t {
  // Backward as soon as it can be (Narayanan et al. 2019, "PipeDream"; Narayanan et al. 2021,
  // section 2.2.1): rank p keeps the activations of min(P - p, m) of m micro-batches. The one
  // schedule that ranks of several parts have (section 2.2.2): each part for P micro-batches before
  // the next one, so that rank p goes forward 2 (P - p - 1) + (V - 1) P passes ahead.
  one_forward_one_backward,
  // All forward passes first (Huang et al. 2019, "GPipe"): every rank keeps those of all.
  gpipe,
  // The gradients of a layer's weights are made apart from those of its input, and later (Qi et al.
  // 2024, "Zero Bubble Pipeline Parallelism", ZB-H1): on rank p behind those of p more
  // micro-batches, so that a rank has them to do where it would wait. Every rank keeps the
  // activations of at most P micro-batches, as the first one of 1F1B does.
  zero_bubble,
};
std::string_view name_of(PipelineSchedule schedule);  // "1f1b", "gpipe", "zb-h1"

// Of what each rank of a pipeline gets about as much, of a model's stages.
enum class PipelinePartition : uint8_t {
  best,        // time: what forward and backward take on a typical machine of the device's kind
  uniform,     // stages
  parameters,  // trained weights
};

std::string_view name_of(PipelinePartition partition);  // "best", "uniform", "parameters"

// Ranks that have some of the layers each: comm::Mesh::pipe.
struct PipelineConfig {
  int ranks = 1;  // of the world's mesh; the engine sets it
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  PipelinePartition partition = PipelinePartition::best;
  int interleave = 1;  // parts of the model that each rank has, in turn with the others
  // Instead: each gets about as many stages that have a parameter of such a name; nn::matches_glob.
  // Empty: as `partition` says.
  std::string pattern{};
};

// What a rank of a pipeline does, one after the other.
enum class PipelineWork : uint8_t {
  receive_input,     // what the rank before gave
  forward,           // its layers
  send_output,       // to the rank behind
  receive_gradient,  // of what was sent, from there
  backward,
  send_gradient,  // of what was received, to the rank before
  weights,        // gradients of weights that backward has left for later: zero_bubble alone
};
std::string_view name_of(PipelineWork work);  // "receive input"

struct PipelineOp {
  PipelineWork work = PipelineWork::forward;
  int64_t micro_batch = 0;  // of the step's
  int part = 0;             // of the rank's
  friend auto operator<=>(const PipelineOp&, const PipelineOp&) = default;
};
// A forward or backward pass, or one of weights; else a message.
bool is_pass(PipelineWork work);
// "forward of micro-batch 3"; micro-batches and parts are counted from 1 for people.
std::string describe(const PipelineOp& op);

struct PipelineShape {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int ranks = 2;
  int64_t micro_batches = 1;
  int parts = 1;  // of each rank; several: micro-batches are a multiple of ranks
};
// How long a rank waits for others, as a share of its own work, where ranks are equal: (P - 1) / m
// for 1F1B and GPipe, a V-th of that for V parts, a third for zero_bubble (as long as m >= P).
double bubble(const PipelineShape& shape);

using PipelineOrders = std::vector<std::vector<PipelineOp>>;  // by rank

// What each rank does in its order. Messages stand where they fit together: each is sent when its
// receiver asks for it, or waits for that.
PipelineOrders pipeline_orders(const PipelineShape& shape);
// Most forward passes of which a rank has to keep the activations at once.
int64_t most_in_flight(std::span<const PipelineOp> order);

// By rank, by turn: the pass that takes place, absent where the rank is idle; a pass takes one
// turn, and messages none. Of orders that check_pipeline() takes.
std::vector<std::vector<std::optional<PipelineOp>>> pipeline_turns(
    std::span<const std::vector<PipelineOp>> orders);

// InvalidArgument unless `orders` do the passes of every micro-batch once for each part, backward
// in ascending order, and each pass has what it needs when it begins; and unless all come to their
// end where a send waits for its receiver. Names rank and op.
void check_pipeline(std::span<const std::vector<PipelineOp>> orders, int64_t micro_batches);

// Cuts a row of items into `parts` without a gap so that the most expensive part costs least; each
// has an item that counts. Of cuts that are equal in that, the one whose parts end earliest from
// the back; where parts are dealt to fewer `ranks` in turn, its ends then move until no move of one
// of them gives the rank with the most to do less. Gives the first item of each part, and the
// number of items behind them. There are at least as many items that count as parts.
std::vector<int64_t> cut_evenly(std::span<const double> costs, const std::vector<bool>& counts,
                                int parts, int ranks);

}  // namespace zinc::parallel
