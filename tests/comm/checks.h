// tests/comm/checks.h: the list of what every backend is put to, in worlds of 1 to 4 and more.
#pragma once

#include <iterator>
#include <string>

#include "tests/comm/data_checks.h"
#include "tests/comm/group_checks.h"
#include "tests/comm/rank_data.h"

namespace zinc::comm::testing {

struct Check {
  const char* name;
  void (*run)(const Rank& rank);
};

#define ZINC_CHECK(name) \
  Check { #name, name }
inline constexpr Check kChecks[] = {
    ZINC_CHECK(AllGather_AnyDTypeAndSize_MatchesConcatenation),
    ZINC_CHECK(ReduceScatter_AnyFloat_IsTheWrittenOutTree),
    ZINC_CHECK(ReduceScatter_InPlace_IsTheWrittenOutTree),
    ZINC_CHECK(ReduceScatter_ItsData_TellsOrdersApart),
    ZINC_CHECK(AllReduce_AnyFloatAndSize_IsTheWrittenOutTree),
    ZINC_CHECK(AllReduce_CraftedIntegers_AreExact),
    ZINC_CHECK(NativeSums_CraftedIntegers_AreExact),
    ZINC_CHECK(Broadcast_FromEveryRoot_CopiesItsBytes),
    ZINC_CHECK(AllToAll_AnyDTypeAndSize_TransposesBlocks),
    ZINC_CHECK(AllToAll_UnevenCounts_BringsTheBlockOfEveryPair),
    ZINC_CHECK(Shift_AnyDTypeAndSize_BringsThePreviousRanksBytes),
    ZINC_CHECK(Collectives_LargeArrays_AreRight),
    ZINC_CHECK(Messages_SeveralTags_ArriveByTag),
    ZINC_CHECK(Barrier_SlowRank_HoldsAllBack),
    ZINC_CHECK(Collectives_OnTwoStreamsWithDelays_MatchByIssue),
    ZINC_CHECK(Collectives_ManyInFlight_AllComplete),
    ZINC_CHECK(Work_WaitOn_OrdersAnotherStream),
    ZINC_CHECK(Split_ByColourAndKey_FormsWorkingGroups),
    ZINC_CHECK(Counters_AfterEveryCollective_AreExact),
    ZINC_CHECK(AllToAll_CountsThatDoNotFit_ThrowAtTheCall),
    ZINC_CHECK(Arguments_ThatDoNotFit_ThrowAtTheCall),
};
#undef ZINC_CHECK

inline constexpr ContextOptions::Execution kExecutions[] = {ContextOptions::Execution::inline_all,
                                                            ContextOptions::Execution::concurrent,
                                                            ContextOptions::Execution::shuffled};

inline std::string name_of(ContextOptions::Execution execution) {
  switch (execution) {
    case ContextOptions::Execution::inline_all:
      return "inline";
    case ContextOptions::Execution::concurrent:
      return "concurrent";
    case ContextOptions::Execution::shuffled:
      return "shuffled";
  }
  return "?";
}

}  // namespace zinc::comm::testing
