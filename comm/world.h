// comm/world.h: this process (or thread) as one rank among its peers.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "core/context.h"

namespace zinc::comm {

// Where a rank stands, and what told it so.
struct RankInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  std::string source = "single";  // "mpirun", "torchrun", "slurm", "single", "threads"
};

// One rank: its place, its communicator, its context. A World makes its context current for the
// constructing thread for as long as it lives; it must be destroyed by that thread.
class World {
 public:
  World(RankInfo info, std::unique_ptr<Communicator> communicator,
        std::unique_ptr<Context> context);
  ~World();
  World(World&&) noexcept;
  World& operator=(World&&) = delete;

  int rank() const { return info_.rank; }
  int size() const { return info_.size; }
  const RankInfo& info() const { return info_; }
  bool is_main() const { return info_.rank == 0; }
  Communicator& communicator() const { return *communicator_; }
  Context& context() const { return *context_; }

 private:
  RankInfo info_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<ContextScope> scope_;
  std::unique_ptr<Communicator> communicator_;
};

struct ConnectOptions {
  Device device = kCpu;
  uint64_t seed = 0;
  int num_threads = 0;  // per rank; 0: cores / local ranks
  AllocatorOptions memory{};
  ContextOptions::Execution execution = ContextOptions::Execution::concurrent;
  TraceRecorder* trace = nullptr;
};

// Reads the launcher's environment (mpirun, srun, torchrun-style variables, or none) and joins the
// group. The only place below apps/ that reads environment variables. Throws CommError with the
// cure where the variables contradict each other or the backend they need is missing from this
// build.
World connect(ConnectOptions options = {});

// What connect() would find, without joining.
RankInfo discover_rank();

}  // namespace zinc::comm
