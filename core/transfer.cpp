#include "core/transfer.h"

#include <cstring>

#include "core/cuda_backend.h"
#include "core/error.h"

namespace zinc {

void transfer(const ConstView& x, const View& y, StreamRef stream) {
  require(x.dtype() == y.dtype() && x.shape() == y.shape() && x.device() == y.device(),
          "transfer: ", x, " to ", y, " differ in dtype, shape or device");
  require(x.is_contiguous() && y.is_contiguous(), "transfer: views must be contiguous");
  require(x.tier() != Tier::nvme && y.tier() != Tier::nvme,
          "transfer: the tier nvme is reached through an offload::Storage");
  if (x.device().meta || x.bytes() == 0) return;
  if (x.device().is_cuda()) return cuda_copy(y.data(), x.data(), x.bytes(), stream);
  stream.submit("transfer", [from = x.data(), to = y.data(), bytes = x.bytes()] {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  });
}

}  // namespace zinc
