#include "comm/local/local.h"

#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "comm/cpu_share.h"
#include "comm/host_communicator.h"
#include "comm/shared/shared_lifeline.h"
#include "comm/shared/shared_transport.h"
#include "core/error.h"

namespace zinc::comm {
namespace {

// Segments of groups that are being split off, on their way from the first member to the others.
class FormingGroups {
 public:
  uint64_t add(std::shared_ptr<Segment> segment) {
    const std::lock_guard lock(mutex_);
    segments_.emplace(++last_number_, std::move(segment));
    return last_number_;
  }
  std::shared_ptr<Segment> get(uint64_t number) {
    const std::lock_guard lock(mutex_);
    return segments_.at(number);
  }
  void remove(uint64_t number) {
    const std::lock_guard lock(mutex_);
    segments_.erase(number);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Segment>> segments_;
  uint64_t last_number_ = 0;
};

std::shared_ptr<Segment> form_group(FormingGroups& forming, int64_t buffer_bytes,
                                    const SplitPlan& plan, const Transport::Agree& agree) {
  std::shared_ptr<Segment> segment;
  uint64_t number = 0;
  if (plan.index == 0) {
    segment = Segment::on_heap(
        {.size = static_cast<int>(plan.members.size()), .buffer_bytes = buffer_bytes});
    number = forming.add(segment);
  }
  const std::vector<std::byte> all = agree(std::as_bytes(std::span(&number, 1)));
  if (plan.index > 0) {
    const auto leader = static_cast<size_t>(plan.members.front());
    std::memcpy(&number, all.data() + leader * sizeof number, sizeof number);
    segment = forming.get(number);
  }
  agree({});
  if (plan.index == 0) forming.remove(number);
  return segment;
}

// Throws the current exception again, its message headed by `who`; types that are not zinc's become
// Error.
[[noreturn]] void rethrow_named(const std::string& who) {
  try {
    throw;
  } catch (const ConfigError& e) {
    throw ConfigError(who + e.what());
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(who + e.what());
  } catch (const DataError& e) {
    throw DataError(who + e.what());
  } catch (const CudaError& e) {
    throw CudaError(who + e.what());
  } catch (const CommError& e) {
    throw CommError(who + e.what());
  } catch (const InternalError& e) {
    throw InternalError(who + e.what());
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(who + e.what(), e.asked_bytes(), e.limit_bytes());
  } catch (const IoError&) {
    throw;  // names its file
  } catch (const std::exception& e) {
    throw Error(who + e.what());
  }
}

// The exception that came first, and its rank.
class FirstFailure {
 public:
  void keep(int rank) {
    const std::lock_guard lock(mutex_);
    if (exception_ != nullptr) return;
    exception_ = std::current_exception();
    rank_ = rank;
  }
  void rethrow() const {
    if (exception_ == nullptr) return;
    try {
      std::rethrow_exception(exception_);
    } catch (...) {
      rethrow_named(str("rank ", rank_, ": "));
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
  int rank_ = -1;
};

std::string reason_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(
    int size, int64_t buffer_bytes, const std::vector<std::shared_ptr<Heartbeat>>& heartbeats) {
  require(size >= 1, "make_local_group: needs at least one rank, not ", size);
  require(buffer_bytes >= 0 && buffer_bytes % 64 == 0,
          "make_local_group: buffer_bytes must be a multiple of 64, not ", buffer_bytes);
  require(heartbeats.empty() || static_cast<int>(heartbeats.size()) == size,
          "make_local_group: needs a heartbeat for every rank or none");
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto forming = std::make_shared<FormingGroups>();
  const auto segment = Segment::on_heap({.size = size, .buffer_bytes = buffer_bytes});
  std::vector<std::unique_ptr<Communicator>> group;
  for (const int rank : ranks) {
    auto transport = std::make_shared<SharedTransport>(
        segment, rank, ranks, std::make_shared<SharedLifeline>(segment, rank),
        [forming, buffer_bytes](const SplitPlan& plan, const Transport::Agree& agree) {
          return form_group(*forming, buffer_bytes, plan, agree);
        });
    group.push_back(std::make_unique<HostCommunicator>(
        "local", std::move(transport),
        heartbeats.empty() ? nullptr : heartbeats[static_cast<size_t>(rank)]));
  }
  return group;
}

void run_ranks(std::vector<std::unique_ptr<Communicator>> communicators,
               const ConnectOptions& options, const std::function<void(World&)>& body) {
  const auto size = static_cast<int>(communicators.size());
  const std::vector<int> cpus = allowed_cpus();
  FirstFailure failure;
  const auto run_rank = [&](int rank, std::unique_ptr<Communicator> communicator) {
    communicator->set_deadline(options.deadline);
    std::unique_ptr<World> world;
    try {
      const CpuShare share = share_of(cpus, rank, size);
      std::unique_ptr<CpuBinding> binding;
      if (options.bind_threads && share.exclusive)
        binding = std::make_unique<CpuBinding>(share.cpus);
      const auto num_cpus = static_cast<int>(share.cpus.size());
      ContextOptions context = context_options(options, rank, num_cpus);
      if (!options.rank_traces.empty()) {
        context.trace = options.rank_traces.at(static_cast<size_t>(rank));
      }
      world = std::make_unique<World>(
          RankInfo{.rank = rank,
                   .size = size,
                   .local_rank = rank,
                   .local_size = size,
                   .source = "threads"},
          std::move(communicator), std::make_unique<Context>(std::move(context)),
          std::move(binding), options.device_collectives,
          std::make_unique<ContextRecipe>(ContextRecipe{options, num_cpus}));
      body(*world);
    } catch (...) {
      failure.keep(rank);
      // If no World was made of the communicator, the communicator may be gone; then its peers know
      // of the failure.
      Communicator* const group = world == nullptr ? communicator.get() : &world->communicator();
      if (group != nullptr) group->abort(reason_of_current_exception());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back(run_rank, rank, std::move(communicators[static_cast<size_t>(rank)]));
  }
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

void run_local_ranks(int size, const ConnectOptions& options,
                     const std::function<void(World&)>& body) {
  std::vector<std::shared_ptr<Heartbeat>> heartbeats;
  for (int rank = 0; rank < size && !options.heartbeat_directory.empty(); ++rank) {
    heartbeats.push_back(std::make_shared<Heartbeat>(options.heartbeat_directory, rank, size));
  }
  run_ranks(make_local_group(size, 0, heartbeats), options, body);
}

}  // namespace zinc::comm
