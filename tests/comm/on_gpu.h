// tests/comm/on_gpu.h: the checks of checks.h for communicators of emulated GPUs.
#pragma once

#include <memory>
#include <utility>

#include "core/device.h"
#include "core/view.h"
#include "tests/comm/forwarding_communicator.h"

namespace zinc::comm::testing {

// The memory of an emulated GPU is the host's: takes views of a test's vectors for views of it.
class OnGpu final : public ForwardingCommunicator {
 public:
  OnGpu(std::unique_ptr<Communicator> inner, Device device)
      : ForwardingCommunicator(std::move(inner)), device_(device) {}

  Work all_gather(const AllGather& args, StreamRef stream) override {
    return ForwardingCommunicator::all_gather({on(args.shard), on(args.out)}, stream);
  }
  Work reduce_scatter(const ReduceScatter& args, StreamRef stream) override {
    return ForwardingCommunicator::reduce_scatter({.in = on(args.in),
                                                   .out = on(args.out),
                                                   .accumulate = args.accumulate,
                                                   .workspace = on(args.workspace)},
                                                  stream);
  }
  Work all_reduce(const AllReduce& args, StreamRef stream) override {
    return ForwardingCommunicator::all_reduce({on(args.inout), on(args.workspace)}, stream);
  }
  Work broadcast(const Broadcast& args, StreamRef stream) override {
    return ForwardingCommunicator::broadcast({on(args.inout), args.root}, stream);
  }
  Work all_to_all(const AllToAll& args, StreamRef stream) override {
    return ForwardingCommunicator::all_to_all({on(args.in), on(args.out), args.counts}, stream);
  }
  Work shift(const Shift& args, StreamRef stream) override {
    return ForwardingCommunicator::shift({on(args.in), on(args.out)}, stream);
  }
  Work send(ConstView data, int destination, int tag, StreamRef stream) override {
    return ForwardingCommunicator::send(on(data), destination, tag, stream);
  }
  Work receive(View data, int source, int tag, StreamRef stream) override {
    return ForwardingCommunicator::receive(on(data), source, tag, stream);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    std::unique_ptr<Communicator> group = ForwardingCommunicator::split(color, key);
    if (group == nullptr) return nullptr;
    return std::make_unique<OnGpu>(std::move(group), device_);
  }

 private:
  template <class AnyView>
  AnyView on(const AnyView& view) const {
    if (view.device() != kCpu) return view;
    return AnyView(view.data(), view.dtype(), view.shape(), view.strides(), device_, view.tier());
  }

  Device device_;
};

}  // namespace zinc::comm::testing
