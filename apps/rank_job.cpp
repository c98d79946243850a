#include "apps/rank_job.h"

#include <exception>
#include <utility>

#include "apps/rank_failure.h"
#include "core/context.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"

namespace zinc::apps {

std::optional<int> RankStep::take(comm::World& world) const {
  if (!is_together_) return work_();
  return fails_on_a_rank(world, [&] { work_(); });
}

namespace {

std::optional<int> take_steps(RankJob& job, comm::World& world) {
  for (const RankStep& step : job.steps(world)) {
    if (const std::optional<int> code = step.take(world)) return code;
  }
  return std::nullopt;
}

}  // namespace

comm::World connect(const AnsweringRanks& ranks, bool prepared) {
  comm::ConnectOptions connect;
  connect.num_threads = ranks.num_threads;
  if (prepared) {
    connect.device = parse_device(ranks.device);
    connect.spread_devices = ranks.device == "cuda";
  }
  if (!ranks.sharded) connect.execution = ContextOptions::Execution::inline_all;
  return comm::connect(connect);
}

int run_on_ranks(std::unique_ptr<RankJob> given) {
  std::optional<comm::World> world;  // outlives the job
  std::unique_ptr<RankJob> job = std::move(given);
  std::exception_ptr problem;
  try {
    job->prepare();
  } catch (...) {
    problem = std::current_exception();
  }
  try {
    world.emplace(job->connect(problem == nullptr));
  } catch (...) {
    std::rethrow_exception(problem != nullptr ? problem : std::current_exception());
  }
  std::optional<int> code = fails_on_a_rank(*world, [&] {
    if (problem != nullptr) std::rethrow_exception(problem);
  });
  if (!code) code = take_steps(*job, *world);
  job.reset();
  if (code.value_or(kDone) == kDone) return kDone;
  try {
    comm::any_rank(*world, false);
  } catch (const CommError&) {  // a rank is gone, and has said so
  }
  return *code;
}

}  // namespace zinc::apps
