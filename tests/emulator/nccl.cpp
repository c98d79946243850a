// NCCL between threads that have an emulated GPU each. What is queued runs as a task of its stream,
// meets the other ranks' there and blocks that emulated GPU until they come or the communicator is
// aborted: a rank that never comes hangs the others, as it does NCCL. Stricter than NCCL:
//   order       the groups of one communicator must come to their turn in the order of their issue;
//               NCCL would see to that itself, but not between communicators
//   sizes       a send that meets a receive of another size, and ranks that call different
//               collectives, are an error of the communicator; NCCL would hang or go wrong
//   background  communicators do not block, and every few groups ncclGroupEnd leaves the queueing
//               to the background: an event recorded before ncclCommGetAsyncError says that it is
//               done comes too early
// If the stream captures, each launch of the graph counts as an issue at the time of the launch.
// Two ranks on one GPU are an error of the start, as in NCCL. Sums run from the last rank down.
#include "tests/emulator/nccl.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "tests/emulator/include/nccl.h"
#include "tests/emulator/runtime.h"

namespace zinc::emulator {
namespace {

using Bytes = std::vector<std::byte>;

Bytes copy_of(const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  return {first, first + bytes};
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
      return 4;
    case ncclFloat64:
      return 8;
  }
  return 0;
}

enum class Kind { send, receive, all_gather, all_reduce, reduce_scatter };

struct Call {
  Kind kind = Kind::send;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclUint8;
  int peer = 0;
  cudaStream_t stream = nullptr;
  uint64_t round = 0;  // for a collective: its number among its communicator's

  size_t bytes() const { return count * size_of(type); }
  bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
  std::string text() const {
    constexpr const char* kNames[] = {"send", "receive", "all-gather", "all-reduce",
                                      "reduce-scatter"};
    return str(kNames[static_cast<int>(kind)], " of ", count, " x type ", static_cast<int>(type));
  }
};

struct Round {
  std::vector<std::optional<Bytes>> brought;
  std::string text;
  int taken = 0;
};

// The state that the ranks of one communicator share.
struct Meeting {
  explicit Meeting(int world) : size(world), device(static_cast<size_t>(world), -1) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> device;  // of every rank that has come
  int num_joined = 0;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // by (source, destination)
  std::map<uint64_t, Round> rounds;
  std::string fault;
};

struct Group {
  uint64_t number = 0;  // among the communicator's
  std::vector<Call> calls;
};

}  // namespace

struct NcclComm {
  std::shared_ptr<Meeting> meeting;
  int rank = 0;
  std::thread::id owner;
  std::atomic<bool> aborted = false;
  uint64_t launched = 0;  // groups
  uint64_t issued = 0;    // groups that streams got, once for each launch of a graph
  uint64_t rounds = 0;    // collectives among them
  uint64_t ran = 0;
  bool polled = false;
  std::optional<std::vector<Call>> in_background;
  std::string last_error;
};

namespace {

std::mutex meetings_mutex;
std::map<uint64_t, std::weak_ptr<Meeting>> meetings;  // by the number in their ncclUniqueId
uint64_t last_meeting = 0;

std::atomic<int> absent_rank{-1};
std::map<std::string, int64_t> calls_by_name;
void count_call(const char* name) {
  const std::lock_guard lock(meetings_mutex);
  ++calls_by_name[name];
}

// Communicators live on while tasks hold them, whatever ncclCommAbort says.
std::map<NcclComm*, std::shared_ptr<NcclComm>>& communicators() {
  static std::map<NcclComm*, std::shared_ptr<NcclComm>> all;
  return all;
}
std::shared_ptr<NcclComm> shared(NcclComm* comm) {
  const std::lock_guard lock(meetings_mutex);
  return communicators().at(comm);
}
void forget(NcclComm* comm) {
  const std::lock_guard lock(meetings_mutex);
  communicators().erase(comm);
}

// The NCCL groups that the calling thread has open.
thread_local int group_depth = 0;
thread_local std::map<NcclComm*, std::vector<Call>> group_calls;

// A rank's part of a group, in the order of its stream.
class Run {
 public:
  Run(NcclComm& comm, const Group& group) : comm_(comm), meeting_(*comm.meeting), group_(group) {}

  // Returns when the group is done, or the communicator was aborted.
  void operator()() {
    std::unique_lock lock(meeting_.mutex);
    if (++comm_.ran != group_.number) {
      fail(str("rank ", comm_.rank, " comes to group ", group_.number, " as its ", comm_.ran,
               ". group"));
    }
    for (const Call& call : group_.calls) bring(call);
    meeting_.changed.notify_all();
    for (const Call& call : group_.calls) {
      if (!take(call, lock)) return;
    }
  }

 private:
  void fail(const std::string& why) {
    if (meeting_.fault.empty()) meeting_.fault = why;
  }

