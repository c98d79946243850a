// hub/weight_reader.h: a model's parameters out of the files of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/view.h"
#include "hub/name_map.h"
#include "hub/weight_folder.h"

namespace zinc::hub {

// The tensors and parameters that do not match, by name; all lists are empty if everything matches.
// Where the names in the model and in the files differ, both are given: "ours (theirs in the
// files)".
struct WeightMatch {
  std::vector<std::string> missing;     // parameters without a tensor
  std::vector<std::string> unexpected;  // tensors without a parameter
  std::vector<std::string> mismatched;  // "name: [2, 3] in the file, [3, 2] in the model"
  bool complete() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

// Names and layouts by the family's map (hub/name_map.h): a tensor is found under the name
// that the map gives a parameter, or with one of its prefixes added or taken away, or with an old
// ending. A tied tensor may stand under any of its names: safetensors.torch.save_model keeps the
// first in alphabetical order, which is often the head's. Ignored: the map's buffers, and its tied
// names where the model has no such parameter.
//
// Reads by range, so that a rank takes its own elements alone. Safe to share between threads.
class WeightReader {
 public:
  explicit WeightReader(WeightFolder files, NameMap names = {});

  // Compares names and shapes; reads no data.
  WeightMatch match(std::span<const WeightSpec> parameters) const;
  // DataError that lists everything that does not fit.
  void require_match(std::span<const WeightSpec> parameters) const;
  // DataError if the files have a tied tensor beside the tensor that it repeats, with other values:
  // such a model is not tied. Reads both tensors, if both exist.
  void require_tied() const;

  // `shape` if the files have all of a parameter of this shape; else the shape of the first tensor
  // that differs; absent if a tensor is missing.
  std::optional<Shape> shape_of(std::string_view parameter, const Shape& shape) const;
  // Elements [begin, begin + out.numel()) of the parameter, flat row-major, converted to the dtype
  // of `out`: [n] contiguous host memory. DataError where a tensor is missing, its shape is another
  // than a parameter of `shape` needs, or its dtype cannot be converted.
  void read(std::string_view parameter, const Shape& shape, int64_t begin, View out) const;

  const WeightFolder& files() const { return *files_; }

 private:
  const WeightFolder::Location* locate(std::string_view stored_name) const;
  const WeightFolder::Location* locate_by_spelling(std::string_view stored_name) const;
  const WeightFolder::Location* locate_by_ending(std::string_view stored_name,
                                                 const OldEnding& ending) const;
  const WeightFolder::Location* locate_as_written(std::string_view stored_name) const;
  void require_equal(const TiedName& tied) const;

  std::shared_ptr<const WeightFolder> files_;
  NameMap names_;
};

}  // namespace zinc::hub
