#include "core/transfer.h"

#include <cstring>

#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/work_log.h"

namespace zinc {

void transfer(const ConstView& x, const View& y, StreamRef stream) {
  require(x.dtype() == y.dtype() && x.shape() == y.shape() && x.device() == y.device(),
          "transfer: ", x, " to ", y, " differ in dtype, shape or device");
  require(x.is_contiguous() && y.is_contiguous(), "transfer: views must be contiguous");
  require(x.tier() != Tier::nvme && y.tier() != Tier::nvme,
          "transfer: the tier nvme is reached through an offload::Storage");
  if (x.bytes() == 0) return;
  if (x.device().meta) {
    stream->note("transfer", {.bytes_read = x.bytes(), .bytes_written = y.bytes()});
    return;
  }
  if (x.device().is_cuda()) return cuda_copy(y.data(), x.data(), x.bytes(), stream);
  stream.submit("transfer", [from = x.data(), to = y.data(), bytes = x.bytes()] {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  });
}

}  // namespace zinc
