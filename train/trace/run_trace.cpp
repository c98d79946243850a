#include "train/trace/run_trace.h"

#include <exception>

#include "comm/gather_values.h"
#include "core/error.h"

namespace zinc::train {

std::shared_ptr<RunTrace> RunTrace::open(const std::string& path, comm::World& world) {
  const comm::RankInfo& rank = world.info();
  const bool shared = rank.local_size == rank.size;
  const bool begins = !shared || rank.rank == 0;
  const std::string name =
      comm::share_text(world, rank.rank == 0 ? free_trace_name(path) : std::string());
  const std::string own = shared ? name : str(name, ".rank", rank.rank);
  std::shared_ptr<RunTrace> trace;
  // First those that begin a file, then those that append to one.
  for (const bool now : {begins, !begins}) {
    std::exception_ptr failure;
    try {
      if (now) {
        trace.reset(
            new RunTrace(own, {.rank = rank.rank, .begins = begins}, !shared || rank.size == 1));
      }
    } catch (...) {
      failure = std::current_exception();
    }
    comm::require_all_succeeded(world, "open the trace", failure);
  }
  return trace;
}

RunTrace::~RunTrace() {
  try {
    drain();
    if (alone_) writer_.finish();
  } catch (...) {  // nobody is left to hear of it
  }
}

}  // namespace zinc::train
