// Every check on every backend that needs one process, on every executor.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "comm/single/single.h"
#include "tests/comm/checks.h"

namespace zinc::comm::testing {
namespace backends_test {

enum class Backend { single, local, staged };

std::string name_of(Backend backend) {
  switch (backend) {
    case Backend::single:
      return "single";
    case Backend::local:
      return "local";
    case Backend::staged:
      return "staged";  // threads that pass chunks as processes do
  }
  return "?";
}

// A buffer this small makes every second size of the checks take many chunks.
constexpr int64_t kStagedBufferBytes = 4096;

std::vector<std::unique_ptr<Communicator>> make_group(Backend backend, int size) {
  if (backend != Backend::single) {
    return make_local_group(size, backend == Backend::staged ? kStagedBufferBytes : 0);
  }
  std::vector<std::unique_ptr<Communicator>> group;
  group.push_back(make_single());
  return group;
}

struct GroupKind {
  Backend backend;
  int size;
};

using Parameters = std::tuple<GroupKind, ContextOptions::Execution, Check>;

class AnyBackend : public ::testing::TestWithParam<Parameters> {};

TEST_P(AnyBackend, Passes) {
  const auto& [world, execution, check] = GetParam();
  const ConnectOptions options{.num_threads = 1,
                               .bind_threads = false,
                               .execution = execution,
                               .shuffle_seed = 7,
                               .deadline = std::chrono::seconds(60)};
  const auto body = check.run;
  run_ranks(make_group(world.backend, world.size), options, [body](World& rank) {
    body({.group = rank.communicator(), .context = rank.context()});
    rank.context().synchronize();
  });
}

std::string name_of_case(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [world, execution, check] = info.param;
  return name_of(world.backend) + std::to_string(world.size) + "_" + testing::name_of(execution) +
         "_" + check.name;
}

INSTANTIATE_TEST_SUITE_P(
    All, AnyBackend,
    ::testing::Combine(::testing::Values(GroupKind{Backend::single, 1},
                                         GroupKind{Backend::local, 1}, GroupKind{Backend::local, 2},
                                         GroupKind{Backend::local, 3}, GroupKind{Backend::local, 4},
                                         GroupKind{Backend::local, 5}, GroupKind{Backend::local, 7},
                                         GroupKind{Backend::staged, 2},
                                         GroupKind{Backend::staged, 3},
                                         GroupKind{Backend::staged, 4}),
                       ::testing::ValuesIn(kExecutions), ::testing::ValuesIn(kChecks)),
    name_of_case);

}  // namespace backends_test
}  // namespace zinc::comm::testing
