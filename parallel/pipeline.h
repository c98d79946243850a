// parallel/pipeline.h: which ranks of a pipeline have which layers, and in which order each of them
// works on the micro-batches of a step.
//
// Rank p of P has some layers of the model, behind those of rank p - 1. A micro-batch goes forward
// from rank to rank and backward the other way; between two ranks travels what the layers of one
// give to the next, and back its gradient.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::parallel {

// Both compute the backward passes of a rank in ascending order of micro-batches, so that gradients
// are summed in the order of a run without a pipeline.
enum class PipelineSchedule : uint8_t {
  // Backward as soon as it can be (Narayanan et al. 2019, "PipeDream"; Narayanan et al. 2021,
  // section 2.2.1): rank p keeps the activations of min(P - p, m) of m micro-batches.
  one_forward_one_backward,
  // All forward passes first (Huang et al. 2019, "GPipe"): every rank keeps those of all.
  gpipe,
};
std::string_view name_of(PipelineSchedule schedule);  // "1f1b", "gpipe"

// What a rank of a pipeline does, one after the other.
enum class PipelineWork : uint8_t {
  receive_input,     // what the rank before gave
  forward,           // its layers
  send_output,       // to the rank behind
  receive_gradient,  // of what was sent, from there
  backward,
  send_gradient,  // of what was received, to the rank before
};
std::string_view name_of(PipelineWork work);  // "receive input"

struct PipelineOp {
  PipelineWork work = PipelineWork::forward;
  int64_t micro_batch = 0;  // of the step's
  friend auto operator<=>(const PipelineOp&, const PipelineOp&) = default;
};
// "forward of micro-batch 3"; micro-batches are counted from 1 for people.
std::string describe(const PipelineOp& op);

// The ops of one rank in their order. A message is sent when its receiver asks for it, or waits for
// that: the orders of all ranks of one schedule fit together.
std::vector<PipelineOp> pipeline_order(PipelineSchedule schedule, int rank, int size,
                                       int64_t micro_batches);
// Most micro-batches that have gone forward on a rank and not backward: what it keeps.
int64_t most_in_flight(std::span<const PipelineOp> order);

// By rank, by turn: the pass that takes place, absent where the rank is idle; a pass takes one
// turn, forward or backward, and messages none. Of orders that check_pipeline() takes.
std::vector<std::vector<std::optional<PipelineOp>>> pipeline_turns(
    std::span<const std::vector<PipelineOp>> orders);

// InvalidArgument unless `orders`, by rank, do the passes of every micro-batch once on each rank,
// backward in ascending order, and each pass has what it needs when it begins; and unless all come
// to their end where a send waits for its receiver. Names rank and op.
void check_pipeline(std::span<const std::vector<PipelineOp>> orders, int64_t micro_batches);

// Cuts a row of items into `parts` without a gap so that the most expensive part costs least; each
// has an item that counts. Of cuts that are equal in that, the one whose parts end earliest from
// the back. Gives the first item of each part, and the number of items behind them. There are at
// least as many items that count as parts.
std::vector<int64_t> cut_evenly(std::span<const double> costs, const std::vector<bool>& counts,
                                int parts);

}  // namespace zinc::parallel
