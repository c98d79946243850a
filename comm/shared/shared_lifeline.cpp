#include "comm/shared/shared_lifeline.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace zinc::comm {

void SharedLifeline::raise(std::string_view reason) noexcept {
  FaultRecord& record = segment_->fault();
  uint32_t none = 0;
  if (!record.state.compare_exchange_strong(none, 1)) return;
  const size_t length = std::min(reason.size(), sizeof record.reason);
  record.world_rank = world_rank_;
  record.length = static_cast<uint32_t>(length);
  std::memcpy(record.reason, reason.data(), length);
  record.state.store(2);
}

std::string SharedLifeline::text() const {
  if (!raised()) return {};
  const FaultRecord& record = segment_->fault();
  return str("rank ", record.world_rank, ": ", std::string_view(record.reason, record.length));
}

std::vector<int> SharedLifeline::waiting_among(const std::vector<int>& world_ranks,
                                               const std::function<bool()>& stop) {
  constexpr int kPolls = 5;
  std::vector<uint32_t> before;
  for (const int r : world_ranks) before.push_back(segment_->rank(r).pulse.load());
  for (int i = 0; i < kPolls && !stop(); ++i) {
    std::this_thread::sleep_for(kPollInterval);
    beat();
  }
  std::vector<int> waiting;
  for (size_t i = 0; i < world_ranks.size(); ++i) {
    const RankRecord& record = segment_->rank(world_ranks[i]);
    if (record.blocked.load() > 0 && record.pulse.load() != before[i]) {
      waiting.push_back(world_ranks[i]);
    }
  }
  return waiting;
}

}  // namespace zinc::comm