  void bring(const Call& call) {
    if (call.kind == Kind::receive) return;
    if (call.kind == Kind::send) {
      meeting_.mail[{comm_.rank, call.peer}].push_back(copy_of(call.in, call.bytes()));
      return;
    }
    Round& round = meeting_.rounds[call.round];
    if (round.brought.empty()) {
      round.brought.resize(static_cast<size_t>(meeting_.size));
      round.text = call.text();
    }
    if (round.text != call.text()) {
      fail(str("rank ", comm_.rank, " brings ", call.text(), ", another one ", round.text));
    }
    const size_t blocks = call.kind == Kind::reduce_scatter ? round.brought.size() : 1;
    round.brought[static_cast<size_t>(comm_.rank)] = copy_of(call.in, blocks * call.bytes());
  }

  // False where the communicator was aborted meanwhile; after an error nothing becomes ready.
  bool wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
    meeting_.changed.wait(lock,
                          [&] { return comm_.aborted || (meeting_.fault.empty() && ready()); });
    return !comm_.aborted;
  }

  bool take(const Call& call, std::unique_lock<std::mutex>& lock) {
    if (call.kind == Kind::send) return true;
    if (call.kind == Kind::receive) {
      auto& mail = meeting_.mail[{call.peer, comm_.rank}];
      if (!wait(lock, [&] { return !mail.empty(); })) return false;
      const Bytes message = std::move(mail.front());
      mail.pop_front();
      if (message.size() != call.bytes()) {
        fail(str("rank ", call.peer, " sends ", message.size(), " bytes, rank ", comm_.rank,
                 " receives ", call.bytes()));
        return wait(lock, [] { return false; });
      }
      std::memcpy(call.out, message.data(), message.size());
      return true;
    }
    Round& round = meeting_.rounds[call.round];
    const auto complete = [&] {
      for (const auto& bytes : round.brought) {
        if (!bytes) return false;
      }
      return true;
    };
    if (!wait(lock, complete)) return false;
    write(call, round);
    if (++round.taken == meeting_.size) meeting_.rounds.erase(call.round);
    return true;
  }

  void write(const Call& call, const Round& round) const {
    auto* out = static_cast<std::byte*>(call.out);
    if (call.kind == Kind::all_gather) {
      for (const auto& bytes : round.brought) {
        std::memcpy(out, bytes->data(), bytes->size());
        out += bytes->size();
      }
      return;
    }
    const size_t first =
        call.kind == Kind::reduce_scatter ? call.count * static_cast<size_t>(comm_.rank) : 0;
    switch (call.type) {
      case ncclFloat64:
        return sum<double>(call, round, first);
      case ncclFloat32:
        return sum<float>(call, round, first);
      case ncclBfloat16:
        return sum<bf16>(call, round, first);
      case ncclFloat16:
        return sum<f16>(call, round, first);
      case ncclUint8:
        break;
    }
  }

  template <class T>
  static void sum(const Call& call, const Round& round, size_t first) {
    auto* out = static_cast<T*>(call.out);
    for (size_t i = 0; i < call.count; ++i) {
      AccumulatorOf<T> total = 0;
      for (size_t r = round.brought.size(); r > 0; --r) {
        T value;
        std::memcpy(&value, round.brought[r - 1]->data() + (first + i) * sizeof(T), sizeof(T));
        total += static_cast<AccumulatorOf<T>>(value);
      }
      out[i] = T(total);
    }
  }

  NcclComm& comm_;
  Meeting& meeting_;
  const Group& group_;
};

// A group that its stream captures comes anew with every launch.
void queue(NcclComm* comm, std::vector<Call> calls) {
  const cudaStream_t stream = calls.front().stream;
  put_off(stream, [comm = shared(comm), calls = std::move(calls)]() -> Stream::Task {
    Group group{.number = ++comm->issued, .calls = calls};
    for (Call& call : group.calls) {
      if (!call.is_message()) call.round = ++comm->rounds;
    }
    return [comm, group = std::move(group)] {
      if (!comm->aborted) Run(*comm, group)();
    };
  });
}

ncclResult_t refuse(NcclComm* comm, std::string why) {
  comm->last_error = std::move(why);
  return ncclInvalidUsage;
}

ncclResult_t launch(NcclComm* comm, std::vector<Call> calls) {
  constexpr uint64_t kInBackground = 3;  // one group in so many
  if (comm->in_background) return refuse(comm, "the last group is still in the background");
  for (const Call& call : calls) {
    if (call.stream != calls.front().stream) return refuse(comm, "a group has one stream");
  }
  if (++comm->launched % kInBackground == 1) {
    comm->polled = false;
    comm->in_background = std::move(calls);
    return ncclInProgress;
  }
  queue(comm, std::move(calls));
  return ncclSuccess;
}

