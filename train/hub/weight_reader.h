// train/hub/weight_reader.h: a model's parameters out of the files of a Hugging Face folder.
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
#include "train/hub/weight_folder.h"

namespace zinc::train {

// A parameter that wants values.
struct WeightSpec {
  std::string name;  // dotted path, as in "transformer.h.0.ln_1.weight"
  Shape shape;
};

// What fits and what does not, by name; empty lists where everything does.
struct WeightMatch {
  std::vector<std::string> missing;     // parameters without a tensor
  std::vector<std::string> unexpected;  // tensors without a parameter
  std::vector<std::string> mismatched;  // "name: [2, 3] in the file, [3, 2] in the model"
  bool complete() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

// Names: a tensor is found under the parameter's own name, or with a base prefix ("transformer.",
// "model.") added or taken away, because published GPT-2 files lack it. Layouts are the files' own:
// GPT-2's Conv1D weights are [in, out] in the model too. Left aside: buffers (h.N.attn.bias,
// h.N.attn.masked_bias, *.rotary_emb.inv_freq), and lm_head.weight where the model has no such
// parameter because it shares the embedding.
//
// Reads by range, so that a rank takes its own elements alone. Safe to share between threads.
class WeightReader {
 public:
  explicit WeightReader(WeightFolder files);

  // Compares names and shapes; reads no data.
  WeightMatch match(std::span<const WeightSpec> parameters) const;
  // DataError that lists everything that does not fit.
  void require_match(std::span<const WeightSpec> parameters) const;
  // DataError where the tied head stands in the files beside the embedding `embedding` and has
  // other values: such a model is not tied. Reads both, where both are there.
  void require_tied_head(std::string_view embedding) const;

  bool contains(std::string_view parameter) const { return locate(parameter) != nullptr; }
  std::optional<Shape> shape_of(std::string_view parameter) const;  // absent: no such tensor
  // Elements [begin, begin + out.numel()) of the parameter, flat row-major, converted to the dtype
  // of `out`: [n] contiguous host memory. DataError where there is no such tensor, its shape is not
  // `shape`, or its dtype cannot be converted.
  void read(std::string_view parameter, const Shape& shape, int64_t begin, View out) const;

  const WeightFolder& files() const { return *files_; }

 private:
  const WeightFolder::Location* locate(std::string_view parameter) const;

  std::shared_ptr<const WeightFolder> files_;
};

}  // namespace zinc::train
