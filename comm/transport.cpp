#include "comm/transport.h"

#include "core/error.h"

namespace zinc::comm {

std::vector<int> Transport::world_ranks_of(const SplitPlan& plan) const {
  std::vector<int> ranks;
  ranks.reserve(plan.members.size());
  for (const int member : plan.members) ranks.push_back(world_rank(member));
  return ranks;
}

void Transport::native_sum(const Call& call, const NativeSum&) {
  detail::throw_internal_error(str(call.terms, ": this transport has no sums of its own"));
}

void throw_stopped(const std::string& what, const Lifeline& lifeline) {
  throw CommError(str(what, " stopped: ", lifeline.text()));
}

void throw_disagreement(const std::vector<Terms>& terms, int rank,
                        const std::vector<int>& world_ranks) {
  // The same sentence on every rank: all terms, in the order of their first rank.
  std::vector<std::vector<int>> camps;
  std::vector<Terms> views;
  for (size_t r = 0; r < terms.size(); ++r) {
    size_t i = 0;
    while (i < views.size() && !(views[i] == terms[r])) ++i;
    if (i == views.size()) {
      views.push_back(terms[r]);
      camps.emplace_back();
    }
    camps[i].push_back(world_ranks[r]);
  }
  std::string text = str(name_of(terms[static_cast<size_t>(rank)].operation), " #",
                         terms[static_cast<size_t>(rank)].sequence,
                         ": the ranks did not issue the same collective: ");
  for (size_t i = 0; i < views.size(); ++i) {
    if (i > 0) text += "; ";
    text += str(name_ranks(camps[i]), ": ", views[i]);
  }
  throw CommError(text);
}

void compare_size(const Terms& terms, const Transport& transport, int peer, int64_t sent_bytes,
                  int64_t expected_bytes) {
  if (sent_bytes == expected_bytes) return;
  throw CommError(str(terms, ": rank ", transport.world_rank(peer), " sends ", sent_bytes,
                      " bytes to rank ", transport.world_rank(), ", which expects ",
                      expected_bytes));
}

}  // namespace zinc::comm