ncclResult_t add(NcclComm* comm, const Call& call) {
  constexpr const char* kNames[] = {"send", "receive", "all_gather", "all_reduce",
                                    "reduce_scatter"};
  count_call(kNames[static_cast<size_t>(call.kind)]);
  const int size = comm->meeting->size;
  if (call.is_message() && (call.peer < 0 || call.peer >= size)) {
    return refuse(comm, str("no peer has the rank ", call.peer));
  }
  // Alone it would wait for its other half, which is never issued.
  if (call.is_message() && call.peer == comm->rank && group_depth == 0) {
    return refuse(comm, "a message to the rank itself outside a group");
  }
  if (group_depth > 0) {
    group_calls[comm].push_back(call);
    return ncclSuccess;
  }
  return launch(comm, {call});
}

}  // namespace

void set_nccl_absent_rank(int rank) { absent_rank = rank; }
std::map<std::string, int64_t> nccl_calls() {
  const std::lock_guard lock(meetings_mutex);
  return calls_by_name;
}
void fail_nccl(const std::string& why) {
  const std::lock_guard all(meetings_mutex);
  for (const auto& [number, known] : meetings) {
    const std::shared_ptr<Meeting> meeting = known.lock();
    if (meeting == nullptr) continue;
    const std::lock_guard lock(meeting->mutex);
    meeting->fault = why;
  }
}

}  // namespace zinc::emulator

using namespace zinc::emulator;  // NOLINT: this file is the other side of a C interface

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclSystemError:
      return "system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInProgress:
      return "in progress";
  }
  return "unknown error";
}
const char* ncclGetLastError(ncclComm_t comm) { return comm->last_error.c_str(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(meetings_mutex);
  *id = {};
  ++last_meeting;
  std::memcpy(id->internal, &last_meeting, sizeof last_meeting);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  count_call("init");
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  if (config->blocking != 0 || rank < 0 || rank >= size) return ncclInvalidArgument;
  auto made = std::make_shared<NcclComm>();
  {
    const std::lock_guard lock(meetings_mutex);
    if (number == 0 || number > last_meeting) return ncclInvalidArgument;
    made->meeting = meetings[number].lock();
    if (made->meeting == nullptr) {
      made->meeting = std::make_shared<Meeting>(size);
      meetings[number] = made->meeting;
    }
    communicators()[made.get()] = made;
  }
  made->rank = rank;
  made->owner = std::this_thread::get_id();
  *comm = made.get();
  int device = 0;
  cudaGetDevice(&device);
  Meeting& meeting = *made->meeting;
  const std::lock_guard lock(meeting.mutex);
  for (int r = 0; r < size; ++r) {
    if (meeting.device[static_cast<size_t>(r)] == device) {
      meeting.fault = zinc::str("duplicate GPU: ranks ", r, " and ", rank, " are both on ", device);
    }
  }
  meeting.device[static_cast<size_t>(rank)] = device;
  if (rank != absent_rank) ++meeting.num_joined;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclSuccess;
  const bool is_owner = comm->owner == std::this_thread::get_id();
  std::optional<std::vector<Call>> finished;
  {
    const std::lock_guard lock(comm->meeting->mutex);
    if (!comm->meeting->fault.empty()) {
      comm->last_error = comm->meeting->fault;
      *state = ncclInternalError;
    } else if (comm->meeting->num_joined < comm->meeting->size) {
      *state = ncclInProgress;
    } else if (is_owner && comm->in_background) {
      if (comm->polled) finished.swap(comm->in_background);
      comm->polled = true;
      if (!finished) *state = ncclInProgress;
    }
  }
  if (finished) queue(comm, std::move(*finished));
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  forget(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  count_call("abort");
  {
    const std::lock_guard lock(comm->meeting->mutex);
    comm->aborted = true;
    comm->meeting->changed.notify_all();
  }
  forget(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  count_call("group");
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (auto& [comm, calls] : std::exchange(group_calls, {})) {
    const ncclResult_t one = launch(comm, std::move(calls));
    if (result == ncclSuccess || (result == ncclInProgress && one != ncclSuccess)) result = one;
  }
  return result;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {.kind = Kind::send,
                    .in = data,
                    .count = count,
                    .type = type,
                    .peer = peer,
                    .stream = stream});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, {.kind = Kind::receive,
                    .out = data,
                    .count = count,
                    .type = type,
                    .peer = peer,
                    .stream = stream});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {.kind = Kind::all_gather,
                    .in = in,
                    .out = out,
                    .count = count,
                    .type = type,
                    .stream = stream});
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {.kind = Kind::all_reduce,
                    .in = in,
                    .out = out,
                    .count = count,
                    .type = type,
                    .stream = stream});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {.kind = Kind::reduce_scatter,
                    .in = in,
                    .out = out,
                    .count = count,
                    .type = type,
                    .stream = stream});
}
