// comm/single/single.h: a world of one rank.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/heartbeat.h"

namespace zinc::comm {

// A collective of one rank is a copy or conversion, with the checks of any world.
std::unique_ptr<Communicator> make_single(std::shared_ptr<Heartbeat> heartbeat = nullptr);

}  // namespace zinc::comm
