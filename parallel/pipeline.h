// parallel/pipeline.h: divides the layers among the ranks of a pipeline, and orders each rank's
// work on the micro-batches of a step.
//
// A model is cut into P * V parts, one behind the other; rank p of P has parts p, p + P, ..., V in
// all, and V is 1 where ranks are not interleaved. A micro-batch goes forward from part to part and
// backward the other way; from a part to the next one travel the activations, and back their
// gradients.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::parallel {

// All schedules compute the backward passes of a part in ascending order of micro-batches, so that
// gradients are summed in the order of a run without a pipeline.
enum class PipelineSchedule : uint8_t {
  // A backward pass runs as soon as it can (Narayanan et al. 2019, "PipeDream"; Narayanan et al.
  // 2021, section 2.2.1): rank p keeps the activations of min(P - p, m) of m micro-batches. The
  // only schedule for ranks with several parts (section 2.2.2): a part runs for P micro-batches
  // before the next part does, so rank p is 2 (P - p - 1) + (V - 1) P forward passes ahead.
  one_forward_one_backward,
  // All forward passes first (Huang et al. 2019, "GPipe"): every rank keeps the activations of all
  // micro-batches.
  gpipe,
  // The gradients of a layer's weights are computed apart from that of its input, and later (Qi et
  // al. 2024, "Zero Bubble Pipeline Parallelism", ZB-H1): on rank p after the input gradients of p
  // more micro-batches, in time that the rank would otherwise wait. Every rank keeps the
  // activations of at most P micro-batches, as the first rank of 1F1B does.
  zero_bubble,
};
std::string_view name_of(PipelineSchedule schedule);  // "1f1b", "gpipe", "zb-h1"

// The quantity that the cut of a model's stages spreads evenly over the ranks of a pipeline.
enum class PipelinePartition : uint8_t {
  best,        // time of forward and backward on a typical machine of the device's kind
  uniform,     // stages
  parameters,  // trained weights
};

std::string_view name_of(PipelinePartition partition);  // "best", "uniform", "parameters"

// Ranks that have some of the layers each: comm::Mesh::pipe.
struct PipelineConfig {
  int ranks = 1;  // ranks of a pipeline in the world's mesh; the engine sets it
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  PipelinePartition partition = PipelinePartition::best;
  int interleave = 1;  // parts of the model that each rank has, in turn with the others
  // If set, replaces `partition`: each rank gets about as many stages with a parameter whose name
  // matches (core/glob.h).
  std::string pattern{};
};

// The work of a rank of a pipeline, one op after the other.
enum class PipelineWork : uint8_t {
  receive_input,     // activations from the rank before
  forward,           // the layers of the rank's part
  send_output,       // activations to the rank behind
  receive_gradient,  // gradient of the sent activations, from the rank behind
  backward,
  send_gradient,  // gradient of the received activations, to the rank before
  weights,        // gradients of weights that backward has left for later: only with zero_bubble
};
std::string_view name_of(PipelineWork work);  // "receive input"

struct PipelineOp {
  PipelineWork work = PipelineWork::forward;
  int64_t micro_batch = 0;  // of the step's micro-batches
  int part = 0;             // of the rank's parts
  friend auto operator<=>(const PipelineOp&, const PipelineOp&) = default;
};
// True for a forward or backward pass, or a pass of weights; false for a message.
bool is_pass(PipelineWork work);
// "forward of micro-batch 3"; micro-batches and parts are counted from 1 for people.
std::string describe(const PipelineOp& op);

struct PipelineShape {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int ranks = 2;
  int64_t micro_batches = 1;
  int parts = 1;  // parts of each rank; with several, micro_batches is a multiple of ranks
};
// The share of its own work time that a rank waits for others, where ranks are equal: (P - 1) / m
// for 1F1B and GPipe, a V-th of that for V parts, a third for zero_bubble (as long as m >= P).
double bubble(const PipelineShape& shape);

using PipelineOrders = std::vector<std::vector<PipelineOp>>;  // by rank

// The ops of each rank, in order. Sends and receives are ordered so that they meet: a message is
// sent when its receiver asks for it, or its sender waits for that.
PipelineOrders pipeline_orders(const PipelineShape& shape);
// The most forward passes whose activations a rank keeps at the same time.
int64_t most_in_flight(std::span<const PipelineOp> order);

// By rank, by turn: the pass that runs; absent where the rank is idle. A pass takes one turn, a
// message none. `orders` must pass check_pipeline().
std::vector<std::vector<std::optional<PipelineOp>>> pipeline_turns(
    std::span<const std::vector<PipelineOp>> orders);

// InvalidArgument unless `orders` do the passes of every micro-batch once for each part, backward
// in ascending order, each pass has its inputs when it begins, and all orders end although a send
// waits for its receiver. Names rank and op.
void check_pipeline(std::span<const std::vector<PipelineOp>> orders, int64_t micro_batches);

// Cuts a row of items into `parts` contiguous parts, so that the most expensive part is as cheap as
// possible. `counts`: which items count; each part has at least one of them. Of several such cuts,
// takes the one whose parts end earliest, from the last part on. Where parts are dealt to fewer
// `ranks` in turn, the ends then move until no move of one end makes the most loaded rank cheaper.
// Returns the first item of each part, and the number of items at the end. At least `parts` items
// count.
std::vector<int64_t> cut_evenly(std::span<const double> costs, const std::vector<bool>& counts,
                                int parts, int ranks);

}  // namespace zinc::parallel
