// core/context.h: everything that a rank's work runs in: device, streams, allocator, random state.
//
// A Context is made current for a thread by a ContextScope; beside the thread's team of parallel
// loops that is the library's only thread-local state, so ranks can be threads of one process.
// Threads of parallel loops and of streams never read it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <typeindex>
#include <unordered_map>

#include "core/allocator.h"
#include "core/device.h"
#include "core/executor.h"
#include "core/random_state.h"
#include "core/stream.h"

namespace zinc {

class WorkLog;

enum class StreamRole : uint8_t { compute, gather, reduce, copy_in, copy_out };
inline constexpr int kNumStreamRoles = 5;
std::string_view name_of(StreamRole role);

struct ContextOptions {
  Device device = kCpu;
  uint64_t seed = 0;
  int num_threads = 0;  // threads of parallel loops; 0: usable_processors()
  AllocatorOptions memory{};
  // CPU only; on a GPU all streams are CUDA's. inline: all streams run at the call. concurrent:
  // compute inline, every other role a worker thread. shuffled: the test executor with
  // `shuffle_seed`.
  enum class Execution : uint8_t {
    inline_all,
    concurrent,
    shuffled
  } execution = Execution::concurrent;
  uint64_t shuffle_seed = 0;
  TraceRecorder* trace = nullptr;  // must outlive the context; null: no trace
  WorkLog* work_log = nullptr;     // meta devices only; must outlive the context; null: no log
  std::unique_ptr<MemorySource> memory_source{};  // null: the device's own
};

class Context {
 public:
  explicit Context(ContextOptions options = {});
  ~Context();  // waits for issued work; an exception of work that nobody waited for is lost
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device() const { return device_; }
  int num_threads() const { return num_threads_; }
  StreamRef stream(StreamRole role) { return *streams_[static_cast<size_t>(role)]; }
  StreamRef compute() { return stream(StreamRole::compute); }
  Allocator& allocator() { return *allocator_; }
  RandomState& random() { return random_; }
  TraceRecorder* trace() const { return trace_; }

  // Memory on this device whose home is the compute stream.
  Block allocate(int64_t bytes, Label label, Tier tier = Tier::device) {
    return allocator_->allocate(bytes, tier, label, compute());
  }
  void synchronize();  // all streams

  // The context's object of type T, default-constructed at first use. Library handles, caches and
  // the autograd mode live in such slots. The file that defines T owns the slot. Slots are
  // destroyed, in no particular order, with the context: after the work of all streams, while
  // streams and allocator are still there.
  template <class T>
  T& slot() {
    std::shared_ptr<void>& entry = slots_[std::type_index(typeid(T))];
    if (entry == nullptr) entry = std::make_shared<T>();
    return *static_cast<T*>(entry.get());
  }

  // The calling thread's context; throws InvalidArgument where there is none.
  static Context& current();
  static Context* current_or_null();

 private:
  friend class ContextScope;

  Device device_;
  int num_threads_;
  TraceRecorder* trace_;
  RandomState random_;
  std::shared_ptr<Allocator> allocator_;
  std::unique_ptr<ShuffledExecutor> shuffled_;
  std::array<std::unique_ptr<Stream>, kNumStreamRoles> streams_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> slots_;
};

// Makes a context current for this thread until the end of the scope, and sets the
// thread's num_parallel_threads() to the context's. Scopes nest.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* previous_;
  int previous_threads_;
};

}  // namespace zinc
