// hub/llmc_file.h: GPT-2 weights in llm.c's format (model_*.bin, gpt2_124M.bin).
//
//   256 int32, little-endian: 20240326, version (3: f32, 5: bf16), longest sequence T,
//     vocabulary V, layers L, heads H, channels C, padded vocabulary Vp, zeros
//   parameters of that dtype: wte [Vp, C], wpe [T, C], then each of a layer's twelve stacked over
//     the layers in the order of the model, then the last norm. Matrices are [out, in].
//
// Source: karpathy/llm.c, train_gpt2.py (write_model, write_tensors). The format cannot express
// another activation than tanh's gelu, another MLP width than 4 C, another epsilon than 1e-5, or a
// head that is not the embedding.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "files/input_file.h"
#include "hub/weight_file.h"
#include "nn/models/gpt2_config.h"

namespace zinc::hub {

// True where the file begins with llm.c's number.
bool is_llmc_file(const files::InputFile& file);

// Names, shapes and layouts are those of the model ("transformer.h.0.attn.c_attn.weight", [in,
// out]): matrices are turned over as they are read, the padding of the vocabulary is left out.
class LlmcFile final : public WeightFile {
 public:
  // DataError for another version, sizes that make no model, or a file of another length.
  explicit LlmcFile(files::InputFile file);

  const nn::Gpt2Config& config() const { return config_; }
  void read(size_t index, int64_t begin, View out) const override;

 private:
  void read_turned(size_t index, int64_t first_row, View block) const;

  files::InputFile file_;
  DType dtype_;
  nn::Gpt2Config config_;
  std::vector<int64_t> offsets_;  // of each tensor, bytes from the start of the file
};

// Elements [begin, begin + out.numel()) of a parameter of the model, flat row-major, as f32.
using ReadParameter = std::function<void(std::string_view name, int64_t begin, View out)>;

// Writes such a file, complete or absent. `dtype`: f32 or bf16. The vocabulary is padded with zeros
// to a multiple of 128. ConfigError for a model that the format has no place for.
void write_llmc_file(const std::string& path, const nn::Gpt2Config& config, DType dtype,
                     const ReadParameter& read);

}  // namespace zinc::hub
