#include "zero/tiers/host_stream.h"

#include <memory>

#include "core/cuda_backend.h"
#include "core/transfer.h"
#include "core/work_log.h"
#include "kernels/copy.h"

namespace zinc::zero {
namespace {

static_assert(kHostStream == kNumStreamRoles);
constexpr std::string_view kName = "host_work";

struct HostStream {
  std::unique_ptr<Stream> stream;
};

}  // namespace

StreamRef host_stream(Context& context) {
  if (!context.device().is_cuda()) return context.compute();
  std::unique_ptr<Stream>& stream = context.slot<HostStream>().stream;
  if (stream == nullptr && context.device().meta) {
    stream = make_logged_stream_beside(context.compute(), kName, kHostStreamLane);
    if (stream == nullptr) return context.compute();
  } else if (stream == nullptr) {
    stream = make_stream_beside(context.compute(), kName, kHostStreamLane, context.trace(),
                                context.num_threads());
  }
  return *stream;
}

void order(StreamRef earlier, StreamRef later) {
  if (later != earlier) later->wait(earlier->record());
}

void copy_to_device(const ConstView& x, const View& y, Context& context) {
  const StreamRef stream = context.compute();
  if (x.tier() != Tier::pinned_host || context.device().is_cpu()) {
    kernels::copy({.x = host_memory(x), .y = y}, stream);
    return;
  }
  if (x.dtype() == y.dtype()) {
    transfer(x, y, stream);
    return;
  }
  const Block room = context.allocate(x.bytes(), Label::staging);
  const View arrived(room.data(), x.dtype(), x.shape(), context.device());
  transfer(x, arrived, stream);
  kernels::copy({.x = arrived, .y = y}, stream);
}

HostFactor::HostFactor(Context& context) : context_(context) {
  if (context.device().is_cpu()) return;
  block_ = context.allocate(size_of(DType::f32), Label::staging, Tier::pinned_host);
}

ConstView HostFactor::take(const ConstView& factor) {
  if (!block_) return factor;
  const StreamRef host = host_stream(context_);
  const View copy(block_.data(), DType::f32, factor.shape(), context_.device(), Tier::pinned_host);
  order(context_.compute(), host);
  transfer(factor, copy, host);
  return host_memory(copy);
}

}  // namespace zinc::zero
