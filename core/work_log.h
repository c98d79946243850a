// core/work_log.h: the work that a run on a meta device stands for, for a simulated clock.
//
// On a meta device kernels and phantom collectives run nothing; each leaves a note of its bytes and
// flops with the stream it was issued to. A WorkLog that the context was given holds the notes, and
// the waits of streams and host, in the order of their issue: enough to play the run through at
// other speeds (plan/playback.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/stream.h"

namespace zinc {

// The kind of arithmetic, which decides at which of the machine's rates it runs.
enum class WorkKind : uint8_t { gemm, attention, other, collective };

// The memory that holds the bytes; it decides the rate at which a GPU moves them.
enum class WorkPlace : uint8_t {
  device,
  host,       // kernels of the CPU, copies within host memory; on a CPU rank all kernels
  to_device,  // a copy from host memory
  to_host,    // a copy to host memory
};

// The work of one kernel, copy or collective, whatever the implementation.
struct WorkCost {
  WorkKind kind = WorkKind::other;
  WorkPlace place = WorkPlace::device;
  DType dtype = DType::f32;   // dtype of the operands of a gemm or of attention
  int64_t bytes_read = 0;     // collective: received by this rank
  int64_t bytes_written = 0;  // collective: sent by this rank
  int64_t flops = 0;
  int ranks = 1;  // ranks of a collective
  // of `ranks`, those on this rank's host, itself too; 0: all ranks of the host
  int near_ranks = 0;
};

// The number of the stream on which a GPU's host computes; the others' are those of StreamRole.
inline constexpr int kHostStream = 5;

// Streams are numbered. One thread writes to a log.
class WorkLog {
 public:
  enum class Action : uint8_t {
    work,       // `stream` does `cost`
    wait,       // `stream` does what is issued from here on after `source`'s first `count` entries
    host_wait,  // the issuing thread goes on after `source`'s first `count` entries
    mark,       // a point in time that somebody asks for
  };
  struct Entry {
    Action action = Action::work;
    int stream = 0;
    int source = 0;
    int64_t count = 0;
    std::string_view label;  // a string literal
    WorkCost cost{};
  };

  void work(int stream, std::string_view label, const WorkCost& cost);
  void wait(int stream, int source, int64_t count);
  void host_wait(int source, int64_t count);
  void mark(std::string_view label);
  // Nothing is kept from here on.
  void stop() { stopped_ = true; }

  // Work and waits that `stream` was given until now.
  int64_t issued(int stream) const;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add(const Entry& entry);

  std::vector<Entry> entries_;
  std::vector<int64_t> issued_;  // by stream
  bool stopped_ = false;
};

// One more stream for the log of `stream`, with the number kHostStream; null where that is no
// stream of a context with a WorkLog. `name` must outlive it.
std::unique_ptr<Stream> make_logged_stream_beside(StreamRef stream, std::string_view name,
                                                  int lane);

}  // namespace zinc
