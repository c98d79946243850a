// Fuzz target: bytes as a file of torch.save. Entries that the reader accepts lie within the file
// and apart from each other; tensors can be read, or are refused.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/file_descriptor.h"
#include "files/torch/torch_file.h"

namespace {

using zinc::files::torch::TensorRecord;
using zinc::files::torch::TorchFile;
using zinc::files::torch::ZipArchive;
using zinc::files::torch::ZipEntry;

void check(bool condition) {
  if (!condition) std::abort();
}

void check_archive(const std::string& path, int64_t size) {
  const ZipArchive archive(zinc::files::InputFile::open(path));
  for (const ZipEntry& entry : archive.entries()) {
    check(entry.begin >= 0 && entry.bytes >= 0 && entry.begin <= size);
    check(entry.bytes <= size - entry.begin);
    check(archive.find(entry.name) == &entry);
  }
}

void read_tensors(const TorchFile& file) {
  if (!file.root().is_dict()) return;
  for (size_t i = 0; i < file.root().size(); ++i) {
    if (!file.root().value(i).is_tensor()) continue;
    const TensorRecord& tensor = file.root().value(i).as_tensor();
    const int64_t count = tensor.shape.numel();
    if (!tensor.type.dtype || count > 100'000) continue;
    std::vector<std::byte> out(static_cast<size_t>(count * zinc::size_of(*tensor.type.dtype)));
    try {
      file.read(tensor, 0, zinc::View(out.data(), *tensor.type.dtype, zinc::Shape{count}));
    } catch (const zinc::DataError&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The readers take a path: a file in memory, under the name that the system gives it.
  const zinc::files::FileDescriptor fd(::memfd_create("input", MFD_CLOEXEC));
  check(static_cast<bool>(fd));
  check(::write(fd.get(), data, size) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  try {
    check_archive(path, static_cast<int64_t>(size));
    read_tensors(TorchFile::open(path, {.max_values = 100'000}));
  } catch (const zinc::DataError&) {
  }
  return 0;
}
