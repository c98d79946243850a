// apps/rank_job.h: a command that all ranks of a run carry out together.
//
//   class CountJob final : public RankJob {
//    public:
//     void prepare() override { file_ = open(path_); }
//     comm::World connect(bool) override { return comm::connect({}); }
//     std::vector<RankStep> steps(comm::World& world) override {
//       return {RankStep::together([&] { count(world); }),
//               RankStep::together([&] { if (world.is_main()) print(); })};
//     }
//   };
//   return run_on_ranks(std::make_unique<CountJob>(path));
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace zinc::apps {

// One step of a job. A rank begins a step when it has done the step before.
class RankStep {
 public:
  // If `work` throws on a rank, all ranks end with the exit code of the first such rank, which
  // alone prints its message. No rank begins the next step.
  static RankStep together(std::function<void()> work) {
    return {[work = std::move(work)]() -> std::optional<int> { return work(), std::nullopt; },
            true};
  }
  // `work` returns the exit code with which the job ends there, or nothing. All ranks have to
  // return the same. If `work` throws, its rank leaves at once, and its peers get PeerFailed.
  static RankStep alone(std::function<std::optional<int>()> work) {
    return {std::move(work), false};
  }

  // Collective.
  std::optional<int> take(comm::World& world) const;

 private:
  RankStep(std::function<std::optional<int>()> work, bool together)
      : work_(std::move(work)), is_together_(together) {}

  std::function<std::optional<int>()> work_;
  bool is_together_;
};

class RankJob {
 public:
  RankJob() = default;
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;
  virtual ~RankJob() = default;

  // What needs no other rank: reads arguments and files. Runs before ranks are connected.
  virtual void prepare() = 0;
  // `prepared`: false if prepare() threw on this rank, which then connects to say so.
  virtual comm::World connect(bool prepared) = 0;
  // The steps behind prepare(), in their order. `world` outlives the job.
  virtual std::vector<RankStep> steps(comm::World& world) = 0;
};

// How the ranks of a job connect that trains nothing.
struct AnsweringRanks {
  std::string device;    // --device
  int num_threads = 0;   // --threads; 0: not given
  bool sharded = false;  // weights are spread over the ranks
};
comm::World connect(const AnsweringRanks& ranks, bool prepared);

// Prepares the job on every rank, connects the ranks, and takes the steps. Returns the exit code,
// the same on all ranks. Where it is not kDone, all ranks have destroyed their jobs before one of
// them returns: mpirun ends the ranks of a run as soon as one of them fails.
int run_on_ranks(std::unique_ptr<RankJob> job);

}  // namespace zinc::apps
