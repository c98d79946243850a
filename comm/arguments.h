// comm/arguments.h: the checks that every backend makes before it queues a collective.
//
// Each throws InvalidArgument that names operation and argument, and returns the terms that the
// ranks must agree on (sequence and meeting still 0).
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/call.h"
#include "comm/communicator.h"
#include "core/device.h"

namespace zinc::comm {

struct GroupFacts {
  int rank = 0;
  int size = 1;
  Device device = kCpu;
};

Terms checked(const AllGather& args, const GroupFacts& group);
// `workspace_bytes`: the workspace that the backend needs.
Terms checked(const ReduceScatter& args, const GroupFacts& group, int64_t workspace_bytes);
Terms checked(const AllReduce& args, const GroupFacts& group, int64_t workspace_bytes);
Terms checked(const Broadcast& args, const GroupFacts& group);
Terms checked(const AllToAll& args, const GroupFacts& group);
Terms checked(const Shift& args, const GroupFacts& group);
void check_message(const ConstView& data, int peer, int tag, const GroupFacts& group,
                   std::string_view op);

}  // namespace zinc::comm
