// comm/nccl/clique.h: this rank's end of an NCCL communicator for one group of ranks.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/lifeline.h"
#include "core/device.h"

namespace zinc::comm {

struct CliqueOptions {
  ncclUniqueId id{};
  int rank = 0;
  int size = 1;
  Device device;
  std::chrono::nanoseconds deadline{};
  std::vector<int> others;  // the other members' ranks in the world
  std::shared_ptr<Lifeline> lifeline;
};

class Clique {
 public:
  // Collective over the members; blocks until all members have come. Throws CommError at the
  // deadline and names the missing members.
  explicit Clique(CliqueOptions options);
  ~Clique();  // aborts where close() was not called
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;

  // Runs `calls` as one group of NCCL. At return NCCL has queued all of it. `what` names the
  // operation in errors. One thread.
  void run(std::string_view what, const std::function<void(ncclComm_t)>& calls);

  // Leaves the clique when the device has done its work; collective.
  void close();

  // Any thread. Collectives under way end; every later run() throws.
  void break_off() noexcept;
  // The error that NCCL has found since; empty: none.
  std::string fault();

 private:
  // Waits until NCCL's work in the background is done.
  void settle(std::string_view what);

  CliqueOptions options_;
  std::mutex mutex_;  // guards comm_: a thread that watches may abort it at any time
  ncclComm_t comm_ = nullptr;
};

// A new clique's name, made by one member and carried to the others.
ncclUniqueId new_clique_id();

}  // namespace zinc::comm
