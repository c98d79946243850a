#include "core/host_stream.h"

#include <memory>

#include "core/cuda_backend.h"
#include "core/work_log.h"

namespace zinc {
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

}  // namespace zinc
