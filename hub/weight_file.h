// hub/weight_file.h: one file of named tensors, whatever its format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/view.h"

namespace zinc::hub {

struct StoredTensor {
  std::string name;
  std::string_view type;       // as the format spells it: "BF16", "bfloat16"
  std::optional<DType> dtype;  // absent for a type that zinc does not compute with
  Shape shape;
};

// Safe to share between threads.
class WeightFile {
 public:
  virtual ~WeightFile() = default;

  const std::string& path() const { return path_; }
  // No two have the same name; names are not empty and hold no control characters.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Elements [begin, begin + out.numel()) of tensors()[index], flat row-major. out: [n] contiguous
  // host memory; its dtype is the tensor's, or both are floats: then values are rounded to nearest
  // even (f64 to 16 bits by way of f32). Nothing but these elements is read. DataError for a dtype
  // that cannot be converted.
  virtual void read(size_t index, int64_t begin, View out) const = 0;

 protected:
  explicit WeightFile(std::string path) : path_(std::move(path)) {}
  std::vector<StoredTensor> tensors_;

 private:
  std::string path_;
};

// A name that ends in .bin, .pt or .pth is llm.c's where the file begins so
// (hub/llmc_file.h), else a file of torch.save that holds a state_dict (a dict of tensors);
// any other is safetensors. Reads and checks the header, not the data. DataError.
std::unique_ptr<const WeightFile> open_weight_file(const std::string& path);

}  // namespace zinc::hub
