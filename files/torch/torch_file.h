// files/torch/torch_file.h: a file of torch.save: values, and tensors read by range.
//
// Since PyTorch 1.6 the file is a zip archive of entries that are stored as they are, all below one
// folder (docs.pytorch.org, "Serialization semantics"):
//   <folder>/data.pkl      the values, as a pickle; a tensor names its storage by key
//   <folder>/data/<key>    the bytes of a storage
//   <folder>/byteorder     "little" or "big"; absent: little
// Before, it was a row of pickles and storages, without checksums:
//   pickle   a number that says so
//   pickle   1001, the version of the layout
//   pickle   what the machine's numbers were like: "little_endian"
//   pickle   the values; a tensor names its storage by key
//   pickle   the list of keys
//   for each key   int64: its number of elements; its elements
// TorchScript archives are refused by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/view.h"
#include "files/input_file.h"
#include "files/torch/pickle.h"
#include "files/torch/value.h"
#include "files/torch/zip_archive.h"

namespace zinc::files::torch {

// Opening reads and checks the directory and the pickle, and that every storage that a tensor names
// is there with all its bytes. Safe to share between threads.
class TorchFile {
 public:
  static TorchFile open(const std::string& path, const PickleLimits& limits = {});

  const std::string& path() const { return path_; }
  Value root() const { return document_->root(); }

  // Elements [begin, begin + out.numel()) of `tensor`, flat row-major, of this file. out: [n]
  // contiguous host memory; its dtype is the tensor's, or both are floats: then values are rounded
  // to nearest even (f64 to 16 bits by way of f32). Nothing but these elements is read, and of a
  // zip archive once the tensor's whole storage, for its CRC-32. DataError where the checksum
  // differs, for a type that cannot be converted, and for a tensor whose rows are not contiguous.
  void read(const TensorRecord& tensor, int64_t begin, View out) const;

 private:
  explicit TorchFile(std::string path) : path_(std::move(path)) {}
  void open_archive(InputFile file, const PickleLimits& limits);
  void open_row_of_pickles(InputFile file, const PickleLimits& limits);
  void read_storage_places(const Value& keys, int64_t at);
  const ZipEntry& storage_of(const TensorRecord& tensor) const;
  void check_byte_order() const;
  void check_storages() const;

  void read_storage(const ZipEntry& storage, int64_t offset, std::span<std::byte> out) const;

  std::string path_;
  // Null for a file from before PyTorch 1.6; such a file has `row_` and `row_storages_` instead.
  std::unique_ptr<const ZipArchive> archive_;
  std::optional<InputFile> row_;
  std::map<std::string, ZipEntry, std::less<>> row_storages_;  // by key
  std::unique_ptr<const Document> document_;
  std::string folder_;  // with its '/'
};

}  // namespace zinc::files::torch
