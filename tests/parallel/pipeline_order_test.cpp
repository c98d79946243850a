// The orders of a pipeline's ranks, the proof that they fit together, and the cut of a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/pipeline.h"

namespace zinc::parallel {
namespace pipeline_order_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Orders = PipelineOrders;

Orders orders_of(PipelineSchedule schedule, int size, int64_t micro_batches, int parts = 1) {
  return pipeline_orders(
      {.schedule = schedule, .ranks = size, .micro_batches = micro_batches, .parts = parts});
}

// Forward passes in capitals, "A" the first micro-batch's, backward passes in small letters, those
// of weights as figures; ' behind those of a second part.
std::string passes_of(const std::vector<PipelineOp>& order) {
  std::string text;
  for (const PipelineOp& op : order) {
    if (!is_pass(op.work)) continue;
    const char first = op.work == PipelineWork::forward    ? 'A'
                       : op.work == PipelineWork::backward ? 'a'
                                                           : '0';
    text += static_cast<char>(first + static_cast<char>(op.micro_batch));
    text.append(static_cast<size_t>(op.part), '\'');
  }
  return text;
}

TEST(PipelineOrder, IsThatOfThePapers) {
  const Orders soon = orders_of(PipelineSchedule::one_forward_one_backward, 4, 6);
  EXPECT_EQ(passes_of(soon[0]), "ABCDaEbFcdef");
  EXPECT_EQ(passes_of(soon[1]), "ABCaDbEcFdef");
  EXPECT_EQ(passes_of(soon[3]), "AaBbCcDdEeFf");
  for (const auto& order : orders_of(PipelineSchedule::gpipe, 3, 4)) {
    EXPECT_EQ(passes_of(order), "ABCDabcd");
  }
  const Orders interleaved = orders_of(PipelineSchedule::one_forward_one_backward, 2, 4, 2);
  EXPECT_EQ(passes_of(interleaved[0]), "ABA'B'Ca'Db'C'aD'bc'd'cd");
  EXPECT_EQ(passes_of(interleaved[1]), "ABA'a'B'b'CaDbC'c'D'd'cd");
  const Orders split = orders_of(PipelineSchedule::zero_bubble, 3, 4);
  EXPECT_EQ(passes_of(split[0]), "ABCa0Db1c2d3");
  EXPECT_EQ(passes_of(split[1]), "ABaCb0Dc1d23");
  EXPECT_EQ(passes_of(split[2]), "AaBbCc0Dd123");
}

TEST(PipelineOrder, OfEveryLength_FitsTogether) {
  for (const auto schedule :
       {PipelineSchedule::one_forward_one_backward, PipelineSchedule::gpipe}) {
    for (int size = 2; size <= 9; ++size) {
      for (int64_t micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        const Orders orders = orders_of(schedule, size, micro_batches);
        check_pipeline(orders, micro_batches);
        for (int rank = 0; rank < size; ++rank) {
          const int64_t kept = schedule == PipelineSchedule::gpipe
                                   ? micro_batches
                                   : std::min<int64_t>(size - rank, micro_batches);
          EXPECT_EQ(most_in_flight(orders[static_cast<size_t>(rank)]), kept);
        }
      }
      for (const int parts : {2, 3, 5}) {
        for (const int64_t rounds : {1, 2, 5}) {
          if (schedule == PipelineSchedule::gpipe) continue;
          check_pipeline(orders_of(schedule, size, rounds * size, parts), rounds * size);
        }
      }
      for (int64_t micro_batches = 1; micro_batches < size; ++micro_batches) {
        check_pipeline(orders_of(PipelineSchedule::zero_bubble, size, micro_batches),
                       micro_batches);
      }
    }
  }
}

bool is_idle(const std::optional<PipelineOp>& pass) { return !pass.has_value(); }

double idle_per_work(const std::vector<std::optional<PipelineOp>>& turns) {
  const auto idle = static_cast<double>(std::ranges::count_if(turns, is_idle));
  return idle / (static_cast<double>(turns.size()) - idle);
}

// P ranks and m micro-batches take 2 (m + P - 1) turns, and each rank is idle for (P - 1) / (m + P
// - 1) of them.
TEST(PipelineOrder, IsIdleForTheShareOfThePapers) {
  for (const auto schedule :
       {PipelineSchedule::one_forward_one_backward, PipelineSchedule::gpipe}) {
    for (const int size : {2, 4, 8}) {
      for (const int64_t micro_batches : {1, 3, 8, 17}) {
        const auto turns = pipeline_turns(orders_of(schedule, size, micro_batches));
        for (const auto& rank : turns) {
          EXPECT_EQ(std::ssize(rank), 2 * (micro_batches + size - 1));
          EXPECT_EQ(std::ranges::count_if(rank, is_idle), 2 * (size - 1));
          EXPECT_DOUBLE_EQ(idle_per_work(rank), bubble({schedule, size, micro_batches}));
        }
      }
    }
  }
}

// With V parts that each take 1 / V of the time, a rank is idle for as long as P - 1 micro-batches
// take through one part: the share is divided by V.
TEST(PipelineOrder, OfSeveralParts_IsIdleForAShareOfThat) {
  for (const int parts : {2, 3, 4}) {
    for (const int size : {2, 4, 8}) {
      for (const int64_t rounds : {1, 2, 5}) {
        const int64_t micro_batches = rounds * size;
        const Orders orders =
            orders_of(PipelineSchedule::one_forward_one_backward, size, micro_batches, parts);
        for (int rank = 0; rank < size; ++rank) {
          const int64_t kept = 2 * (size - rank - 1) + (parts - 1) * size + 1;
          EXPECT_EQ(most_in_flight(orders[static_cast<size_t>(rank)]),
                    std::min(kept, micro_batches * parts));
        }
        const auto turns = pipeline_turns(orders);
        for (const auto& rank : turns) {
          EXPECT_EQ(std::ssize(rank), 2 * (micro_batches * parts + size - 1));
          EXPECT_EQ(std::ranges::count_if(rank, is_idle), 2 * (size - 1));
          EXPECT_DOUBLE_EQ(idle_per_work(rank), bubble({PipelineSchedule::one_forward_one_backward,
                                                        size, micro_batches, parts}));
        }
      }
    }
  }
}

// Forward, backward and weights in turns of one length: of the 3 (P - 1) idle ones of 1F1B a third
// is left, and no rank keeps more than the first one of 1F1B.
TEST(PipelineOrder, OfZeroBubble_IsIdleForAThird) {
  for (int size = 2; size <= 8; ++size) {
    for (int64_t micro_batches = size; micro_batches <= 20; ++micro_batches) {
      const Orders orders = orders_of(PipelineSchedule::zero_bubble, size, micro_batches);
      check_pipeline(orders, micro_batches);
      for (const auto& order : orders) EXPECT_EQ(most_in_flight(order), size);
      for (const auto& rank : pipeline_turns(orders)) {
        EXPECT_EQ(std::ssize(rank), 3 * micro_batches + size - 1);
        EXPECT_DOUBLE_EQ(idle_per_work(rank),
                         bubble({PipelineSchedule::zero_bubble, size, micro_batches}));
      }
    }
  }
}

std::string message_of(const Orders& orders, int64_t micro_batches) {
  try {
    check_pipeline(orders, micro_batches);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(PipelineCheck, NamesWhatDoesNotFit) {
  const Orders good = orders_of(PipelineSchedule::one_forward_one_backward, 3, 4);
  const auto broken = [&](const std::function<void(Orders&)>& change) {
    Orders orders = good;
    change(orders);
    return message_of(orders, 4);
  };
  const auto at = [](Orders& orders, size_t rank, const PipelineOp& op) {
    return std::ranges::find(orders[rank], op);
  };
  EXPECT_EQ(message_of(good, 4), "");
  EXPECT_THAT(
      broken([&](Orders& orders) {
        orders[1].erase(at(orders, 1, {PipelineWork::send_output, 2}));
      }),
      HasSubstr("rank 1: receive gradient of micro-batch 3 comes ahead of its send output"));
  EXPECT_THAT(broken([&](Orders& orders) {
                orders[0].erase(at(orders, 0, {PipelineWork::backward, 3}));
              }),
              HasSubstr("rank 0: backward of micro-batch 4 is missing"));
  EXPECT_THAT(broken([&](Orders& orders) {
                std::iter_swap(at(orders, 2, {PipelineWork::backward, 0}),
                               at(orders, 2, {PipelineWork::send_gradient, 0}));
              }),
              HasSubstr("rank 2: send gradient of micro-batch 1 comes ahead of its backward"));
  EXPECT_THAT(broken([&](Orders& orders) {
                std::iter_swap(at(orders, 0, {PipelineWork::backward, 2}),
                               at(orders, 0, {PipelineWork::backward, 3}));
              }),
              HasSubstr("rank 0: backward of micro-batch 4 comes ahead of its receive gradient"));
  EXPECT_THAT(broken([&](Orders& orders) {
                orders[1].erase(at(orders, 1, {PipelineWork::send_gradient, 3}));
              }),
              HasSubstr("rank 1: send gradient of micro-batch 4 is missing"));
  // A gradient that is sent before the next input is asked for meets a rank that sends that input.
  EXPECT_THAT(broken([&](Orders& orders) {
                std::iter_swap(at(orders, 1, {PipelineWork::receive_input, 2}),
                               at(orders, 1, {PipelineWork::send_gradient, 0}));
              }),
              HasSubstr("waits for its peer for ever"));
  EXPECT_THAT(broken([&](Orders& orders) {
                orders[0].push_back({PipelineWork::weights, 1});
              }),
              HasSubstr("rank 0: weight gradients of micro-batch 2 is out of order"));
  EXPECT_THAT(message_of(orders_of(PipelineSchedule::one_forward_one_backward, 3, 6, 2), 4),
              HasSubstr("micro-batch 5 is of no step"));
}

TEST(PipelineOrder, OfSeveralParts_NeedsFullRounds) {
  EXPECT_THROW(orders_of(PipelineSchedule::one_forward_one_backward, 3, 4, 2), InvalidArgument);
  EXPECT_THROW(orders_of(PipelineSchedule::gpipe, 2, 4, 2), InvalidArgument);
}

TEST(PipelineCut, MakesTheMostExpensivePartCheapest) {
  const std::vector<double> costs{5, 1, 1, 1, 1, 1, 6};
  const std::vector<bool> blocks{false, true, true, true, true, true, false};
  EXPECT_THAT(cut_evenly(costs, blocks, 1, 1), ElementsAre(0, 7));
  EXPECT_THAT(cut_evenly(costs, blocks, 2, 2), ElementsAre(0, 4, 7));
  // The first and the last need a block too.
  EXPECT_THAT(cut_evenly(costs, blocks, 3, 3), ElementsAre(0, 2, 5, 7));
  EXPECT_THAT(cut_evenly(costs, blocks, 5, 5), ElementsAre(0, 2, 3, 4, 5, 7));
}

// Parts 0 and 2 are rank 0's. Both have a most expensive part of 3, and the first cut from the back
// would be 0, 2, 3, 6: with 6 for rank 0, and 4 for the other.
TEST(PipelineCut, OfRanksWithSeveralParts_GivesThemAsMuch) {
  for (const double unit : {1.0, 0.1, 1.0 / 3.0}) {
    std::vector<double> costs{2, 1, 1, 1, 1, 1, 1, 2};
    for (double& cost : costs) cost *= unit;
    const std::vector<bool> blocks{false, true, true, true, true, true, true, false};
    EXPECT_THAT(cut_evenly(costs, blocks, 4, 2), ElementsAre(0, 2, 4, 6, 8)) << unit;
    EXPECT_THAT(cut_evenly(costs, blocks, 4, 4), ElementsAre(0, 2, 3, 6, 8)) << unit;
  }
}

}  // namespace pipeline_order_test
}  // namespace zinc::parallel
