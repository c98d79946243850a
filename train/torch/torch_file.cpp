#include "train/torch/torch_file.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "train/files/convert.h"
#include "train/torch/quoted.h"

namespace zinc::train::torch {
namespace {

constexpr std::string_view kPickle = "data.pkl";

// A row of pickles begins with one of a number that PyTorch drew for the purpose: protocol 2, LONG1
// of ten bytes, 0x1950a86a20f9469cfc6c.
constexpr std::array<unsigned char, 5> kLegacyStart = {0x80, 0x02, 0x8a, 0x0a, 0x6c};

[[noreturn]] void refuse(const InputFile& file) {
  std::array<unsigned char, kLegacyStart.size()> first{};
  if (file.size() >= static_cast<int64_t>(first.size())) {
    file.read(0, std::as_writable_bytes(std::span(first)));
  }
  if (first == kLegacyStart) {
    throw DataError(str(file.path(),
                        ": a file of torch.save from before PyTorch 1.6, which zinc does not "
                        "read; load it with PyTorch where it is trusted and save it again"));
  }
  throw DataError(str(file.path(),
                      ": not a file of torch.save: it does not begin as a zip file does; fetch "
                      "it again, or give a .safetensors file"));
}

// The folder of the archive, with its '/'.
std::string archive_folder(const ZipArchive& archive) {
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : archive.entries()) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != kPickle) continue;
    if (pickle != nullptr) {
      throw DataError(str(archive.path(), ": holds several files of torch.save: ",
                          quoted(pickle->name), " and ", quoted(entry.name)));
    }
    pickle = &entry;
  }
  if (pickle == nullptr) {
    throw DataError(
        str(archive.path(), ": a zip file without ", kPickle, ", so not one of torch.save"));
  }
  std::string folder = pickle->name.substr(0, pickle->name.size() - kPickle.size());
  if (archive.find(folder + "constants.pkl") != nullptr) {
    throw DataError(str(archive.path(),
                        ": a TorchScript program, not a file of weights; save the model's "
                        "state_dict() with torch.save"));
  }
  return folder;
}

// A tensor as runs of elements that lie behind each other: the dimensions from `inner` on are one
// run of `length` elements, those before it number the runs.
struct Runs {
  int inner;
  int64_t length;
};

Runs runs_of(const TensorRecord& tensor) {
  Runs runs{.inner = tensor.shape.rank(), .length = 1};
  while (runs.inner > 0) {
    const int i = runs.inner - 1;
    const int64_t extent = tensor.shape[i];
    if (extent != 1 && tensor.strides[static_cast<size_t>(i)] != runs.length) break;
    runs.length *= extent;
    runs.inner = i;
  }
  return runs;
}

// Where run number `run` begins, in elements of the storage.
int64_t run_begin(const TensorRecord& tensor, const Runs& runs, int64_t run) {
  int64_t at = tensor.offset;
  for (int i = runs.inner - 1; i >= 0; --i) {
    at += run % tensor.shape[i] * tensor.strides[static_cast<size_t>(i)];
    run /= tensor.shape[i];
  }
  return at;
}

}  // namespace

TorchFile TorchFile::open(const std::string& path, const PickleLimits& limits) {
  InputFile file = InputFile::open(path);
  if (!is_zip_file(file)) refuse(file);
  TorchFile opened;
  opened.archive_ = std::make_unique<const ZipArchive>(std::move(file));
  opened.folder_ = archive_folder(*opened.archive_);
  opened.check_byte_order();
  const ZipEntry& pickle = *opened.archive_->find(opened.folder_ + std::string(kPickle));
  const std::string name = str(path, ": ", pickle.name);
  if (pickle.bytes > limits.max_bytes) {
    throw DataError(str(name, ": has ", pickle.bytes, " bytes; at most ", limits.max_bytes,
                        " are allowed: save the tensors alone"));
  }
  std::string text(static_cast<size_t>(pickle.bytes), '\0');
  opened.archive_->read(pickle, 0, std::as_writable_bytes(std::span(text)));
  opened.document_ = read_pickle(std::move(text), name, limits);
  opened.check_storages();
  return opened;
}

void TorchFile::check_byte_order() const {
  const ZipEntry* entry = archive_->find(folder_ + "byteorder");
  if (entry == nullptr) return;
  std::string order(static_cast<size_t>(std::min<int64_t>(entry->bytes, 16)), '\0');
  archive_->read(*entry, 0, std::as_writable_bytes(std::span(order)));
  if (order != "little") {
    throw DataError(str(path(), ": its numbers are in byte order ", quoted(order),
                        ", zinc reads little; save it on a little-endian machine"));
  }
}

void TorchFile::check_storages() const {
  for (const TensorRecord& tensor : document_->tensors()) storage_of(tensor);
}

const ZipEntry& TorchFile::storage_of(const TensorRecord& tensor) const {
  const ZipEntry* entry = archive_->find(str(folder_, "data/", tensor.storage));
  if (entry == nullptr || entry->bytes < tensor.storage_bytes) {
    throw DataError(str(
        path(), ": the storage ", quoted(tensor.storage), " of ", tensor.storage_bytes, " bytes ",
        entry == nullptr ? std::string("is not there") : str("has only ", entry->bytes, " bytes"),
        ": the file is damaged; fetch it again"));
  }
  return *entry;
}

void TorchFile::read(const TensorRecord& tensor, int64_t begin, View out) const {
  require(out.device() == kCpu && out.is_contiguous(),
          "torch: read into contiguous host memory, not ", out);
  const int64_t count = out.numel();
  require(begin >= 0 && count <= tensor.shape.numel() - begin, "torch: elements [", begin, ", ",
          begin + count, ") of a tensor ", tensor.shape);
  if (count == 0) return;
  if (!tensor.type.dtype || !can_convert(*tensor.type.dtype, out.dtype())) {
    throw DataError(str(path(), ": a tensor ", tensor.shape, " is ", tensor.type.name,
                        ", which cannot be read as ", out.dtype()));
  }
  const Runs runs = runs_of(tensor);
  const bool has_rows = runs.inner < tensor.shape.rank();
  if (!has_rows && tensor.shape.rank() > 0) {
    throw DataError(str(path(), ": a tensor ", tensor.shape,
                        " is stored with its rows apart (transposed); call .contiguous() on it "
                        "before it is saved"));
  }
  const ZipEntry& storage = storage_of(tensor);
  const int64_t size = size_of(*tensor.type.dtype);
  read_converted(*tensor.type.dtype, out, [&](int64_t first, View raw) {
    auto* target = static_cast<std::byte*>(raw.data());
    for (int64_t at = begin + first, left = raw.numel(); left > 0;) {
      const int64_t inside = at % runs.length;
      const int64_t n = std::min(left, runs.length - inside);
      const int64_t element = run_begin(tensor, runs, at / runs.length) + inside;
      archive_->read(storage, element * size, {target, static_cast<size_t>(n * size)});
      target += n * size;
      at += n;
      left -= n;
    }
  });
}

}  // namespace zinc::train::torch
