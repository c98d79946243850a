// The suites of equal bits can fail: one sum in another order, or waits left out, and the bits are
// others. The faults are in a communicator around the real one, so they are there for good.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/error.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/equivalence/training_run.h"

namespace zinc::zero {
namespace {

using training::Case;
using training::config_of;
using training::Outcome;
using training::run;
using training::RunOptions;

constexpr int kSteps = 3;

// The n-th reduce_scatter adds the ranks' values from the last rank down, not over the tree.
class WrongOrder : public comm::ForwardingCommunicator {
 public:
  WrongOrder(std::unique_ptr<comm::Communicator> inner, int wrong)
      : ForwardingCommunicator(std::move(inner)), wrong_(wrong) {}

  comm::Work reduce_scatter(const comm::ReduceScatter& args, StreamRef stream) override {
    if (calls_++ != wrong_) return ForwardingCommunicator::reduce_scatter(args, stream);
    EXPECT_EQ(args.in.dtype(), DType::f32);
    EXPECT_EQ(args.out.dtype(), DType::f32);
    EXPECT_FALSE(args.accumulate);
    const int64_t n = args.out.numel();
    const auto parts = std::make_shared<std::vector<float>>(static_cast<size_t>(size() * n));
    const View room(parts->data(), DType::f32, args.in.shape(), args.in.device());
    all_to_all({.in = args.in, .out = room}, stream);
    stream.submit("wrong order", [parts, n, out = args.out, ranks = size()] {
      for (int64_t i = 0; i < n; ++i) {
        float sum = (*parts)[static_cast<size_t>((ranks - 1) * n + i)];
        for (int r = ranks - 2; r >= 0; --r) sum += (*parts)[static_cast<size_t>(r * n + i)];
        out.data_as<float>()[i] = sum;
      }
    });
    return comm::Work(stream->record());
  }

 private:
  int wrong_;
  int calls_ = 0;
};

// Nobody waits for a reduce_scatter from the n-th on: they say at once that they are done. (A
// single one would be covered by the wait for the next one of its stream.)
class SkippedWaits : public comm::ForwardingCommunicator {
 public:
  SkippedWaits(std::unique_ptr<comm::Communicator> inner, int first)
      : ForwardingCommunicator(std::move(inner)), first_(first) {}

  comm::Work reduce_scatter(const comm::ReduceScatter& args, StreamRef stream) override {
    comm::Work work = ForwardingCommunicator::reduce_scatter(args, stream);
    return calls_++ >= first_ ? comm::Work() : work;
  }

 private:
  int first_;
  int calls_ = 0;
};

template <class Fault>
RunOptions with_fault(int call) {
  RunOptions options;
  options.decorate = [call](std::unique_ptr<comm::Communicator> inner) {
    return std::make_unique<Fault>(std::move(inner), call);
  };
  return options;
}

EngineConfig sharded(const Case& c, int stage) {
  EngineConfig config = config_of(c);
  config.zero.stage = stage;
  config.zero.overlap_comm = true;
  return config;
}

TEST(Teeth, OneSumInAnotherOrder_ShowsInTheBits) {
  for (const Case& c : {Case{3, 1}, Case{4, 1}, Case{3, 1, DType::f32, {}, true}}) {
    EngineConfig config = config_of(c);
    config.zero.stage = 0;
    const Outcome reference = run(c, config, kSteps);
    for (const int stage : {2, 3}) {
      SCOPED_TRACE(concat(training::describe(c), " stage ", stage));
      // The decorator itself changes nothing: no step reduces a thousand times.
      EXPECT_TRUE(run(c, sharded(c, stage), kSteps, with_fault<WrongOrder>(1000)) == reference);
      EXPECT_FALSE(run(c, sharded(c, stage), kSteps, with_fault<WrongOrder>(5)) == reference);
    }
  }
}

TEST(Teeth, WaitsLeftOut_ShowUnderShuffledExecution) {
  const Case c{3, 1};
  for (const int stage : {2, 3}) {
    const Outcome reference = run(c, sharded(c, stage), kSteps);
    // Memory that a reduction gave back, and that is waited for when it is taken again, covers most
    // of what is left out: one run in 30 to 60 shows it.
    bool found = false;
    for (const int first : {3, 1, 5, 8}) {
      RunOptions options = with_fault<SkippedWaits>(first);
      options.execution = ContextOptions::Execution::shuffled;
      for (uint64_t seed = 1; seed <= 20 && !found; ++seed) {
        options.shuffle_seed = seed;
        found = !(run(c, sharded(c, stage), kSteps, options) == reference);
      }
    }
    EXPECT_TRUE(found) << "stage " << stage;
  }
}

}  // namespace
}  // namespace zinc::zero
