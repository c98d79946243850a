// hub/weight_folder.h: the named tensors of a Hugging Face folder, whatever files hold them.
//
// clang-format off
//   in this order   one file            several files                      their index
//   safetensors     model.safetensors   model-0000k-of-0000N.safetensors   model.safetensors.index.json
//   torch.save      pytorch_model.bin   pytorch_model-0000k-of-0000N.bin   pytorch_model.bin.index.json
// clang-format on
//
// Where there is none of them, a single *.safetensors file of another name will do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hub/weight_file.h"

namespace zinc::hub {

class WeightFolder {
 public:
  // A folder as above, or one file of weights. All headers are read. DataError where there is none,
  // where the index names a file that does not exist, has another name than a plain file name, or
  // lacks a tensor that the index assigns to it. Tensors that the index does not list are not seen.
  static WeightFolder open(const std::string& path);

  struct Location {
    const WeightFile* file;
    size_t index;
    const StoredTensor& tensor() const { return file->tensors()[index]; }
    void read(int64_t begin, View out) const { file->read(index, begin, out); }
  };
  // Sorted by name.
  const std::map<std::string, Location, std::less<>>& tensors() const { return tensors_; }
  const Location* find(std::string_view name) const;  // null when absent
  const std::string& path() const { return path_; }
  // A hash of every tensor's name, type, shape and first values, for ranks to compare. It tells
  // apart weights before and after training.
  uint64_t fingerprint() const;

 private:
  void add_file(const std::string& path);
  void read_index(const std::string& folder, const std::string& index_path,
                  std::string_view suffix);

  std::string path_;
  std::vector<std::unique_ptr<const WeightFile>> files_;
  std::map<std::string, Location, std::less<>> tensors_;
};

}  // namespace zinc::hub
