// The suites of equal bits can fail: one sum in another order, and the bits are others. The fault
// is in a communicator around the real one, so it is there for good. Waits that are left out:
// gpu_cuda_test.cpp, below the allocator, whose own waits cover for most.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/error.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/equivalence/training_run.h"

namespace zinc::zero {
namespace teeth_test {

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

RunOptions with_wrong_order(int call) {
  RunOptions options;
  options.decorate = [call](std::unique_ptr<comm::Communicator> inner) {
    return std::make_unique<WrongOrder>(std::move(inner), call);
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
  for (const Case& c :
       {Case{3, 1}, Case{4, 1}, Case{3, 1, DType::f32, {}, training::Family::llama}}) {
    EngineConfig config = config_of(c);
    config.zero.stage = 0;
    const Outcome reference = run(c, config, kSteps);
    for (const int stage : {2, 3}) {
      SCOPED_TRACE(str(training::describe(c), " stage ", stage));
      // The decorator itself changes nothing: no step reduces a thousand times.
      EXPECT_TRUE(run(c, sharded(c, stage), kSteps, with_wrong_order(1000)) == reference);
      EXPECT_FALSE(run(c, sharded(c, stage), kSteps, with_wrong_order(5)) == reference);
    }
  }
}

}  // namespace teeth_test
}  // namespace zinc::zero
