// tests/ranks/mpi_checks.h: the checks of tests/comm between processes. A program that includes it
// says by kSharedMemory how its ranks exchange data.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "comm/world.h"
#include "tests/comm/checks.h"

namespace zinc::comm::testing {

// The world of this process: MPI can be joined once.
class Job : public ::testing::Environment {
 public:
  explicit Job(bool shared_memory) : shared_memory_(shared_memory) {}

  void SetUp() override {
    current() = this;
    world_.emplace(connect(
        {.num_threads = 1, .deadline = std::chrono::seconds(60), .shared_memory = shared_memory_}));
  }
  void TearDown() override { world_.reset(); }

  static Job*& current() {
    static Job* job = nullptr;
    return job;
  }
  World& world() { return *world_; }

 private:
  bool shared_memory_;
  std::optional<World> world_;
};

using Parameters = std::tuple<ContextOptions::Execution, Check>;

class BetweenProcesses : public ::testing::TestWithParam<Parameters> {};

TEST_P(BetweenProcesses, Passes) {
  const auto& [execution, check] = GetParam();
  World& world = Job::current()->world();
  Context context({.num_threads = 1, .execution = execution, .shuffle_seed = 11});
  const ContextScope scope(context);
  check.run({.group = world.communicator(), .context = context});
  context.synchronize();
}

INSTANTIATE_TEST_SUITE_P(All, BetweenProcesses,
                         ::testing::Combine(::testing::ValuesIn(kExecutions),
                                            ::testing::ValuesIn(kChecks)),
                         [](const auto& info) {
                           return testing::name_of(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param).name;
                         });

TEST(Job, Connect_UnderMpirun_KnowsItsPlace) {
  const World& world = Job::current()->world();
  EXPECT_EQ(world.info().source, "mpirun");
  EXPECT_EQ(world.info().local_size, world.size());  // the tests run on one host
  EXPECT_EQ(world.info().local_rank, world.rank());
  EXPECT_EQ(world.communicator().backend(), world.size() == 1 ? "single" : "mpi");
  EXPECT_EQ(&Context::current(), &world.context());
}

}  // namespace zinc::comm::testing
