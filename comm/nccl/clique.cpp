#include "comm/nccl/clique.h"

#include <optional>
#include <thread>
#include <utility>

#include "comm/call.h"
#include "comm/nccl/checked.h"
#include "comm/nccl/library.h"
#include "comm/transport.h"
#include "core/cuda_backend.h"

namespace zinc::comm {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ncclUniqueId new_clique_id() {
  ncclUniqueId id;
  check_nccl(nccl().get_unique_id(&id), "ncclGetUniqueId");
  return id;
}

Clique::Clique(CliqueOptions options) : options_(std::move(options)) {
  use_cuda_device(options_.device);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  try {
    check_nccl(nccl().init_rank_config(&comm_, options_.size, options_.id, options_.rank, &config),
               "ncclCommInitRankConfig");
    settle("NCCL's start");
  } catch (...) {
    break_off();
    throw;
  }
}

Clique::~Clique() { break_off(); }

void Clique::run(std::string_view what, const std::function<void(ncclComm_t)>& calls) {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw CommError(str(what, ": NCCL was aborted"));
    check_nccl(nccl().group_start(), "ncclGroupStart");
    try {
      calls(comm_);
    } catch (...) {
      nccl().group_end();
      throw;
    }
    check_nccl(nccl().group_end(), str(what, ": ncclGroupEnd"), comm_);
  }
  settle(what);
}

void Clique::settle(std::string_view what) {
  constexpr auto kFirstPause = std::chrono::microseconds(20);
  constexpr auto kLongestPause = std::chrono::microseconds(2000);
  const auto expires = Clock::now() + options_.deadline;
  std::optional<WaitingMark> mark;
  std::optional<std::vector<int>> missing;  // once it is too late
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    {
      const std::lock_guard lock(mutex_);
      if (options_.lifeline->raised()) throw_stopped(std::string(what), *options_.lifeline);
      if (comm_ == nullptr) throw CommError(str(what, ": NCCL was aborted"));
      ncclResult_t state = ncclSuccess;
      check_nccl(nccl().get_async_error(comm_, &state), "ncclCommGetAsyncError", comm_);
      if (state == ncclSuccess) return;
      check_nccl(state, what, comm_);
    }
    if (!mark) mark.emplace(*options_.lifeline);
    options_.lifeline->beat();
    if (missing) {
      throw CommError(str(what, ": no progress for ", describe(options_.deadline), ": waiting for ",
                          name_ranks(*missing)));
    }
    if (Clock::now() >= expires) {
      missing = missing_among(*options_.lifeline, options_.others,
                              [&] { return options_.lifeline->raised(); });
      continue;  // the wait may have ended meanwhile, or this rank was the one that slept
    }
    std::this_thread::sleep_for(pause);
  }
}

void Clique::close() {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    check_nccl(nccl().finalize(comm_), "ncclCommFinalize", comm_);
  }
  settle("NCCL's end");
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  check_nccl(nccl().destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

void Clique::break_off() noexcept {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    comm = std::exchange(comm_, nullptr);
  }
  // Without the lock: NCCL waits here until graphs with collectives of this communicator are gone,
  // and the thread that is to let go of them may have to come out of settle() first.
  if (comm != nullptr) nccl().abort(comm);
}

std::string Clique::fault() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return "";
  ncclResult_t state = ncclSuccess;
  try {
    check_nccl(nccl().get_async_error(comm_, &state), "ncclCommGetAsyncError", comm_);
    check_nccl(state, "NCCL", comm_);
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

}  // namespace zinc::comm
