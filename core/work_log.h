// core/work_log.h: what a run on a meta device would have to do, for a clock that does not tick.
//
// On a meta device kernels and phantom collectives run nothing; each leaves a note of what it would
// have moved and computed with the stream it was issued to. Where the context was given a WorkLog,
// the notes, and what streams and host wait for, stand there in the order of their issue: enough to
// play the run through with other speeds (plan/playback.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/stream.h"

namespace zinc {

// Which of a machine's rates the arithmetic runs at.
enum class WorkKind : uint8_t { gemm, attention, other, collective };

// Whose memory the bytes are in: on a GPU that decides over the rate.
enum class WorkPlace : uint8_t {
  device,
  host,       // kernels of the CPU, copies within host memory; on a CPU rank all kernels
  to_device,  // a copy from host memory
  to_host,    // a copy to host memory
};

// What one kernel, copy or collective takes, whatever the implementation.
struct WorkCost {
  WorkKind kind = WorkKind::other;
  WorkPlace place = WorkPlace::device;
  DType dtype = DType::f32;   // of the operands of a gemm or of attention
  int64_t bytes_read = 0;     // collective: received by this rank
  int64_t bytes_written = 0;  // collective: sent by this rank
  int64_t flops = 0;
  int ranks = 1;       // that take part in a collective
  int near_ranks = 0;  // of these on this rank's host, itself too; 0: as many as it has
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
  // From here on nothing is kept.
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
