#include "comm/shared/shared_fault_line.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace zinc::comm {

void SharedFaultLine::raise(int world_rank, std::string_view reason) noexcept {
  FaultRecord& record = segment_->fault();
  uint32_t none = 0;
  if (!record.state.compare_exchange_strong(none, 1)) return;
  const size_t length = std::min(reason.size(), sizeof record.reason);
  record.world_rank = world_rank;
  record.length = static_cast<uint32_t>(length);
  std::memcpy(record.reason, reason.data(), length);
  record.state.store(2);
}

std::string SharedFaultLine::text() const {
  if (!raised()) return {};
  const FaultRecord& record = segment_->fault();
  return concat("rank ", record.world_rank, ": ", std::string_view(record.reason, record.length));
}

}  // namespace zinc::comm
