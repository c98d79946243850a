// train/torch/torch_file.h: a file of torch.save (PyTorch 1.6 and later): values, and tensors read
// by range.
//
// The file is a zip archive of entries that are stored as they are, all below one folder
// (docs.pytorch.org, "Serialization semantics"):
//   <folder>/data.pkl      the values, as a pickle; a tensor names its storage by key
//   <folder>/data/<key>    the bytes of a storage
//   <folder>/byteorder     "little" or "big"; absent: little
// Files from before, which are a row of pickles, and TorchScript archives are refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/view.h"
#include "train/torch/pickle.h"
#include "train/torch/value.h"
#include "train/torch/zip_archive.h"

namespace zinc::train::torch {

// Opening reads and checks the directory and the pickle, and that every storage that a tensor names
// is there with all its bytes. Safe to share between threads.
class TorchFile {
 public:
  static TorchFile open(const std::string& path, const PickleLimits& limits = {});

  const std::string& path() const { return archive_->path(); }
  Value root() const { return document_->root(); }

  // Elements [begin, begin + out.numel()) of `tensor`, flat row-major, of this file. out: [n]
  // contiguous host memory; its dtype is the tensor's, or both are floats: then values are rounded
  // to nearest even (f64 to 16 bits by way of f32). Nothing but these elements is read. DataError
  // for a type that cannot be converted, and for a tensor whose rows are not contiguous.
  void read(const TensorRecord& tensor, int64_t begin, View out) const;

 private:
  TorchFile() = default;
  const ZipEntry& storage_of(const TensorRecord& tensor) const;
  void check_byte_order() const;
  void check_storages() const;

  std::unique_ptr<const ZipArchive> archive_;
  std::unique_ptr<const Document> document_;
  std::string folder_;  // with its '/'
};

}  // namespace zinc::train::torch
