#include "comm/single/single.h"

#include <utility>
#include <vector>

#include "comm/host_communicator.h"
#include "comm/shared/shared_lifeline.h"
#include "comm/shared/shared_transport.h"

namespace zinc::comm {

std::unique_ptr<Communicator> make_single(std::shared_ptr<Heartbeat> heartbeat) {
  const auto segment = Segment::on_heap({.size = 1});
  auto transport = std::make_shared<SharedTransport>(
      segment, 0, std::vector<int>{0}, std::make_shared<SharedLifeline>(segment, 0),
      [](const SplitPlan& plan, const Transport::Agree&) {
        return plan.index == 0 ? Segment::on_heap({.size = 1}) : nullptr;
      });
  return std::make_unique<HostCommunicator>("single", std::move(transport), std::move(heartbeat));
}

}  // namespace zinc::comm
