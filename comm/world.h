// comm/world.h: this process (or thread) as one rank among its peers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/cpu_share.h"
#include "comm/device_collectives.h"
#include "comm/mesh.h"
#include "core/context.h"

namespace zinc::comm {

// Where a rank stands, and what told it so.
struct RankInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  std::string source = "single";  // "mpirun", "torchrun", "slurm", "single", "threads"
  // Who chose the number of threads: "OMP_NUM_THREADS"; empty: options, or the processors.
  std::string threads_from;
};

// What a rank can be told after it has connected, as by a configuration.
struct RankSettings {
  uint64_t seed = 0;                                             // 0: none was given
  int num_threads = 0;                                           // 0: the processors of this rank
  std::optional<int64_t> device_memory_limit;                    // bytes of the device tier
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // of a collective
  std::shared_ptr<TraceRecorder> trace;  // null: none but ConnectOptions::trace
  std::string trace_file;                // what the recorder is written to
  std::function<void()> drain_trace;     // to there, now and then; may be empty
  Mesh mesh;
};

// How to make a rank's context again: see World::configure().
struct ContextRecipe;

// One rank: its place, its communicator, its context. A World makes its context current for the
// constructing thread for as long as it lives; it must be destroyed by that thread. Destroyed by an
// exception, it aborts its communicator, so that the peers hear of it at once. At the end of an MPI
// job it waits for its peers to get there too (for six times the deadline at most) and finalises
// MPI; after an abort it does neither.
class World {
 public:
  // `binding`: the processors of the constructing thread, given back at the end; may be null. On a
  // GPU the ranks of `communicator` meet to choose what serves them: serve_device().
  World(RankInfo info, std::unique_ptr<Communicator> communicator, std::unique_ptr<Context> context,
        std::unique_ptr<CpuBinding> binding = nullptr,
        DeviceCollectives collectives = DeviceCollectives::automatic,
        std::unique_ptr<ContextRecipe> recipe = nullptr);
  ~World();
  World(World&&) noexcept;
  World& operator=(World&&) = delete;

  int rank() const { return info_.rank; }
  int size() const { return info_.size; }
  const RankInfo& info() const { return info_; }
  bool is_main() const { return info_.rank == 0; }
  Communicator& communicator() const { return *communicator_; }
  Context& context() const { return *context_; }
  // This rank's place among those that see different batches.
  MeshPlace data() const {
    const Mesh& grid = settings_.mesh;
    return {grid.data_of(info_.rank), info_.size / grid.ranks_per_batch()};
  }
  // Ranks among which ZeRO shards: a world of their own, in the context of this one. This world
  // itself where layers are whole.
  World& shards() { return shards_ != nullptr ? *shards_ : *this; }
  // Ranks that have a part each of the tokens of the same sequences, likewise; null where each has
  // all of them.
  World* sequence() const { return sequence_.get(); }
  // Ranks that have some of the layers each, by the order of the layers, likewise; null where each
  // has all of them.
  World* pipe() const { return pipe_.get(); }
  // Ranks that hold slices of the same layers, likewise; null where each has whole ones.
  World* tensor() const { return tensor_.get(); }
  const Mesh& mesh() const { return settings_.mesh; }

  // Of several ranks on GPUs: what carries their collectives, and why; else empty.
  const std::string& device_collectives() const { return device_collectives_; }

  // What this rank was told when it connected, and what it goes by now.
  const RankSettings& given() const { return given_; }
  const RankSettings& settings() const { return settings_; }
  // Goes by other settings from now on. Anything but the deadline needs a new context: whoever
  // keeps a reference to the old one, or memory of it, comes too late. Throws ConfigError that
  // names what cannot be changed, and the cure: where memory of the context is in use, between
  // several GPUs, and in a world that connect() and run_local_ranks() have not made. Collective
  // where the mesh is not flat.
  void configure(RankSettings settings);

 private:
  World(const World& whole, std::unique_ptr<Communicator> group);
  std::unique_ptr<World> group(MeshAxis axis) const;
  std::unique_ptr<World>& along(MeshAxis axis);
  void leave_groups();

  RankInfo info_;
  std::string device_collectives_;
  std::unique_ptr<ContextRecipe> recipe_;
  RankSettings given_;
  RankSettings settings_;  // its recorder outlives the context
  int exceptions_at_start_;
  std::unique_ptr<CpuBinding> binding_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<ContextScope> scope_;  // null in a group
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<World> shards_, sequence_, pipe_, tensor_;  // end before the whole
};

struct ConnectOptions {
  Device device = kCpu;
  // A rank takes the GPU of its place among the ranks of its host instead of `device`, from the
  // first again where there are fewer GPUs than ranks.
  bool spread_devices = false;
  DeviceCollectives device_collectives = DeviceCollectives::automatic;
  uint64_t seed = 0;  // 0: that of the configuration, see load_config() in zinc.h
  // OpenMP threads per rank; 0: what OMP_NUM_THREADS says (of connect()), else the processors that
  // this rank may use, divided among the ranks of the host that may use them too.
  int num_threads = 0;
  // Binds this rank's threads to processors of its own where there are enough for all ranks of the
  // host. A launcher that has bound the ranks already is left alone.
  bool bind_threads = true;
  AllocatorOptions memory{};
  ContextOptions::Execution execution = ContextOptions::Execution::concurrent;
  uint64_t shuffle_seed = 0;
  TraceRecorder* trace = nullptr;
  // Ranks that are threads: a recorder for each, instead of `trace` for all. May be empty.
  std::vector<TraceRecorder*> rank_traces{};
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // Communicator::set_deadline
  // A heartbeat file per rank is kept here (comm/heartbeat.h); empty: none.
  std::string heartbeat_directory;
  // MPI ranks of one host exchange through shared memory; false: through MPI.
  bool shared_memory = true;
};

// The context of the rank at `local_rank` of its host; `num_cpus` is what num_threads = 0 stands
// for.
ContextOptions context_options(const ConnectOptions& options, int local_rank, int num_cpus);

struct ContextRecipe {
  ConnectOptions options;
  int num_cpus = 1;
};

// Reads the launcher's environment (torchrun-style variables, mpirun, srun, or none: the first that
// is there) and joins the group. The only place below apps/ that reads environment variables.
// Throws CommError with the cure where the variables contradict each other or the backend they need
// is missing from this build. A process can join one MPI job in its life.
World connect(ConnectOptions options = {});

// What connect() would find, without joining.
RankInfo discover_rank();

// For a program whose rank is going to exit with an error, after its message: has the launcher end
// all processes of the job with `exit_code` now. Returns where this process joined no job (or left
// it).
void abort_job(int exit_code) noexcept;

}  // namespace zinc::comm
