// comm/world.h: this process (or thread) as one rank among its peers.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
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

// The place of a rank, and where it comes from.
struct RankInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  std::string source = "single";  // "mpirun", "torchrun", "slurm", "single", "threads"
  // The source of the number of threads: "OMP_NUM_THREADS"; empty: ConnectOptions, or the
  // processors.
  std::string threads_from;
};

// Settings of a rank that can change after it has connected, as by a configuration.
struct RankSettings {
  uint64_t seed = 0;                                             // 0: none was given
  int num_threads = 0;                                           // 0: the processors of this rank
  std::optional<int64_t> device_memory_limit;                    // bytes of the device tier
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // of a collective
  std::shared_ptr<TraceRecorder> trace;  // null: none but ConnectOptions::trace
  std::string trace_file;                // the file that the recorder is written to
  // writes the recorder to trace_file, now and then; may be empty
  std::function<void()> drain_trace;
  Mesh mesh;
};

// How to make a rank's context again: see World::configure().
struct ContextRecipe;

// One rank: its place, its communicator, its context. A World makes its context current for the
// constructing thread while it lives. That thread must destroy it. If an exception destroys it, it
// aborts its communicator, so that the peers learn of it at once. At the end of an MPI job it waits
// for its peers (at most six times the deadline) and finalises MPI; after an abort it does neither.
class World {
 public:
  // `binding`: binds the constructing thread to processors, until the end of the World; may be
  // null. On a GPU the ranks of `communicator` agree on the communicator that serves them
  // (serve_device()); the call is collective then.
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
  // This rank's place among the ranks that see different batches.
  MeshPlace data() const {
    const Mesh& grid = settings_.mesh;
    return {grid.data_of(info_.rank), info_.size / grid.ranks_per_batch()};
  }
  // The ranks over which ZeRO shards: a world of their own in this world's context. This world
  // itself if layers are whole.
  World& shards() { return shards_ != nullptr ? *shards_ : *this; }
  // The world of the ranks that each have a part of the tokens of the same sequences. Null if each
  // rank has all tokens.
  World* sequence() const { return sequence_.get(); }
  // The world of the ranks that each have some of the layers, in the order of the layers. Null if
  // each rank has all layers.
  World* pipe() const { return pipe_.get(); }
  // The world of the ranks that hold slices of the same layers. Null if each rank has whole layers.
  World* tensor() const { return tensor_.get(); }
  const Mesh& mesh() const { return settings_.mesh; }

  // With several ranks on GPUs: the communicator that carries their collectives, and the reason.
  // Otherwise empty.
  const std::string& device_collectives() const { return device_collectives_; }

  // given(): the settings with which this rank connected. settings(): those in force.
  const RankSettings& given() const { return given_; }
  const RankSettings& settings() const { return settings_; }
  // Applies other settings. All but the deadline need a new context. References to the old context,
  // and its memory, must not exist any more. Throws ConfigError that names what cannot be changed,
  // and the cure: if memory of the context is in use, between several GPUs, and in a world that
  // neither connect() nor run_local_ranks() has made. Collective if the mesh is not flat.
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
  RankSettings settings_;  // the recorder in it outlives the context
  int exceptions_at_start_;
  std::unique_ptr<CpuBinding> binding_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<ContextScope> scope_;  // null in a group
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<World> shards_, sequence_, pipe_, tensor_;  // end before the whole world
};

struct ConnectOptions {
  Device device = kCpu;
  // True: instead of `device`, a rank takes the GPU with its number among the ranks of its host.
  // With fewer GPUs than ranks, numbers begin again at the first GPU.
  bool spread_devices = false;
  DeviceCollectives device_collectives = DeviceCollectives::automatic;
  uint64_t seed = 0;  // 0: that of the configuration, see load_config() in zinc.h
  // Threads per rank. 0: the value of OMP_NUM_THREADS, which connect() reads. Without that: the
  // processors that this rank may use, divided among the ranks of the host that may use them too,
  // or fewer where a control group's quota is smaller.
  int num_threads = 0;
  // Binds this rank's threads to processors of its own, if there are enough for all ranks of the
  // host. Ranks that a launcher has bound already are left as they are.
  bool bind_threads = true;
  AllocatorOptions memory{};
  ContextOptions::Execution execution = ContextOptions::Execution::concurrent;
  uint64_t shuffle_seed = 0;
  TraceRecorder* trace = nullptr;
  // For ranks that are threads: one recorder per rank, instead of `trace` for all. May be empty.
  std::vector<TraceRecorder*> rank_traces{};
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // Communicator::set_deadline
  // A heartbeat file per rank is kept here (comm/heartbeat.h); empty: none.
  std::string heartbeat_directory;
  // MPI ranks of one host exchange through shared memory; false: through MPI.
  bool shared_memory = true;
};

// The context of the rank `local_rank` of its host. `num_cpus`: the meaning of num_threads = 0.
ContextOptions context_options(const ConnectOptions& options, int local_rank, int num_cpus);

struct ContextRecipe {
  ConnectOptions options;
  int num_cpus = 1;
};

// Joins the group that the launcher's environment describes: torchrun-style variables, mpirun,
// srun, or none; the first that is set. The only place below apps/ that reads environment
// variables. Throws CommError with the cure if the variables contradict each other, or this build
// lacks the backend that they need. A process can join one MPI job in its life. Collective.
World connect(ConnectOptions options = {});

// The rank that connect() would find. Joins nothing.
RankInfo discover_rank();

// For a program whose rank is about to exit with `error`, before its message: waits for the rank
// whose message it is, which ends the job. So an error of all ranks is said once, by rank 0, and an
// error of one rank by that rank. Rank 0 waits after PeerFailed alone. Returns after a second, or
// ten after PeerFailed, where no rank has ended the job; at once in a world of one process.
void let_others_speak(const std::exception_ptr& error) noexcept;

// For a program whose rank is about to exit with an error, after its message. The launcher ends all
// processes of the job with `exit_code` now. Returns if this process has joined no job, or has left
// it.
void abort_job(int exit_code) noexcept;

}  // namespace zinc::comm
