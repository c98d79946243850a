#include "files/torch/torch_file.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "files/convert.h"
#include "files/float8.h"
#include "files/torch/in_quotes.h"

namespace zinc::files::torch {
namespace {

constexpr std::string_view kPickle = "data.pkl";

// A row of pickles begins with one of a number that PyTorch drew for the purpose: protocol 2, LONG1
// of ten bytes, 0x1950a86a20f9469cfc6c.
constexpr std::array<unsigned char, 5> kLegacyStart = {0x80, 0x02, 0x8a, 0x0a, 0x6c};

bool is_row_of_pickles(const InputFile& file) {
  std::array<unsigned char, kLegacyStart.size()> first{};
  if (file.size() < static_cast<int64_t>(first.size())) return false;
  file.read(0, std::as_writable_bytes(std::span(first)));
  return first == kLegacyStart;
}

[[noreturn]] void refuse(const InputFile& file) {
  throw DataError(str(file.path(),
                      ": not a file of torch.save: it begins neither as a zip file nor as a pickle "
                      "does; fetch it again, or give a .safetensors file"));
}

// How many bytes a pickle has is known at its end: more are read until it is there.
PickleAtFront pickle_at(const InputFile& file, int64_t at, const PickleLimits& limits) {
  constexpr int64_t kFirst = int64_t{64} << 10;
  const int64_t most = std::min(file.size() - at, limits.max_bytes);
  for (int64_t bytes = std::min(most, kFirst);; bytes = std::min(most, 16 * bytes)) {
    std::string text(static_cast<size_t>(bytes), '\0');
    file.read(at, std::as_writable_bytes(std::span(text)));
    try {
      return read_front_pickle(std::move(text), str(file.path(), ": the pickle at byte ", at),
                               limits);
    } catch (const DataError&) {
      if (bytes == most) throw;
    }
  }
}

// The folder of the archive, with its '/'.
std::string archive_folder(const ZipArchive& archive) {
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : archive.entries()) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != kPickle) continue;
    if (pickle != nullptr) {
      throw DataError(str(archive.path(), ": holds several files of torch.save: ",
                          in_quotes(pickle->name), " and ", in_quotes(entry.name)));
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

// The beginning of run number `run`, in elements of the storage.
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
  TorchFile opened(path);
  if (is_zip_file(file)) {
    opened.open_archive(std::move(file), limits);
  } else if (is_row_of_pickles(file)) {
    opened.open_row_of_pickles(std::move(file), limits);
  } else {
    refuse(file);
  }
  opened.check_storages();
  return opened;
}

void TorchFile::open_archive(InputFile file, const PickleLimits& limits) {
  archive_ = std::make_unique<const ZipArchive>(std::move(file));
  folder_ = archive_folder(*archive_);
  check_byte_order();
  const ZipEntry& pickle = *archive_->find(folder_ + std::string(kPickle));
  const std::string name = str(path(), ": ", pickle.name);
  if (pickle.bytes > limits.max_bytes) {
    throw DataError(str(name, ": has ", pickle.bytes, " bytes; at most ", limits.max_bytes,
                        " are allowed: save the tensors alone"));
  }
  std::string text(static_cast<size_t>(pickle.bytes), '\0');
  archive_->read(pickle, 0, std::as_writable_bytes(std::span(text)));
  document_ = read_pickle(std::move(text), name, limits);
}

void TorchFile::open_row_of_pickles(InputFile file, const PickleLimits& limits) {
  constexpr int64_t kVersion = 1001;
  row_.emplace(std::move(file));
  int64_t at = 0;
  const auto next = [&] {
    PickleAtFront read = pickle_at(*row_, at, limits);
    at += read.bytes;
    return std::move(read.document);
  };
  next();  // the number that is_row_of_pickles() knows
  const std::unique_ptr<const Document> version = next(), machine = next();
  if (version->root().as_int64() != kVersion) {
    version->root().fail("this version of torch.save's first layout is not known");
  }
  if (!machine->root().at("little_endian").as_bool()) {
    machine->root().fail("its numbers are big-endian; save it on a little-endian machine");
  }
  document_ = next();
  const std::unique_ptr<const Document> keys = next();
  read_storage_places(keys->root(), at);
}

// A storage's bytes follow from its tensors, since the file says its elements alone.
void TorchFile::read_storage_places(const Value& keys, int64_t at) {
  std::map<std::string_view, const TensorRecord*> tensors;
  for (const TensorRecord& tensor : document_->tensors()) tensors.emplace(tensor.storage, &tensor);
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string_view key = keys.at(i).as_string();
    const auto found = tensors.find(key);
    if (found == tensors.end()) keys.at(i).fail("a storage of no tensor: its size is not known");
    const int64_t bytes = found->second->storage_bytes;
    int64_t elements = 0;
    if (bytes > row_->size() - at - static_cast<int64_t>(sizeof elements)) {
      throw DataError(str(path(), ": byte ", at, ": the storage ", in_quotes(key), " of ", bytes,
                          " bytes reaches beyond the end of the file: it is cut short; fetch it "
                          "again"));
    }
    row_->read(at, std::as_writable_bytes(std::span(&elements, 1)));
    if (elements != bytes / found->second->type.bytes) {
      throw DataError(str(path(), ": byte ", at, ": the storage ", in_quotes(key), " has ",
                          elements, " elements, its tensors say ",
                          bytes / found->second->type.bytes,
                          ": the file is damaged; fetch it again"));
    }
    at += static_cast<int64_t>(sizeof elements);
    row_storages_.emplace(key, ZipEntry{.name = std::string(key), .begin = at, .bytes = bytes});
    at += bytes;
  }
}

