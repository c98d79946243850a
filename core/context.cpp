#include "core/context.h"

#include <utility>

#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/parallel.h"

namespace zinc {
namespace {

thread_local Context* current_context = nullptr;

}  // namespace

std::string_view name_of(StreamRole role) {
  switch (role) {
    case StreamRole::compute:
      return "compute";
    case StreamRole::gather:
      return "gather";
    case StreamRole::reduce:
      return "reduce";
    case StreamRole::copy_in:
      return "copy_in";
    case StreamRole::copy_out:
      return "copy_out";
  }
  return "?";
}

Context::Context(ContextOptions options)
    : device_(options.device),
      num_threads_(options.num_threads > 0 ? options.num_threads : num_parallel_threads()),
      trace_(options.trace),
      random_(options.seed) {
  const bool on_gpu = device_.is_cuda() && !device_.meta;
  if (on_gpu) use_cuda_device(device_);
  if (options.memory_source == nullptr) {
    options.memory_source = device_.meta ? make_meta_memory_source()
                            : on_gpu     ? make_cuda_memory_source(device_)
                                         : make_host_memory_source();
  }
  allocator_ = Allocator::create(std::move(options.memory_source), options.memory);
  const std::unique_ptr<CudaStreams> gpu = on_gpu ? make_cuda_streams(device_) : nullptr;
  if (!on_gpu && options.execution == ContextOptions::Execution::shuffled) {
    shuffled_ = std::make_unique<ShuffledExecutor>(options.shuffle_seed);
  }
  require(options.work_log == nullptr || device_.meta,
          "context: only on a meta device is work logged, not on ", device_);
  for (int i = 0; i < kNumStreamRoles; ++i) {
    const auto role = static_cast<StreamRole>(i);
    const std::string_view name = name_of(role);
    auto& stream = streams_[static_cast<size_t>(i)];
    if (gpu != nullptr) {
      stream = gpu->make_stream(name, i + 1, trace_);
    } else if (options.work_log != nullptr) {
      stream = make_logged_stream(name, i + 1, i, *options.work_log);
    } else if (shuffled_ != nullptr) {
      stream = shuffled_->make_stream(name, i + 1, trace_);
    } else if (role == StreamRole::compute || device_.meta ||
               options.execution == ContextOptions::Execution::inline_all) {
      stream = make_inline_stream(name, i + 1, trace_);
    } else {
      stream = make_worker_stream(name, i + 1, trace_, 1);
    }
  }
}

Context::~Context() {
  // Work that is under way may use objects in the slots, and the slots may use the streams.
  for (auto& stream : streams_) {
    try {
      stream->synchronize();
    } catch (...) {  // nobody is left to hear of it
    }
  }
  slots_.clear();
  for (auto& stream : streams_) stream.reset();
}

void Context::synchronize() {
  for (auto& stream : streams_) stream->synchronize();
}

Context* Context::current_or_null() { return current_context; }

Context& Context::current() {
  require(current_context != nullptr,
          "no context is current for this thread: construct a zinc::Context and a "
          "zinc::ContextScope first (zinc::connect() does both)");
  return *current_context;
}

ContextScope::ContextScope(Context& context)
    : previous_(std::exchange(current_context, &context)),
      previous_threads_(num_parallel_threads()) {
  set_num_parallel_threads(context.num_threads());
  if (context.device().is_cuda() && !context.device().meta) use_cuda_device(context.device());
}

ContextScope::~ContextScope() {
  current_context = previous_;
  if (previous_ != nullptr && previous_->device().is_cuda() && !previous_->device().meta) {
    use_cuda_device(previous_->device());
  }
  set_num_parallel_threads(previous_threads_);
}

}  // namespace zinc
