#include "comm/lifeline.h"

#include <algorithm>

namespace zinc::comm {

std::vector<int> missing_among(Lifeline& lifeline, const std::vector<int>& suspects,
                               const std::function<bool()>& stop) {
  const std::vector<int> waiting = lifeline.waiting_among(suspects, stop);
  std::vector<int> missing;
  for (const int r : suspects) {
    if (std::ranges::find(waiting, r) == waiting.end()) missing.push_back(r);
  }
  return missing.empty() ? suspects : missing;
}

}  // namespace zinc::comm