void TorchFile::check_byte_order() const {
  const ZipEntry* entry = archive_->find(folder_ + "byteorder");
  if (entry == nullptr) return;
  std::string order(static_cast<size_t>(std::min<int64_t>(entry->bytes, 16)), '\0');
  archive_->read(*entry, 0, std::as_writable_bytes(std::span(order)));
  if (order != "little") {
    throw DataError(str(path(), ": its numbers are in byte order ", in_quotes(order),
                        ", zinc reads little; save it on a little-endian machine"));
  }
}

void TorchFile::check_storages() const {
  for (const TensorRecord& tensor : document_->tensors()) storage_of(tensor);
}

const ZipEntry& TorchFile::storage_of(const TensorRecord& tensor) const {
  const ZipEntry* entry = nullptr;
  if (archive_ != nullptr) {
    entry = archive_->find(str(folder_, "data/", tensor.storage));
  } else if (const auto found = row_storages_.find(tensor.storage); found != row_storages_.end()) {
    entry = &found->second;
  }
  if (entry == nullptr || entry->bytes < tensor.storage_bytes) {
    throw DataError(str(
        path(), ": the storage ", in_quotes(tensor.storage), " of ", tensor.storage_bytes,
        " bytes ",
        entry == nullptr ? std::string("is not there") : str("has only ", entry->bytes, " bytes"),
        ": the file is damaged; fetch it again"));
  }
  return *entry;
}

void TorchFile::read_storage(const ZipEntry& storage, int64_t offset,
                             std::span<std::byte> out) const {
  if (archive_ != nullptr) return archive_->read(storage, offset, out);
  row_->read(storage.begin + offset, out);
}

void TorchFile::read(const TensorRecord& tensor, int64_t begin, View out) const {
  require(out.device() == kCpu && out.is_contiguous(),
          "torch: read into contiguous host memory, not ", out);
  const int64_t count = out.numel();
  require(begin >= 0 && count <= tensor.shape.numel() - begin, "torch: elements [", begin, ", ",
          begin + count, ") of a tensor ", tensor.shape);
  if (count == 0) return;
  const std::optional<Fp8> float8 = float8_named(tensor.type.name);
  const bool is_read_as_float = float8 && is_float(out.dtype());
  if (!is_read_as_float && (!tensor.type.dtype || !can_convert(*tensor.type.dtype, out.dtype()))) {
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
  const int64_t size = tensor.type.bytes;
  const auto read_elements = [&](int64_t first, int64_t num, std::byte* target) {
    for (int64_t at = begin + first, left = num; left > 0;) {
      const int64_t inside = at % runs.length;
      const int64_t n = std::min(left, runs.length - inside);
      const int64_t element = run_begin(tensor, runs, at / runs.length) + inside;
      read_storage(storage, element * size, {target, static_cast<size_t>(n * size)});
      target += n * size;
      at += n;
      left -= n;
    }
  };
  if (is_read_as_float) {
    read_float8(*float8, out, [&](int64_t first, std::span<std::byte> raw) {
      read_elements(first, static_cast<int64_t>(raw.size()), raw.data());
    });
    return;
  }
  read_converted(*tensor.type.dtype, out, [&](int64_t first, View raw) {
    read_elements(first, raw.numel(), static_cast<std::byte*>(raw.data()));
  });
}

}  // namespace zinc::files::torch
