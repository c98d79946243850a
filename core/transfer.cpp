#include "core/transfer.h"

#include <cstring>
#include <vector>

#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/work_log.h"

namespace zinc {
namespace {

WorkPlace place_of(Tier from, Tier to) {
  const bool from_host = from == Tier::pinned_host;
  const bool to_host = to == Tier::pinned_host;
  if (from_host) return to_host ? WorkPlace::host : WorkPlace::to_device;
  return to_host ? WorkPlace::to_host : WorkPlace::device;
}

}  // namespace

void transfer(const ConstView& x, const View& y, StreamRef stream) {
  require(x.dtype() == y.dtype() && x.shape() == y.shape() && x.device() == y.device(),
          "transfer: ", x, " to ", y, " differ in dtype, shape or device");
  require(x.is_contiguous() && y.is_contiguous(), "transfer: views must be contiguous");
  require(x.tier() != Tier::nvme && y.tier() != Tier::nvme,
          "transfer: the tier nvme is reached through an offload::Storage");
  if (x.bytes() == 0) return;
  if (x.device().meta) {
    stream->note("transfer", {.place = place_of(x.tier(), y.tier()),
                              .bytes_read = x.bytes(),
                              .bytes_written = y.bytes()});
    return;
  }
  // CUDA copies from host to host in the calling thread.
  const bool in_host = x.tier() == Tier::pinned_host && y.tier() == Tier::pinned_host;
  if (x.device().is_cuda() && !in_host) return cuda_copy(y.data(), x.data(), x.bytes(), stream);
  stream.submit("transfer", [from = x.data(), to = y.data(), bytes = x.bytes()] {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  });
}

void upload(const void* from, const View& y, StreamRef stream) {
  require(y.is_contiguous() && y.tier() != Tier::nvme, "upload: ", y, " must be contiguous memory");
  if (y.bytes() == 0 || y.device().meta) return;
  // CUDA reads pageable memory before the call returns.
  if (y.device().is_cuda()) return cuda_copy(y.data(), from, y.bytes(), stream);
  const auto size = static_cast<size_t>(y.bytes());
  if (stream->kind() == StreamKind::immediate) {
    stream.submit("upload", [=, to = y.data()] { std::memcpy(to, from, size); });
    return;
  }
  const auto* bytes = static_cast<const std::byte*>(from);
  stream->enqueue("upload", [held = std::vector<std::byte>(bytes, bytes + size), to = y.data()] {
    std::memcpy(to, held.data(), held.size());
  });
}

void download(const ConstView& x, void* to, StreamRef stream) {
  require(x.is_contiguous() && x.tier() != Tier::nvme, "download: ", x,
          " must be contiguous memory");
  if (x.bytes() == 0) return;
  if (x.device().meta) return stream->synchronize();
  if (x.device().is_cuda() && x.tier() == Tier::device) {
    cuda_copy(to, x.data(), x.bytes(), stream);
    stream->synchronize();
    return;
  }
  stream->synchronize();
  std::memcpy(to, x.data(), static_cast<size_t>(x.bytes()));
}

}  // namespace zinc
